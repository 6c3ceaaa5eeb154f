"""The keyed state of one partition: the result of all that is in its log.

A group of writes is staged: evaluated, one after the other, without changing anything
(`ringpop_py.state.table.evaluator`). The result is a body for the log. Once that is committed it is
applied, here and wherever the log is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.base.values.packed import decode_value
from ringpop_py.base.values.requests import Scanned
from ringpop_py.state.locks.terms import released_in
from ringpop_py.state.table.bodies import Body, parts_of, session_after
from ringpop_py.state.table.due import DueTimes, have_instants, plain
from ringpop_py.state.table.entries import Entries, Frozen, MemoryEntries
from ringpop_py.state.table.evaluator import Evaluator
from ringpop_py.state.table.sessions import Session, Sessions, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringpop_py.base.values.operations import Value
    from ringpop_py.base.values.requests import ScanRequest
    from ringpop_py.state.table.aggregations import Aggregations
    from ringpop_py.state.table.joins import Pack

SCAN_ENTRIES_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 2 << 20
"""The most bytes in one part of a scan; the caller then asks for the next page."""
DIRTY_KEYS_MAX: Final = 1 << 20
"""If more keys have changed since the last snapshot, the next one is a whole one."""
RESTORED_BYTES: Final = 1 << 20
"""The approximate bytes of a snapshot that are written at a time."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A partition's state at one moment: whole, or the difference from an earlier snapshot.

    Attributes:
        mark: identifies this snapshot among those of the same state.
        since: None if this is the whole state; otherwise the mark of the snapshot that *entries*
            and *deleted* build upon. Sessions and offsets are always whole.
        offsets: packed.
        changes: of `ChangeLog`; empty if they were not kept.
    """

    mark: int
    since: int | None
    entries: Frozen
    deleted: tuple[str, ...]
    sessions: tuple[tuple[str, Session], ...]
    offsets: dict[str, bytes]
    changes: bytes = b""


class ChangeLog(Protocol):
    """The last changes of the state; see `ringpop_py.state.watch.recent`."""

    newest: int
    follows: bool

    def expect(self, coming: int = 0) -> None:
        """Follow so many changes, which are not of this node, and what comes next."""

    def note(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Follow what was written. Only while it *follows*; otherwise count it in *newest*."""

    def saved(self) -> bytes:
        """Return them for a snapshot."""

    def restore(self, saved: bytes) -> None:
        """Become those of a snapshot, or empty. Raises BodyError."""


