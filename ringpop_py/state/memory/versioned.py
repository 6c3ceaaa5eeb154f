"""Keyed state without a store: every value has a version, and two copies can be merged.

This is the state of a partition of a keyspace in ``memory`` mode. Nothing outlives the nodes, and
both sides of a network partition go on serving. This can be lost:

- Everything that a node held, if it dies before handing that over and no other has a copy.
- With ``last_writer_wins``: of two writes to one key on two sides, the one with the earlier clock,
  though both were acknowledged. Clocks are hybrid, so a write that its writer made after seeing
  another is later; if two writers did not know of each other, their clocks decide.
- With the other rules: nothing that was put on two sides. But a write that *lessens* (a smaller
  number under ``max``, a shorter list under ``union``) is undone when an older copy is merged. They
  are for values that only grow.
- With the other rules, a delete wins over a put on the other side that did not know of it. What is
  put after the delete was known begins anew.
- A delete is remembered for a limited time (`TOMBSTONE_AGE_MS`). A copy that was away for longer
  brings the key back, and its value may win over one that was put since. The same is true of any
  copy that did not know of a delete, once so many later ones (`TOMBSTONES_MAX`) have come that
  this delete is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sortedcontainers import SortedDict

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import Declared, Natural, Text, convert
from ringpop_py.state.table.joins import LAST_WRITER_WINS, join_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringpop_py.state.table.entries import Frozen
    from ringpop_py.state.table.joins import Join, Pack, Rule

TOMBSTONE_AGE_MS: Final = 24 * 3600 * 1000
TOMBSTONES_MAX: Final = 65_536
"""The most deletes that a partition remembers, about 300 bytes each besides the key. Beyond it the
one that was learnt longest ago is forgotten."""
TRANSFERS_MAX: Final = 4_096
"""The most ids of transfers that are remembered, to ignore one that is sent again."""
PIECE_BYTES: Final = 1 << 20
_ROW_BYTES: Final = 64
"""The approximate bytes of a row besides its key and value."""


def row_bytes(row: Sequence[Any]) -> int:
    """Return the approximate bytes of a row of `VersionedState.export`."""
    return len(row[0]) + len(row[1] or b"") + _ROW_BYTES


class Version(NamedTuple):
    """When a value was written, by a hybrid clock. Versions are ordered, and each is used once."""

    ms: int
    counter: int
    node: str


NEVER: Final = Version(0, 0, "")


class HybridClock:
    """Returns versions that are near the time, and always later than those seen before.

    All the partitions of a node share one. A clock that is far ahead is harmless: the others count
    on from it.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._last = (0, 0)

    def tick(self, now_ms: int) -> Version:
        """Return the version of something written now."""
        ms, counter = self._last
        self._last = (now_ms, 0) if now_ms > ms else (ms, counter + 1)
        return Version(*self._last, self._node)

    def saw(self, version: Version) -> None:
        """Make later versions greater than *version*."""
        self._last = max(self._last, version[:2])


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a key.

    Attributes:
        value: packed; None if the key was deleted.
        life: the version of the last delete that the writer knew of. An entry of a later life of
            its key replaces all entries of earlier ones.
    """

    key: str
    value: bytes | None
    version: Version
    life: Version = NEVER

    @property
    def _order(self) -> tuple[Version, bool, bytes, Version]:
        # Beyond the version, so that copies agree even if a version was used twice.
        return self.version, self.value is not None, self.value or b"", self.life


class VersionedState:
    """Keys and packed values of one partition, each with its version: the `Entries` of keyed state.

    Args:
        clock: the node's.
        pack: as in `KeyedState`. Equal values must give equal bytes.

    Attributes:
        now_ms: the time of what `write` writes next.
        forgotten_count: deletes that were forgotten early, to make room for later ones.
    """

    failed = False

    def __init__(self, clock: HybridClock, pack: Pack) -> None:
        self.now_ms = 0
        self.forgotten_count = 0
        self._clock = clock
        self._pack = pack
        self._entries: SortedDict[str, Entry] = SortedDict()
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._transfers: OrderedDict[str, None] = OrderedDict()

    # As `Entries`.

    def __len__(self) -> int:
        return len(self._entries) - len(self._tombstones)

    @property
    def knows_nothing(self) -> bool:
        """Whether there are neither keys nor remembered deletes."""
        return not self._entries

    def get(self, key: str, /) -> bytes | None:
        """Return the packed value of *key*; None if it has none."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def write(self, changed: Mapping[str, bytes], deleted: Iterable[str]) -> None:
        """Delete *deleted*, then set *changed*; a key can be in both."""
        for key in deleted:
            self.delete(key, self.now_ms)
        for key, packed in changed.items():
            self.put(key, packed, self.now_ms)

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """See `Entries`."""
        found: list[tuple[str, bytes]] = []
        for key in self._entries.irange(minimum=max(prefix, start)):
            past = not key.startswith(prefix) or (end is not None and key >= end)
            if past or len(found) >= limit:
                break
            value = self._entries[key].value
            if value is not None:
                found.append((key, value))
        return found

    def at_most(self, limit: int) -> None:
        """See `Entries`: the keys are in order, so `scan` is as fast."""

    def clear(self) -> None:
        """Not for these entries: a copy is dropped as a whole."""
        raise NotImplementedError

    def freeze(self, keys: Sequence[str] | None = None) -> Frozen:
        """Not for these entries: they have no checkpoints."""
        raise NotImplementedError

    # One key.

    def put(self, key: str, packed: bytes, now_ms: int) -> Entry:
        """Set the value of *key*, and return its entry."""
        before = self._entries.get(key)
        life = before.life if before else NEVER
        return self._set(Entry(key, packed, self._clock.tick(now_ms), life))

    def delete(self, key: str, now_ms: int) -> Entry:
        """Delete *key*, and return its tombstone."""
        # Also for an absent key: the other side of a network partition may have an older value.
        version = self._clock.tick(now_ms)
        return self._set(Entry(key, None, version, life=version))

    def expire(self, key: str) -> None:
        """Delete *key*, whose instant has passed, as of the version that had this instant.

        Another copy may have renewed it, which a delete of now would undo. So the tombstone is
        later than this version, and earlier than any other: names have no NUL.
        """
        version = self._entries[key].version
        version = version._replace(node=version.node + "\0")
        self._set(Entry(key, None, version, life=version))

    def _set(self, entry: Entry) -> Entry:
        self._entries[entry.key] = entry
        self._tombstones.pop(entry.key, None)
        if entry.value is None:
            self._tombstones[entry.key] = None  # as the last one
            if len(self._tombstones) > TOMBSTONES_MAX:
                key, _ = self._tombstones.popitem(last=False)
                del self._entries[key]
                self.forgotten_count += 1
        return entry

    # Copies.

    def export(
        self, now_ms: int, after: str | None = None, *, piece_bytes: int = PIECE_BYTES
    ) -> tuple[list[list[Any]], str | None]:
        """Return rows of what is known of the keys behind *after*, in order, with tombstones.

        Return also what is *after* for the next piece; None for the last piece.

        A piece ends with the row that fills *piece_bytes*, so it has at least one row. A change
        between two pieces is in a later one if its key is; otherwise it is in none.
        """
        assert piece_bytes > 0
        rows: list[list[Any]] = []
        size = 0
        for key in self._entries.irange(minimum=after, inclusive=(after is None, True)):
            if size >= piece_bytes:
                return rows, rows[-1][0]
            entry = self._entries[key]
            if not _is_expired(entry, now_ms):
                rows.append(_row(entry))
                size += row_bytes(rows[-1])
        return rows, None

    def rows_of(self, keys: Iterable[str]) -> list[list[Any]]:
        """Return the rows of what is known of *keys*, as `export` does."""
        return [_row(entry) for key in keys if (entry := self._entries.get(key)) is not None]

    def merge(
        self, entries: Iterable[Entry], rule: Rule, now_ms: int, *, transfer: str = ""
    ) -> list[str]:
        """Merge the *entries* of another copy, and return the keys that changed here.

        If *rule*, or unpacking a value, raises, nothing was changed.

        Args:
            rule: see `ringpop_py.state.table.joins.join_of`. Copies that merge each other's
                entries with one named rule become equal, in whatever order and however often.
            transfer: identifies what is sent, if it could be sent again: a transfer that was merged
                before is ignored. It is forgotten after `TRANSFERS_MAX` later ones, which is
                harmless with the named rules.

        Raises:
            ConfigError: if no rule has that name.
        """
        if transfer and transfer in self._transfers:
            return []
        join = entry_join(rule, self._pack)
        joined: dict[str, Entry] = {}
        theirs = [entry for entry in entries if not _is_expired(entry, now_ms)]
        for entry in theirs:
            ours = joined.get(entry.key) or self._entries.get(entry.key)
            joined[entry.key] = join(ours, entry) if ours else entry
        changed = [entry for entry in joined.values() if entry != self._entries.get(entry.key)]
        # Nothing before this line changes the state, as a rule may raise.
        for entry in theirs:
            self._clock.saw(entry.version)
        for entry in changed:
            self._set(entry)
        if transfer:
            self._transfers[transfer] = None
            if len(self._transfers) > TRANSFERS_MAX:
                self._transfers.popitem(last=False)
        return [entry.key for entry in changed]

    def collect(self, now_ms: int) -> int:
        """Forget deletes that are old enough, and return their number."""
        expired = [key for key in self._tombstones if _is_expired(self._entries[key], now_ms)]
        for key in expired:
            del self._entries[key], self._tombstones[key]
        return len(expired)


