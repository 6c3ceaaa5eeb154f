"""The state of one partition in memory mode: keyed state whose copies can be merged.

Writes are evaluated as in a partition with a log (`ringpop_py.state.table.keyed`), and take effect
immediately. A copy is sent to another node in parts of a bounded size: entries, the ids of writes
(so that a repeated one is recognized there), and offsets. Of two offsets of one source of input the
greater is kept.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import Declared, Meta, Natural, convert
from ringpop_py.base.values.operations import SourceName
from ringpop_py.state.memory.versioned import (
    PIECE_BYTES,
    HybridClock,
    VersionedState,
    entries_from_rows,
    row_bytes,
)
from ringpop_py.state.table.due import have_instants
from ringpop_py.state.table.joins import join_of
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.table.sessions import WINDOW, Session, are_digests, record_of, records_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.base.values.operations import Outcome, Write
    from ringpop_py.state.copies.log import CopyLog
    from ringpop_py.state.memory.versioned import Entry
    from ringpop_py.state.table.aggregations import Aggregations
    from ringpop_py.state.table.bodies import Ids
    from ringpop_py.state.table.due import DueTimes
    from ringpop_py.state.table.joins import Pack, Rule

SESSIONS_A_PART: Final = 1_000
OFFSETS_A_PART: Final = 200
"""With these, a part of the largest possible sessions or offsets has about a megabyte."""


class Part(NamedTuple):
    """A part of a copy, as plain values for the wire.

    Attributes:
        sessions: ``[source, highest sequence, bits of what is missing before it]`` each.
        offsets: packed.
        digests: ``[source, digests of its session]`` each, in a part after that of the session.
    """

    entries: list[list[Any]]
    sessions: list[list[Any]]
    offsets: dict[str, bytes]
    digests: list[list[Any]]


class MergeableState:
    """See the module. Arguments are as in `VersionedState` and `KeyedState`.

    Attributes:
        keyed: for reading only.
        log: what has changed, for the copies at other members; None if no other has one.
    """

    log: CopyLog | None = None

    def __init__(
        self,
        clock: HybridClock,
        pack: Pack,
        aggregations: Aggregations,
        due: DueTimes | None = None,
        *,
        keys_max: int | None = None,
    ) -> None:
        self.versions = VersionedState(clock, pack)
        self._later_offset = join_of("max", pack)
        self.keyed = KeyedState(
            pack, aggregations, keys_max=keys_max, entries=self.versions, mergeable=True, due=due
        )

    @property
    def empty(self) -> bool:
        """Whether another copy could learn nothing from this one."""
        known = self.keyed.sessions or self.keyed.packed_offsets
        return not known and self.versions.knows_nothing

    def write(self, writes: Sequence[Write], now_ms: int) -> list[Outcome | KeyspaceError]:
        """Apply *writes*, one after the other, and return their outcomes."""
        body, outcomes = self.keyed.stage(writes)
        if body is not None:
            self.versions.now_ms = now_ms
            self.keyed.apply(body)
            if self.log is not None:
                records = _records_in(body.ids)
                self.log.note([*body.changed, *body.deleted], body.ids, records, body.offsets)
        return outcomes

    def expire(self) -> bool:
        """Have keys that are due expire, at most `PIECE_KEYS`, and return true."""
        due = self.keyed.due.due()
        for key in due:
            self.versions.expire(key)
        self.keyed.due.note({}, due)
        if self.log is not None and due:
            self.log.note(due)
        return True

    # Copies.

    def parts(self, now_ms: int, *, part_bytes: int = PIECE_BYTES) -> Iterator[Part]:
        """Yield the state in one or more parts. Write nothing until the last one was taken."""
        sessions = (_session_row(source, session) for source, session in self.keyed.sessions)
        while some := list(islice(sessions, SESSIONS_A_PART)):
            yield Part([], some, {}, [])
        # After the sessions: the receiver ignores digests of sources that it does not know.
        for some in _digest_rows(self.keyed.sessions, part_bytes):
            yield Part([], [], {}, some)
        offsets = iter(self.keyed.packed_offsets.items())
        while some_offsets := dict(islice(offsets, OFFSETS_A_PART)):
            yield Part([], [], some_offsets, [])
        after: str | None = None
        while True:
            rows, after = self.versions.export(now_ms, after, piece_bytes=part_bytes)
            yield Part(rows, [], {}, [])
            if after is None:
                return

    def parts_since(
        self, log: CopyLog, count: int, *, part_bytes: int = PIECE_BYTES
    ) -> Iterator[Part]:
        """Yield, in one or more parts, what has changed after *count* of *log*, as it is now."""
        lacks, find = log.since(count), self.keyed.session
        known = ((source, find(source)) for source in lacks.sources)
        sessions = [_session_row(source, session) for source, session in known if session]
        while len(sessions) > SESSIONS_A_PART:
            yield Part([], sessions[:SESSIONS_A_PART], {}, [])
            del sessions[:SESSIONS_A_PART]
        packed = self.keyed.packed_offsets if lacks.offsets else {}
        offsets = {name: packed[name] for name in lacks.offsets if name in packed}
        digests = [[source, record] for source, record in lacks.records]
        rows: list[list[Any]] = []
        size = 0
        for row in self.versions.rows_of(lacks.keys):
            rows.append(row)
            size += row_bytes(row)
            if size >= part_bytes:
                yield Part(rows, sessions, offsets, digests)
                rows, size, sessions, offsets, digests = [], 0, [], {}, []
        yield Part(rows, sessions, offsets, digests)

    def merge(self, content: Content, rule: Rule, now_ms: int, *, transfer: str) -> None:
        """Merge a part of another copy; *rule* and *transfer* are as in `VersionedState.merge`.

        Raises:
            ConfigError: if no rule has that name.
        """
        changed = self.versions.merge(content.entries, rule, now_ms, transfer=transfer)
        values = {key: self.versions.get(key) for key in changed}
        there = {key: value for key, value in values.items() if value is not None}
        if self.keyed.due.used or have_instants(there.values()):
            self.keyed.due.note(there, values.keys() - there.keys())
        ours, later = self.keyed.packed_offsets, self._later_offset
        offsets = {
            name: later(ours[name], offset) if name in ours else offset
            for name, offset in content.offsets.items()
        }
        self.keyed.take_in(content.sessions, content.digests, offsets)
        if self.log is not None:
            records = [
                (source, record)
                for source, digests in content.digests
                for record in records_in(digests)
            ]
            self.log.note(changed, dict(content.sessions), records, offsets)


def _records_in(ids: dict[str, Ids]) -> list[tuple[str, bytes]]:
    """Return the records with digests among the *ids* of a group, each with its source."""
    return [
        (source, record_of(sequence, digest))
        for source, some in ids.items()
        for sequence, digest in pairwise(some)
        if isinstance(sequence, int) and isinstance(digest, bytes)
    ]


def _session_row(source: str, session: Session) -> list[Any]:
    highest, missing, _ = session
    return [source, highest, missing.to_bytes((missing.bit_length() + 7) // 8, "big")]


class Content(NamedTuple):
    """The content of a `Part`, checked."""

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
    """Return the content of a `Part` from a peer.

    Raises:
        BodyError: if it is not a part.
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


def _digest_rows(
    sessions: Iterable[tuple[str, Session]], bytes_max: int
) -> Iterator[list[list[Any]]]:
    """Yield the digests of those *sessions* that have any, in lists of about *bytes_max*."""
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