class KeyedState:
    """Keys and values of a partition, and which writes made them.

    Args:
        pack: encodes a `Value` in msgpack; it raises ValueError, TypeError or OverflowError for
            anything else. Stored bytes need not be a value, as jobs put them unchecked; then only
            writes that replace the value or delete the key are accepted.
        keys_max: the most keys; None if there is no limit.
        mergeable: whether the state is merged with other copies, which may hold other keys. Then
            *entries* get each key that a group deleted, even if it was absent or was put again
            afterwards, and no snapshots are taken.
        due: made here by default, without a clock: nothing expires.
        changes: follows what is written, if it is given.

    Attributes:
        mark: of the last snapshot or restoration; the next snapshot can build upon it.
        stage: see `Evaluator.stage`; apply its body to this state.
        evaluate: see `Evaluator.evaluate`.
        refusals: see `Evaluator.refusals`.
        due: when its keys expire.
    """

    def __init__(
        self,
        pack: Pack,
        aggregations: Aggregations,
        *,
        keys_max: int | None = None,
        entries: Entries | None = None,
        mergeable: bool = False,
        due: DueTimes | None = None,
        changes: ChangeLog | None = None,
    ) -> None:
        self._entries: Entries = MemoryEntries() if entries is None else entries
        self.changes = changes
        self.due = DueTimes() if due is None else due
        self._sessions = Sessions()
        self._offsets: dict[str, bytes] = {}
        # For each changed key: the snapshot after which it changed, and whether it is deleted now.
        self._dirty: dict[str, tuple[int, bool]] = {}
        self._mergeable = mergeable
        evaluator = Evaluator(
            pack,
            aggregations,
            self._entries,
            self._sessions,
            self._offsets,
            self.due,
            keys_max,
            mergeable,
        )
        self.stage = evaluator.stage
        self.evaluate = evaluator.evaluate
        self.refusals = evaluator.refusals
        self._tracked_from = 0  # _dirty has all changes after this mark and later ones
        self.mark = 0

    # Reading.

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def failed(self) -> bool:
        """See `Entries.failed`."""
        return self._entries.failed

    @property
    def offsets(self) -> dict[str, Value]:
        """How far the input of each source is in the state."""
        return {name: decode_value("msgpack", packed) for name, packed in self._offsets.items()}

    @property
    def packed_offsets(self) -> dict[str, bytes]:
        """As `offsets`, packed."""
        return dict(self._offsets)

    @property
    def sessions(self) -> tuple[tuple[str, Session], ...]:
        """Which writes have taken effect, by source; the one that wrote longest ago is first."""
        return self._sessions.rows()

    def session(self, source: str) -> Session | None:
        """Return which writes of *source* have taken effect; None if it is unknown."""
        return self._sessions.get(source)

    def series_count(self, source: str) -> int:
        """Return how many writes of the series of *source* took effect; see `PackedWrite`."""
        session = self._sessions.get(source)
        return 0 if session is None else session[0] + 1

    def packed(self, keys: Iterable[str], *, stored: bool = False) -> list[bytes | None]:
        """Return the packed values of *keys*; None for those that are absent.

        Args:
            stored: return them as they are stored, with their instants (`at_ms_of`).
        """
        found = [self._entries.get(key) for key in keys]
        if self.due.used and not stored:
            return [None if value is None else plain(value) for value in found]
        return found

    def scan_packed(
        self, prefix: str, start: str | None, end: str | None, limit: int
    ) -> list[tuple[str, bytes]]:
        r"""Return keys with *prefix* and their packed values, from *start* on, before *end*.

        They are in the order of UTF-8, and at most *limit* and `SCAN_ENTRIES_MAX`. To continue,
        start at the last key followed by ``"\0"``.
        """
        found = self._entries.scan(prefix, start or "", end, min(limit, SCAN_ENTRIES_MAX))
        return [(key, plain(stored)) for key, stored in found] if self.due.used else found

    def page(self, request: ScanRequest) -> Scanned:
        """Return the rows that *request* wants, and whether there are more."""
        rows: list[tuple[str, bytes]] = []
        size = 0
        limit = min(request.limit, SCAN_ENTRIES_MAX - 1)  # one more tells whether more follow
        found = self.scan_packed(request.prefix, request.start, request.end, limit + 1)
        for key, packed in found[:limit]:
            size += len(key) + len(packed)
            # The first row goes in whatever its size: a page without rows would never end the scan.
            if rows and size > PAGE_BYTES_MAX:
                return Scanned(rows, more=True)
            rows.append((key, packed))
        return Scanned(rows, more=len(found) > len(rows))

    def all_packed(self, limit: int) -> tuple[list[str], list[bytes]] | None:
        """Return all keys and packed values; None as `Entries.at_most` does."""
        found = self._entries.at_most(limit)
        return (found[0], list(map(plain, found[1]))) if found and self.due.used else found

    # What is due.

    def expired(self, body: object) -> object:
        """Return *body*, which was staged, with the deletion of what is due after it.

        Raises nothing, and changes nothing; None if there is nothing to log.
        """
        due = self.due.due() if self.due.is_any_due else []
        if not due:
            return body
        assert body is None or isinstance(body, Body)
        if body is not None:  # a key that was written is due by what was written, perhaps later
            due = [key for key in due if key not in body.changed and key not in body.deleted]
            return body._replace(deleted=[*body.deleted, *due])
        return Body({}, due, {}, {})

    # Writing: what was staged is applied, after its commit.

    def apply(self, body: object) -> None:
        """Apply *body*.

        Raises:
            StateDamaged: if it is not the body of a group. Nothing was changed.
        """
        if type(body) is not Body:  # what was staged here is one
            body = self._read(body)
        changed, deleted, ids, offsets = body
        known, sessions = self._sessions.get, dict[str, Session]()
        for source, some in ids.items():  # a comprehension would be a call
            sessions[source] = session_after(known(source), some)
        self._entries.write(changed, deleted)  # nothing before this line changes the state
        if self.due.used:
            self.due.note(changed, deleted)
        if self.changes is not None:
            if self.changes.follows:
                self.changes.note(changed, deleted)
            else:  # no call, as for most writes
                self.changes.newest += len(changed) + len(deleted)
        self._sessions.update(sessions)
        if offsets:
            self._set_offsets(offsets)
        if self._mergeable:
            return
        self._dirty.update(dict.fromkeys(changed, (self.mark, False)))
        if deleted:
            self._dirty.update(dict.fromkeys(deleted, (self.mark, True)))
        if len(self._dirty) > DIRTY_KEYS_MAX:
            self._track_anew(self.mark + 1)  # a mark that no snapshot has yet

    def _set_offsets(self, offsets: Mapping[str, bytes]) -> None:
        self._offsets.update(offsets)
        for name in released_in(offsets):
            del self._offsets[name]

    def _read(self, body: object) -> Body:
        found = parts_of(body, mergeable=self._mergeable)
        self.due.used = self.due.used or have_instants(found.changed.values())
        if self.changes is not None:  # perhaps somebody watches where it was written
            self.changes.expect(len(found.changed) + len(found.deleted))
        return found

    def take_in(
        self,
        sessions: Iterable[tuple[str, Session]],
        digests: Iterable[tuple[str, bytes]],
        offsets: dict[str, bytes],
    ) -> None:
        """Add the writes that another copy of the state knows, and set packed *offsets*.

        *digests* belong to sessions that were added before; others are ignored.
        """
        for source, session in sessions:
            ours = self._sessions.get(source)
            self._sessions.update({source: joined(ours, session) if ours else session})
        for source, records in digests:
            self._sessions.add_digests(source, records)
        self._offsets.update(offsets)

    # Snapshots.

    def snapshot(self, since: int | None = None) -> Snapshot:
        """Return the present state, or its difference from the snapshot with the mark *since*.

        If that difference is no longer known, the snapshot is a whole one, and its own ``since`` is
        None. After a snapshot since a mark, or a whole one, none can be taken since an earlier
        mark. This is quick, and the snapshot may be encoded in another thread.
        """
        assert not self._mergeable, "nothing was kept for snapshots"
        self.mark += 1
        if since is None or since < self._tracked_from:
            found = self.whole()
            self._track_anew(self.mark)
            return found
        dirty = {key: row for key, row in self._dirty.items() if row[0] >= since}
        frozen = self._entries.freeze([key for key, row in dirty.items() if not row[1]])
        deleted = tuple([key for key, row in dirty.items() if row[1]])
        self._dirty, self._tracked_from = dirty, since
        return self._snapshot(since, frozen, deleted)

    def whole(self) -> Snapshot:
        """Return the whole present state. Unlike `snapshot`, this leaves no mark."""
        return self._snapshot(None, self._entries.freeze(), ())

    def _snapshot(self, since: int | None, frozen: Frozen, deleted: tuple[str, ...]) -> Snapshot:
        changes = b"" if self.changes is None else self.changes.saved()
        sessions, offsets = self._sessions.rows(), dict(self._offsets)
        return Snapshot(self.mark, since, frozen, deleted, sessions, offsets, changes)

    def reset(self) -> None:
        """Forget everything: return to the state before the first slot."""
        self._entries.clear()
        self.due.clear()
        if self.changes is not None:
            self.changes.restore(b"")
        self._sessions.replace(())
        self._offsets.clear()
        self.mark += 1
        self._track_anew(self.mark)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Become the state of *snapshots*: a whole one, then each that builds upon the one before.

        ``snapshot(since=state.mark)`` returns the later changes.
        """
        assert snapshots, "the first state has no snapshot: reset"
        assert snapshots[0].since is None
        self.reset()
        for snapshot in snapshots:
            for keys, values in snapshot.entries.pieces(RESTORED_BYTES):
                changed = dict(zip(keys, values, strict=True))
                self._entries.write(changed, ())
                if self.due.used or have_instants(values):
                    self.due.note(changed, ())
            self._entries.write({}, snapshot.deleted)
            self.due.note({}, snapshot.deleted)
        self._sessions.replace(snapshots[-1].sessions)
        self._offsets.update(snapshots[-1].offsets)
        if self.changes is not None:
            self.changes.restore(snapshots[-1].changes)

    def _track_anew(self, mark: int) -> None:
        self._dirty = {}
        self._tracked_from = mark
