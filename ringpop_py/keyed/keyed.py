"""The keyed state of one partition: what its log amounts to.

A group of writes is staged: evaluated, one after the other, without changing anything
(`ringpop_py.keyed.evaluator`). What came of it is a body for the log; once that is committed it is
applied, here and wherever the log is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.keyed.bodies import parts_of, session_after
from ringpop_py.keyed.entries import Entries, Frozen, MemoryEntries
from ringpop_py.keyed.evaluator import VALUE_BYTES_MAX, Evaluator
from ringpop_py.keyed.sessions import (
    SOURCES_MAX,
    Session,
    Sessions,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.keyed.aggregations import Aggregations
    from ringpop_py.values.operations import Value

SCAN_ENTRIES_MAX: Final = 10_000
DIRTY_KEYS_MAX: Final = 1 << 20
"""If more have changed since the last snapshot, the next one is a full one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A partition's state at one moment: whole, or what became of it since an earlier snapshot.

    Attributes:
        mark: names this snapshot among those of the same state.
        since: None if this is the whole state; else the mark of the snapshot that *entries* and
            *deleted* build upon. Sessions and offsets are always whole.
        offsets: packed.
    """

    mark: int
    since: int | None
    entries: Frozen
    deleted: tuple[str, ...]
    sessions: tuple[tuple[str, Session], ...]
    offsets: dict[str, bytes]


class KeyedState:
    """Keys and values of a partition, and which writes made them.

    *pack* turns a `Value` into bytes, or raises ValueError, TypeError or OverflowError; *unpack*
    undoes that and returns a value of its own each time, or raises BodyError: bytes that were put
    by a job need not be a value. Who writes to such a key without replacing it is refused.

    Args:
        mergeable: whether other copies of the state, which may hold what this one does not, are
            merged with it. Then *entries* learn of each key that a group deleted, also if it was
            not there, or was put again afterwards; and no snapshots are taken.

    Attributes:
        mark: of the last snapshot or restoration; what `snapshot` may build upon.
        stage: see `Evaluator.stage`; what comes of it is to be applied.
        refusals: see `Evaluator.refusals`.
    """

    def __init__(
        self,
        pack: Callable[[Value], bytes],
        unpack: Callable[[bytes], Value],
        aggregations: Aggregations,
        *,
        keys_max: int | None = None,
        value_bytes_max: int = VALUE_BYTES_MAX,
        sources_max: int = SOURCES_MAX,
        entries: Entries | None = None,
        mergeable: bool = False,
    ) -> None:
        self._unpack = unpack
        self._entries: Entries = MemoryEntries() if entries is None else entries
        self._sessions = Sessions(sources_max)
        self._offsets: dict[str, bytes] = {}
        # Which keys have changed: after which snapshot, and whether they are deleted now.
        self._dirty: dict[str, tuple[int, bool]] = {}
        self._mergeable = mergeable
        evaluator = Evaluator(
            pack,
            unpack,
            aggregations,
            (self._entries, self._sessions, self._offsets),
            (keys_max, value_bytes_max),
            mergeable=mergeable,
        )
        self.stage = evaluator.stage
        self.refusals = evaluator.refusals
        self._tracked_from = 0  # changes after this mark and later ones are all in _dirty
        self.mark = 0

    # What is read.

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def offsets(self) -> dict[str, Value]:
        """How far which source of input is in the state."""
        return {name: self._unpack(packed) for name, packed in self._offsets.items()}

    @property
    def packed_offsets(self) -> dict[str, bytes]:
        """As `offsets`, packed."""
        return dict(self._offsets)

    @property
    def sessions(self) -> tuple[tuple[str, Session], ...]:
        """Which writes have taken effect, by source; the one that wrote longest ago is first."""
        return self._sessions.rows()

    def series_count(self, source: str) -> int:
        """How many writes of the series of *source* have taken effect; see `PackedWrite`."""
        session = self._sessions.get(source)
        return 0 if session is None else session[0] + 1

    def packed(self, keys: Iterable[str]) -> list[bytes | None]:
        """The packed values of *keys*; None for those that are not there."""
        return [self._entries.get(key) for key in keys]

    def scan_packed(
        self, prefix: str, start: str | None, end: str | None, limit: int
    ) -> list[tuple[str, bytes]]:
        r"""Keys with *prefix*, from *start* on, before *end*, ordered as UTF-8, with packed values.

        At most *limit* and `SCAN_ENTRIES_MAX`. To go on, start at the last key and ``"\0"``.
        """
        return self._entries.scan(prefix, start or "", end, min(limit, SCAN_ENTRIES_MAX))

    def all_packed(self, limit: int) -> tuple[list[str], list[bytes]] | None:
        """All keys and their packed values, in any order; None if they are more than *limit*.

        Also None where `scan_packed` costs no more.
        """
        return self._entries.at_most(limit)

    # What is written: first staged, then (committed and) applied.

    def apply(self, body: object) -> None:
        """Do what *body* says.

        Raises:
            StateDamaged: if it is none of ours. Nothing was changed.
        """
        changed, deleted, ids, offsets = parts_of(body, mergeable=self._mergeable)
        known = self._sessions.get
        sessions = {source: session_after(known(source), some) for source, some in ids.items()}
        self._entries.write(changed, deleted)
        self._sessions.update(sessions)
        self._offsets.update(offsets)
        if self._mergeable:
            return
        self._dirty.update(dict.fromkeys(changed, (self.mark, False)))
        if deleted:
            self._dirty.update(dict.fromkeys(deleted, (self.mark, True)))
        if len(self._dirty) > DIRTY_KEYS_MAX:
            self._track_anew(self.mark + 1)

    def take_in(
        self,
        sessions: Iterable[tuple[str, Session]],
        digests: Iterable[tuple[str, bytes]],
        offsets: dict[str, bytes],
    ) -> None:
        """Know the writes that another copy of the state knows, and set packed *offsets*.

        The *digests* are of sessions that were taken in before; others are ignored.
        """
        for source, session in sessions:
            ours = self._sessions.get(source)
            self._sessions.update({source: joined(ours, session) if ours else session})
        for source, records in digests:
            self._sessions.add_digests(source, records)
        self._offsets.update(offsets)

    # What is kept elsewhere.

    def snapshot(self, since: int | None = None) -> Snapshot:
        """The state as it is now; what became of it *since* the snapshot of that mark, if given.

        It is a whole one (its own ``since`` is None) all the same where what has changed since
        is no longer known. Once a snapshot was taken since a mark, or a whole one, none can be
        taken since an earlier mark. It is quick, and may be encoded in another thread.
        """
        assert not self._mergeable, "nothing was kept for snapshots"
        self.mark += 1
        deleted: tuple[str, ...] = ()
        if since is None or since < self._tracked_from:
            since = None
            frozen = self._entries.freeze()
            self._track_anew(self.mark)
        else:
            dirty = {key: row for key, row in self._dirty.items() if row[0] >= since}
            frozen = self._entries.freeze([key for key, row in dirty.items() if not row[1]])
            deleted = tuple([key for key, row in dirty.items() if row[1]])
            self._dirty, self._tracked_from = dirty, since
        return Snapshot(
            self.mark, since, frozen, deleted, self._sessions.rows(), dict(self._offsets)
        )

    def whole(self) -> Snapshot:
        """The whole state as it is now. Other than `snapshot` it leaves no mark."""
        frozen = self._entries.freeze()
        return Snapshot(self.mark, None, frozen, (), self._sessions.rows(), dict(self._offsets))

    def reset(self) -> None:
        """Forget everything: the state before the first slot."""
        self._entries.clear()
        self._sessions.replace(())
        self._offsets.clear()
        self.mark += 1
        self._track_anew(self.mark)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Be what *snapshots* say: a whole one, and each one that builds upon the one before.

        What changes afterwards can be had by ``snapshot(since=state.mark)``.
        """
        assert snapshots, "the first state has no snapshot: reset"
        assert snapshots[0].since is None
        self.reset()
        for snapshot in snapshots:
            for keys, values in snapshot.entries.pieces(RESTORED_BYTES):
                self._entries.write(dict(zip(keys, values, strict=True)), ())
            self._entries.write({}, snapshot.deleted)
        self._sessions.replace(snapshots[-1].sessions)
        self._offsets.update(snapshots[-1].offsets)

    def _track_anew(self, mark: int) -> None:
        self._dirty = {}
        self._tracked_from = mark


RESTORED_BYTES: Final = 1 << 20
"""Written at a time."""