def entry_join(rule: Rule, pack: Pack) -> Callable[[Entry, Entry], Entry]:
    """Return the function that joins two entries of one key by *rule*.

    Raises:
        ConfigError: if no rule has that name.
    """
    join = join_of(rule, pack)
    if rule == LAST_WRITER_WINS:
        return lambda one, other: max(one, other, key=lambda entry: entry._order)  # noqa: SLF001
    return lambda one, other: _joined(one, other, join)


def _joined(one: Entry, other: Entry, join: Join) -> Entry:
    # A later life replaces earlier ones as a whole. If the versions of a tombstone and of a joined
    # value were compared instead, it would matter which were joined first.
    if one.life != other.life:
        return max(one, other, key=lambda entry: entry.life)
    if one.value is None or other.value is None:
        return other if one.value is None else one
    older, newer = sorted((one, other), key=lambda entry: entry._order)  # noqa: SLF001
    assert older.value is not None
    assert newer.value is not None
    same = older.value == newer.value
    value = newer.value if same else join(older.value, newer.value)
    return Entry(newer.key, value, newer.version, newer.life)


def _is_expired(entry: Entry, now_ms: int) -> bool:
    """Return whether *entry* is a delete that need not be remembered."""
    return entry.value is None and now_ms - entry.version.ms > TOMBSTONE_AGE_MS


# Entries as plain lists.


def _row(entry: Entry) -> list[Any]:
    life = entry.life if entry.life != NEVER else ()
    return [entry.key, entry.value, *entry.version, *life]


class _EntryRow(Declared, frozen=True):
    key: str
    value: bytes | None
    ms: Natural
    counter: Natural
    node: Text
    life_ms: Natural = 0
    life_counter: Natural = 0
    life_node: Text = ""


def entries_from_rows(rows: Sequence[object]) -> list[Entry]:
    """Return the entries in rows of `VersionedState.export`. Values are not unpacked.

    Raises:
        BodyError: if a row is malformed.
    """
    return [_entry_of(row) for row in convert(tuple[_EntryRow, ...], rows)]


def _entry_of(row: _EntryRow) -> Entry:
    version = Version(row.ms, row.counter, row.node)
    life = Version(row.life_ms, row.life_counter, row.life_node)
    if life > version or (row.value is None and life != version):
        raise BodyError("an exported entry cannot be older than its key's life")
    return Entry(row.key, row.value, version, life)
