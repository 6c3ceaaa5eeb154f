"""The state of one partition in memory mode: keyed state whose copies can be made one.

Writes are evaluated as they are where a log is kept (`ringpop_py.keyed.keyed`), and take
effect at once. A copy is brought to another node in parts of a bounded size: entries, which writes
they hold (so that a repeated one is known there), and offsets. Of two offsets of one source of
input the greater is kept.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from ringpop_py.errors import BodyError
from ringpop_py.keyed.joins import join_of
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.keyed.sessions import WINDOW, Session, are_digests
from ringpop_py.keyed.versioned import (
    PIECE_BYTES,
    HybridClock,
    VersionedState,
    entries_from_rows,
)
from ringpop_py.values.declared import Declared, Meta, Natural, convert
from ringpop_py.values.operations import SourceName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ringpop_py.errors import KeyspaceError
    from ringpop_py.keyed.aggregations import Aggregations
    from ringpop_py.keyed.entries import FrozenEntries
    from ringpop_py.keyed.joins import Pack, Rule, Unpack
    from ringpop_py.keyed.versioned import Entry
    from ringpop_py.values.operations import Outcome, Write

SESSIONS_A_PART: Final = 1_000
OFFSETS_A_PART: Final = 200
"""Of the largest that there can be, both come to about a megabyte."""


class Part(NamedTuple):
    """A part of a copy, as plain values for the wire.

    Attributes:
        sessions: ``[source, highest sequence, bits of what is missing before it]`` each.
        offsets: packed.
        digests: ``[source, digests of its session]`` each, after the part with the session.
    """

    entries: list[list[Any]]
    sessions: list[list[Any]]
    offsets: dict[str, bytes]
    digests: list[list[Any]]


class MergeableState:
    """See the module. *pack*, *unpack* and *clock* as in `VersionedState`.

    Attributes:
        keyed: what is read. Nobody else writes to it.
    """

    def __init__(
        self,
        clock: HybridClock,
        pack: Pack,
        unpack: Unpack,
        aggregations: Aggregations,
        *,
        keys_max: int | None = None,
    ) -> None:
        self._versions = VersionedState(clock, pack, unpack)
        self._entries = VersionedEntries(self._versions)
        self._later_offset = join_of("max", pack, unpack)
        self.keyed = KeyedState(
            pack, unpack, aggregations, keys_max=keys_max, entries=self._entries, mergeable=True
        )

    @property
    def empty(self) -> bool:
        """Whether another copy could learn nothing from this one."""
        known = self.keyed.sessions or self.keyed.packed_offsets
        return not known and self._versions.knows_nothing

    @property
    def forgotten_count(self) -> int:
        """How many deletes were forgotten before their time; see `VersionedState`."""
        return self._versions.forgotten_count

    def write(self, writes: Sequence[Write], now_ms: int) -> list[Outcome | KeyspaceError]:
        """Have *writes* take effect, one after the other, and say what became of each."""
        body, outcomes = self.keyed.stage(writes)
        if body is not None:
            self._entries.now_ms = now_ms
            self.keyed.apply(body)
        return outcomes

    def collect(self, now_ms: int) -> int:
        """Forget deletes that are old enough; how many."""
        return self._versions.collect(now_ms)

    # Copies.

    def parts(self, now_ms: int, *, part_bytes: int = PIECE_BYTES) -> Iterator[Part]:
        """The state, in parts; one at least. Nothing may be written until the last was taken."""
        sessions = (_session_row(row) for row in self.keyed.sessions)
        while some := list(islice(sessions, SESSIONS_A_PART)):
            yield Part([], some, {}, [])
        for some in _digest_rows(self.keyed.sessions, part_bytes):
            yield Part([], [], {}, some)
        offsets = iter(self.keyed.packed_offsets.items())
        while some_offsets := dict(islice(offsets, OFFSETS_A_PART)):
            yield Part([], [], some_offsets, [])
        after: str | None = None
        while True:
            rows, after = self._versions.export(now_ms, after, piece_bytes=part_bytes)
            yield Part(rows, [], {}, [])
            if after is None:
                return

    def merge(self, content: Content, rule: Rule, now_ms: int, *, transfer: str) -> list[str]:
        """Take in a part of another copy; the keys of which something changed here.

        Args:
            rule: see `ringpop_py.keyed.joins.join_of`. If it raises, nothing has changed.
            transfer: names the part, which may come twice.

        Raises:
            ConfigError: no rule has that name.
        """
        changed = self._versions.merge(content.entries, rule, now_ms, transfer=transfer)
        ours = self.keyed.packed_offsets
        later = self._later_offset
        offsets = {
            name: later(ours[name], offset) if name in ours else offset
            for name, offset in content.offsets.items()
        }
        self.keyed.take_in(content.sessions, content.digests, offsets)
        return changed


class VersionedEntries:
    """The `Entries` of keyed state, kept with their versions.

    Attributes:
        now_ms: the time of what is written next.
    """

    def __init__(self, versions: VersionedState) -> None:
        self.now_ms = 0
        self._versions = versions
        self.get = versions.get

    def __len__(self) -> int:
        return len(self._versions)

    def write(self, changed: Mapping[str, bytes], deleted: Iterable[str]) -> None:
        """Delete *deleted*, then set *changed*; a key can be in both."""
        for key in deleted:
            self._versions.delete(key, self.now_ms)
        for key, packed in changed.items():
            self._versions.put(key, packed, self.now_ms)

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """In the order of code points, which is the one of UTF-8."""
        return self._versions.scan(prefix, start, end, limit)

    def at_most(self, limit: int) -> None:
        """See `ringpop_py.keyed.entries.Entries`."""

    def clear(self) -> None:
        """Not for these: a copy is given up as a whole."""
        raise NotImplementedError

    def freeze(self, keys: Sequence[str] | None = None) -> FrozenEntries:
        """Not for these: there is no checkpoint of them."""
        raise NotImplementedError


class Content(NamedTuple):
    """What is in a `Part`, checked."""

    entries: list[Entry]
    sessions: list[tuple[str, Session]]
    offsets: dict[str, bytes]
    digests: list[tuple[str, bytes]]


class _SessionRow(Declared, frozen=True):
    source: SourceName
    highest: Natural
    missing: Annotated[bytes, Meta(max_length=WINDOW // 8)]


def content_of(
    entries: Sequence[object],
    sessions: Sequence[object],
    offsets: dict[str, bytes],
    digests: Sequence[object] = (),
) -> Content:
    """The content of a `Part` that somebody sent; without *digests*, of the first version.

    Raises:
        BodyError: it is not a part.
    """
    digest_rows = convert(tuple[tuple[str, bytes], ...], digests)
    if not all(are_digests(records) for _, records in digest_rows):
        raise BodyError("the digests of a session are whole records")
    return Content(
        entries_from_rows(entries),
        [
            (row.source, (row.highest, int.from_bytes(row.missing, "big"), b""))
            for row in convert(tuple[_SessionRow, ...], sessions)
        ],
        offsets,
        list(digest_rows),
    )


def _session_row(row: tuple[str, Session]) -> list[Any]:
    source, (highest, missing, _) = row
    return [source, highest, missing.to_bytes((missing.bit_length() + 7) // 8, "big")]


def _digest_rows(
    sessions: Iterable[tuple[str, Session]], bytes_max: int
) -> Iterator[list[list[Any]]]:
    """The digests of those *sessions* that have any, in lists of about *bytes_max*."""
    rows: list[list[Any]] = []
    size = 0
    for source, (_, _, digests) in sessions:
        if not digests:
            continue
        rows.append([source, digests])
        size += len(source) + len(digests)
        if size >= bytes_max:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows
