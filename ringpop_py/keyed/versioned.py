"""Keyed state without a store: every value has a version, and two copies can be made one.

This is the state of a partition of a keyspace in ``memory`` mode. Nothing outlives the nodes, and
both sides of a cut go on serving. What can be lost, in plain words:

- Everything that a node held, when it dies before it has handed it on.
- With ``last_writer_wins``: of two writes to one key on two sides of a cut, the one with the
  earlier clock, though both were acknowledged. Clocks are hybrid, so a write that its writer made
  after seeing another is later; of writes that did not know of each other, the clocks decide.
- With the other rules: nothing that was put on two sides, but a write that *lessens* (a smaller
  number under ``max``, a shorter list under ``union``) is undone when an older copy is merged. They
  are for values that only grow.
- With the other rules, a delete wins over what was put on the other side without knowing of it;
  what is put after the delete was known begins anew.
- A delete is remembered for a while only (`TOMBSTONE_AGE_MS`). A copy that was away for longer
  brings the key back, and its value may win over one that was put since. So does any copy that did
  not know of a delete, after so many later deletes that this one was forgotten (`TOMBSTONES_MAX`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sortedcontainers import SortedDict

from ringpop_py.errors import BodyError, PartitionFull
from ringpop_py.keyed.joins import LAST_WRITER_WINS, join_of
from ringpop_py.values.declared import Declared, Natural, Text, convert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.keyed.joins import Join, Pack, Rule, Unpack

TOMBSTONE_AGE_MS: Final = 24 * 3600 * 1000
TOMBSTONES_MAX: Final = 65_536
"""Deletes that a partition remembers; beyond it the one that was learnt longest ago is forgotten.
About 300 bytes each, besides the key."""
TRANSFERS_MAX: Final = 4_096
"""Ids of transfers that are remembered, so that one sent again is known for one."""
SCAN_ENTRIES_MAX: Final = 10_000
PIECE_BYTES: Final = 1 << 20
_ROW_BYTES: Final = 64
"""About what a row takes besides its key and value."""


class Version(NamedTuple):
    """When a value was written, by a hybrid clock; versions are ordered, and each is used once."""

    ms: int
    counter: int
    node: str


NEVER: Final = Version(0, 0, "")


class HybridClock:
    """Gives versions that are near to the time, and always later than those seen before.

    One is shared by all the partitions of a node. Clocks that are far ahead do no harm but to make
    the others count on from them.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._last = (0, 0)

    def tick(self, now_ms: int) -> Version:
        """The version of something written now."""
        ms, counter = self._last
        self._last = (now_ms, 0) if now_ms > ms else (ms, counter + 1)
        return Version(*self._last, self._node)

    def saw(self, version: Version) -> None:
        """What is written from now on is later than *version*."""
        self._last = max(self._last, version[:2])


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a key.

    Attributes:
        value: packed; None: the key was deleted then.
        life: the version of the last delete that the writer knew of. What belongs to a later life
            of its key takes the place of all that belongs to earlier ones.
    """

    key: str
    value: bytes | None
    version: Version
    life: Version = NEVER

    @property
    def _order(self) -> tuple[Version, bool, bytes, Version]:
        return self.version, self.value is not None, self.value or b"", self.life


class Piece(NamedTuple):
    """A bounded part of an export.

    Attributes:
        rows: plain lists for the wire; see `entries_from_rows`.
        last: pass it as *after* for the next piece; None: this was the last one.
    """

    rows: list[list[Any]]
    last: str | None


class VersionedState:
    """Keys and packed values of one partition, each with its version.

    *pack* and *unpack* make a value into bytes and back; equal values must give equal bytes.

    Args:
        clock: the node's.
        keys_max: how many keys there may be; merging goes over it rather than lose any.
        tombstones_max: how many deletes are remembered.

    Attributes:
        forgotten_count: deletes that were forgotten before their time, to make room for later ones.
    """

    def __init__(
        self,
        clock: HybridClock,
        pack: Pack,
        unpack: Unpack,
        *,
        keys_max: int | None = None,
        tombstones_max: int = TOMBSTONES_MAX,
    ) -> None:
        self.forgotten_count = 0
        self._clock = clock
        self._pack = pack
        self._unpack = unpack
        self._keys_max = keys_max
        self._tombstones_max = tombstones_max
        self._entries: SortedDict[str, Entry] = SortedDict()
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._transfers: OrderedDict[str, None] = OrderedDict()

    # -- one key ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many keys have a value."""
        return len(self._entries) - len(self._tombstones)

    @property
    def knows_nothing(self) -> bool:
        """It has no keys, and remembers no deletes."""
        return not self._entries

    def get(self, key: str) -> bytes | None:
        """The packed value of *key*; None if it has none."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def put(self, key: str, packed: bytes, now_ms: int) -> Entry:
        """Have *key* hold that value. What is known of it now.

        Raises:
            PartitionFull: it would be one key too many. Nothing was changed.
        """
        before = self._entries.get(key)
        is_new = before is None or before.value is None
        if is_new and self._keys_max is not None and len(self) >= self._keys_max:
            raise PartitionFull(f"the partition has its maximum of {self._keys_max} keys")
        life = before.life if before else NEVER
        return self._set(Entry(key, packed, self._clock.tick(now_ms), life))

    def delete(self, key: str, now_ms: int) -> Entry:
        """Have *key* hold nothing. The tombstone.

        There is one as well if *key* held nothing before: the other side of a cut may have a value
        of it, which is older than this delete.
        """
        version = self._clock.tick(now_ms)
        return self._set(Entry(key, None, version, life=version))

    def scan(
        self,
        prefix: str = "",
        start: str = "",
        end: str | None = None,
        limit: int = SCAN_ENTRIES_MAX,
    ) -> list[tuple[str, bytes]]:
        r"""Keys with *prefix*, from *start* on, before *end*, in order, with their packed values.

        At most *limit* and `SCAN_ENTRIES_MAX`. To go on, start at the last key and ``"\0"``.
        """
        found: list[tuple[str, bytes]] = []
        for key in self._entries.irange(minimum=max(prefix, start)):
            past = not key.startswith(prefix) or (end is not None and key >= end)
            if past or len(found) >= min(limit, SCAN_ENTRIES_MAX):
                break
            value = self._entries[key].value
            if value is not None:
                found.append((key, value))
        return found

    def _set(self, entry: Entry) -> Entry:
        self._entries[entry.key] = entry
        self._tombstones.pop(entry.key, None)
        if entry.value is None:
            self._tombstones[entry.key] = None  # as the last one
            if len(self._tombstones) > self._tombstones_max:
                self._forget_oldest()
        return entry

    def _forget_oldest(self) -> None:
        key, _ = self._tombstones.popitem(last=False)
        del self._entries[key]
        self.forgotten_count += 1

    # -- copies ----------------------------------------------------------------------------

    def export(
        self, now_ms: int, after: str | None = None, *, piece_bytes: int = PIECE_BYTES
    ) -> Piece:
        """What is known of the keys behind *after*, in their order, tombstones included.

        A piece has one row at least, and ends with the row that brings it to *piece_bytes*. What
        changes behind the caller's back is in a later piece, or in none if its place is passed.
        """
        assert piece_bytes > 0
        rows: list[list[Any]] = []
        size = 0
        for key in self._entries.irange(minimum=after, inclusive=(after is None, True)):
            if size >= piece_bytes:
                return Piece(rows, rows[-1][0])
            entry = self._entries[key]
            if not _is_expired(entry, now_ms):
                rows.append(_row_of(entry))
                size += len(key) + len(entry.value or b"") + _ROW_BYTES
        return Piece(rows, None)

    def merge(
        self, entries: Iterable[Entry], rule: Rule, now_ms: int, *, transfer: str = ""
    ) -> list[str]:
        """Take in what another copy knows; the keys of which something changed here.

        If *rule*, or unpacking a value, raises, nothing was changed.

        Args:
            rule: see `ringpop_py.keyed.joins.join_of`. Copies that merge each other's
                entries with one named rule become equal, in whatever order and however often.
            transfer: names what is sent, if it could be sent again: entries of a transfer that
                was merged already are ignored. So many later ones make it be forgotten
                (`TRANSFERS_MAX`), which does no harm with the named rules.

        Raises:
            ConfigError: no rule has that name.
        """
        if transfer and transfer in self._transfers:
            return []
        join = entry_join(rule, self._pack, self._unpack)
        joined: dict[str, Entry] = {}
        theirs = [entry for entry in entries if not _is_expired(entry, now_ms)]
        for entry in theirs:
            ours = joined.get(entry.key) or self._entries.get(entry.key)
            joined[entry.key] = join(ours, entry) if ours else entry
        changed = [entry for entry in joined.values() if entry != self._entries.get(entry.key)]
        for entry in theirs:
            self._clock.saw(entry.version)
        for entry in changed:
            self._set(entry)
        self._remember(transfer)
        return [entry.key for entry in changed]

    def _remember(self, transfer: str) -> None:
        if transfer:
            self._transfers[transfer] = None
            if len(self._transfers) > TRANSFERS_MAX:
                self._transfers.popitem(last=False)

    def collect(self, now_ms: int) -> int:
        """Forget deletes that are old enough; how many."""
        expired = [key for key in self._tombstones if _is_expired(self._entries[key], now_ms)]
        for key in expired:
            del self._entries[key], self._tombstones[key]
        return len(expired)


def entry_join(rule: Rule, pack: Pack, unpack: Unpack) -> Callable[[Entry, Entry], Entry]:
    """How *rule* makes one entry of two of the same key.

    Raises:
        ConfigError: no rule has that name.
    """
    join = join_of(rule, pack, unpack)
    if rule == LAST_WRITER_WINS:
        return lambda one, other: max(one, other, key=lambda entry: entry._order)  # noqa: SLF001
    return lambda one, other: _joined(one, other, join)


def _joined(one: Entry, other: Entry, join: Join) -> Entry:
    # A later life takes the place of earlier ones as a whole. Were the versions of a tombstone and
    # of a joined value compared instead, it would matter which were joined first.
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
    """It is a delete that need not be remembered any more."""
    return entry.value is None and now_ms - entry.version.ms > TOMBSTONE_AGE_MS


# -- entries as plain lists ----------------------------------------------------------------


class _EntryRow(Declared, frozen=True):
    key: str
    value: bytes | None
    ms: Natural
    counter: Natural
    node: Text
    life_ms: Natural = 0
    life_counter: Natural = 0
    life_node: Text = ""


def _row_of(entry: Entry) -> list[Any]:
    life = entry.life if entry.life != NEVER else ()
    return [entry.key, entry.value, *entry.version, *life]


def entries_from_rows(rows: Sequence[object]) -> list[Entry]:
    """The entries behind the rows of a `Piece`. Values are not unpacked to see whether they can be.

    Raises:
        BodyError: one of them is no such row.
    """
    return [_entry_of(row) for row in convert(tuple[_EntryRow, ...], rows)]


def _entry_of(row: _EntryRow) -> Entry:
    version = Version(row.ms, row.counter, row.node)
    life = Version(row.life_ms, row.life_counter, row.life_node)
    if life > version or (row.value is None and life != version):
        raise BodyError("an exported entry cannot be older than its key's life")
    return Entry(row.key, row.value, version, life)
