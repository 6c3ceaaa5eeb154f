"""The keyed state of one partition: what its log amounts to.

A group of writes is staged: evaluated, one after the other, without changing anything. What came
of it is a body for the log; once that is committed it is applied, here and wherever the log is
replayed. The body holds values, packed, not operations, so applying needs no aggregation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from ringpop_py.errors import (
    BadOperation,
    BodyError,
    KeyspaceError,
    OperationIdReused,
    PartitionFull,
)
from ringpop_py.keyed.aggregations import ABSENT, SCALARS, Absent, check_value
from ringpop_py.keyed.bodies import Group, is_digest, parts_of, session_after
from ringpop_py.keyed.entries import Entries, Frozen, MemoryEntries
from ringpop_py.keyed.sessions import (
    SEQUENCE_MAX,
    SOURCES_MAX,
    Session,
    Sessions,
    after,
    check_id,
    digest_in,
    joined,
)
from ringpop_py.values.operations import (
    DIGEST_BYTES,
    Change,
    Outcome,
    PackedWrite,
    Value,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.keyed.aggregations import Aggregations
    from ringpop_py.keyed.bodies import Body

KEY_BYTES_MAX: Final = 1_024
VALUE_BYTES_MAX: Final = 1 << 20
CHANGES_MAX: Final = 65_536
"""Of one write."""
OFFSETS_MAX: Final = 4_096
"""Sources of input whose offsets are kept."""
OFFSET_BYTES_MAX: Final = 4_096
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
        self._pack = pack
        self._unpack = unpack
        self._aggregations = aggregations
        self._keys_max = keys_max
        self._value_bytes_max = value_bytes_max
        self._entries: Entries = MemoryEntries() if entries is None else entries
        self._sessions = Sessions(sources_max)
        self._offsets: dict[str, bytes] = {}
        # Which keys have changed: after which snapshot, and whether they are deleted now.
        self._dirty: dict[str, tuple[int, bool]] = {}
        self._mergeable = mergeable
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

    def get(self, key: str) -> Value | Absent:
        """The value of *key*, as the caller's own; so here, raises BadOperation if it is none."""
        packed = self._entries.get(key)
        return ABSENT if packed is None else self._value_of(key, packed)

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of those of *keys* that are there."""
        found = ((key, self._entries.get(key)) for key in keys)
        return {key: self._value_of(key, packed) for key, packed in found if packed is not None}

    def packed(self, keys: Iterable[str]) -> list[bytes | None]:
        """The packed values of *keys*; None for those that are not there."""
        return [self._entries.get(key) for key in keys]

    def scan_packed(
        self, prefix: str, start: str | None, end: str | None, limit: int
    ) -> list[tuple[str, bytes]]:
        """As `scan`, with packed values."""
        return self._entries.scan(prefix, start or "", end, min(limit, SCAN_ENTRIES_MAX))

    def all_packed(self, limit: int) -> tuple[list[str], list[bytes]] | None:
        """All keys and their packed values, in any order; None if they are more than *limit*.

        Also None where `scan_packed` costs no more.
        """
        return self._entries.at_most(limit)

    def scan(
        self,
        prefix: str = "",
        start: str | None = None,
        end: str | None = None,
        limit: int = SCAN_ENTRIES_MAX,
    ) -> list[tuple[str, Value]]:
        r"""Keys with *prefix*, from *start* on, before *end*, ordered as UTF-8, with their values.

        At most *limit* and `SCAN_ENTRIES_MAX`. To go on, start at the last key and ``"\0"``.
        """
        found = self.scan_packed(prefix, start, end, limit)
        return [(key, self._value_of(key, packed)) for key, packed in found]

    # What is written: first staged, then (committed and) applied.

    def stage(
        self, writes: Sequence[Write | PackedWrite]
    ) -> tuple[Body | None, list[Outcome | KeyspaceError]]:
        """What *writes* do, one after the other: a body for the log, and what became of each.

        Nothing changes: the outcomes hold once the body was applied to the state as it is now. A
        write that is refused has its error for an outcome, and leaves no trace. Without a body
        there is nothing to be logged.
        """
        group = Group()
        outcomes: list[Outcome | KeyspaceError] = []
        for write in writes:
            try:
                outcomes.append(self._stage_write(write, group))
            except KeyspaceError as error:
                outcomes.append(error)
            except (TypeError, ValueError, AttributeError) as error:
                # A name that is no text, perhaps. It has left no trace, and is of this write alone.
                message = f"the write makes no sense: {type(error).__name__}: {error}"
                outcomes.append(BadOperation(message))
        return (group.body(mergeable=self._mergeable) if group.ids else None), outcomes

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

    def _stage_write(self, write: Write | PackedWrite, group: Group) -> Outcome:
        source, sequence = write.id
        before = group.sessions.get(source) or self._sessions.get(source)
        if before is None or type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MAX:
            check_id(source, sequence)
        session = after(before, sequence)
        changed: dict[str, bytes | None] = {}
        deleted: list[str] = []
        values: list[Value]
        if isinstance(write, PackedWrite):
            if session is None:
                return Outcome((), repeated=True)
            _check_turn(before, sequence)
            values, growth = [], self._evaluate_packed(write, group, changed, deleted)
            offsets, digest = None, b""
        else:
            if session is None:
                self._check_same(write, group)
                return self._repeated(write, group)
            if write.digest and not is_digest(write.digest):
                message = f"the digest of a write has {DIGEST_BYTES} bytes"
                raise BadOperation(message)
            values, growth = self._evaluate(write.changes, group, changed, deleted)
            offsets = self._packed_offsets(write, group) if write.offsets else None
            digest = write.digest
        # It can no longer be refused.
        group.changed.update(changed)
        if deleted:
            group.deleted.update(dict.fromkeys(deleted))
        group.growth += growth
        group.sessions[source] = session
        if source in group.ids:
            group.ids[source].append(sequence)
        else:
            group.ids[source] = [sequence]
        if digest:
            group.ids[source].append(digest)
        if offsets:
            group.offsets.update(offsets)
        return Outcome(tuple(values))

    def _evaluate(
        self,
        changes: Sequence[Change],
        group: Group,
        changed: dict[str, bytes | None],
        deleted: list[str],
    ) -> tuple[list[Value], int]:
        """Put into *changed* and *deleted* what *changes* do.

        Return the new values, and by how many keys there are more.
        """
        _check_count(changes)
        values: list[Value] = []
        growth = 0
        # One look-up each, a million times a second.
        before, get_packed, get_aggregation = (
            group.changed,
            self._entries.get,
            self._aggregations.get,
        )
        for key, name, argument in changes:
            if key in changed:
                packed = changed[key]
            elif key in before:
                packed = before[key]
            else:
                packed = get_packed(key)
            if packed is None:  # a delete is of a key, too: other copies learn of it
                _check_text(key, "a key", KEY_BYTES_MAX)
            function, reads = get_aggregation(name) or self._aggregations.find(name)
            if type(argument) not in SCALARS:
                check_value(argument)
            there = self._value_of(key, packed) if reads and packed is not None else ABSENT
            value = function(there, argument)
            if value is ABSENT:
                values.append(None)
                if packed is not None:
                    growth -= 1
                elif reads or not self._mergeable:  # there is nothing to delete
                    continue
                changed[key] = None
                deleted.append(key)
                continue
            if packed is None:
                growth += 1
                self._check_room(group.growth + growth)
            changed[key] = self._packed(value, self._value_bytes_max)
            values.append(value)
        return values, growth

    def _evaluate_packed(
        self,
        write: PackedWrite,
        group: Group,
        changed: dict[str, bytes | None],
        deleted: list[str],
    ) -> int:
        """Put into *changed* and *deleted* what *write* does.

        Return by how many keys there are more, if that counts.
        """
        _check_count(write.keys)
        _check_keys(write.keys)
        if write.aggregation != "put":
            return self._aggregate(write, group, changed, deleted)
        # No look at each row by itself: there are millions.
        keys, values = write.keys, cast("Sequence[bytes]", write.arguments)
        if max(map(len, values), default=0) > self._value_bytes_max:
            message = f"a value has at most {self._value_bytes_max} bytes when packed"
            raise BadOperation(message)
        changed.update(zip(keys, values, strict=True))
        if self._keys_max is None:
            return 0
        before, get = group.changed, self._entries.get
        growth = sum((before[key] if key in before else get(key)) is None for key in changed)
        self._check_room(group.growth + growth)
        return growth

    def _aggregate(
        self,
        write: PackedWrite,
        group: Group,
        changed: dict[str, bytes | None],
        deleted: list[str],
    ) -> int:
        """As `_evaluate`, for changes of one kind whose keys were looked at, and less for each."""
        if not write.keys:  # not even the aggregation need be known
            return 0
        function, reads = self._aggregations.find(write.aggregation)
        before, get_packed = group.changed, self._entries.get
        growth, is_bounded = 0, self._keys_max is not None
        for key, argument in zip(write.keys, write.arguments, strict=True):
            if key in changed:
                packed = changed[key]
            elif key in before:
                packed = before[key]
            else:
                packed = get_packed(key)
            if type(argument) not in SCALARS:
                check_value(argument)
            there = self._value_of(key, packed) if reads and packed is not None else ABSENT
            value = function(there, argument)
            if value is not ABSENT:
                if packed is None:
                    growth += 1
                    if is_bounded:
                        self._check_room(group.growth + growth)
                changed[key] = self._packed(value, self._value_bytes_max)
            elif packed is not None:
                changed[key] = None
                deleted.append(key)
                growth -= 1
        return growth

    def refusals(self, write: PackedWrite) -> dict[int, KeyspaceError]:
        """Which of its changes would have *write* refused as the state is now, by their places.

        Without them the same write would take effect.
        """
        group = Group()
        refused: dict[int, KeyspaceError] = {}
        packed = write.aggregation == "put"
        for place, change in enumerate(_changes_of(write)):
            key, name, argument = change
            changed: dict[str, bytes | None] = {}
            try:
                if packed:
                    argument = self._value_of(key, cast(bytes, argument))
                _, growth = self._evaluate([Change(key, name, argument)], group, changed, [])
            except KeyspaceError as error:
                refused[place] = error
            else:
                group.changed.update(changed)
                group.growth += growth
        return refused

    def _check_same(self, write: Write, group: Group) -> None:
        """See that *write*, which took effect before, is what it was, as far as is known.

        Raises:
            OperationIdReused: if it is not.
        """
        source, sequence = write.id
        session = self._sessions.get(source)
        known = group.digest_of(write.id) or (digest_in(session[2], sequence) if session else b"")
        if known and write.digest and known != write.digest:
            number = f" and sequence {sequence}" if sequence else ""
            message = (
                f"operation id {source!r}{number} was used before, for a write to this partition "
                "that did something else; use a new id for each write"
            )
            raise OperationIdReused(message)

    def _repeated(self, write: Write, group: Group) -> Outcome:
        values: list[Value] = []
        for key, _, _ in write.changes:
            before = group.changed
            packed = before[key] if key in before else self._entries.get(key)
            try:
                values.append(None if packed is None else self._unpack(packed))
            except BodyError:  # which says nothing of whether the write took effect
                values.append(None)
        return Outcome(tuple(values), repeated=True)

    def _value_of(self, key: str, packed: bytes) -> Value:
        """What *packed* says, of *key*. Raises BadOperation if that is nothing."""
        try:
            return self._unpack(packed)
        except BodyError as error:
            message = f"the value of key {key!r} cannot be read, only put anew or deleted: {error}"
            raise BadOperation(message) from None

    def _check_room(self, growth: int) -> None:
        if (
            growth > 0
            and self._keys_max is not None
            and len(self._entries) + growth > self._keys_max
        ):
            message = f"the partition has its maximum of {self._keys_max} keys"
            raise PartitionFull(message)

    def _packed(self, value: Value, bytes_max: int) -> bytes:
        try:
            packed = self._pack(value)
        except (ValueError, TypeError, OverflowError) as error:
            message = f"the value cannot be stored: {type(error).__name__}: {error}"
            raise BadOperation(message) from None
        if len(packed) > bytes_max:
            message = f"the value has {len(packed)} bytes when packed, of at most {bytes_max}"
            raise BadOperation(message)
        return packed

    def _packed_offsets(self, write: Write, group: Group) -> dict[str, bytes]:
        assert write.offsets is not None
        offsets: dict[str, bytes] = {}
        for name, offset in write.offsets.items():
            _check_text(name, "the name of an offset", KEY_BYTES_MAX)
            check_value(offset)
            offsets[name] = self._packed(offset, OFFSET_BYTES_MAX)
        known = [name for name in {**group.offsets, **offsets} if name not in self._offsets]
        if len(self._offsets) + len(known) > OFFSETS_MAX:
            message = f"a partition keeps at most {OFFSETS_MAX} offsets"
            raise BadOperation(message)
        return offsets

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
        self._offsets = {}
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
        self._offsets = dict(snapshots[-1].offsets)

    def _track_anew(self, mark: int) -> None:
        self._dirty = {}
        self._tracked_from = mark


RESTORED_BYTES: Final = 1 << 20
"""Written at a time."""


def _check_count(changes: Sequence[object]) -> None:
    if len(changes) > CHANGES_MAX:
        message = f"a write has at most {CHANGES_MAX} changes"
        raise BadOperation(message)


def _check_turn(session: Session | None, sequence: int) -> None:
    """Refuse a write of a series that is not the next one."""
    expected = 0 if session is None else session[0] + 1
    if sequence != expected:
        message = f"write {sequence} of a series is not next: that is write {expected}"
        raise BadOperation(message)


def _check_keys(keys: Sequence[str]) -> None:
    sizes = set(map(len, keys)) or {1}
    if min(sizes) < 1 or max(sizes) > KEY_BYTES_MAX or not "".join(keys).isascii():
        for key in keys:
            _check_text(key, "a key", KEY_BYTES_MAX)


def _changes_of(write: PackedWrite) -> list[Change]:
    name = write.aggregation
    return [Change(key, name, more) for key, more in zip(write.keys, write.arguments, strict=True)]


def _check_text(text: str, what: str, bytes_max: int) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        message = f"{what} is no Unicode text"
        raise BadOperation(message) from None
    if not 0 < size <= bytes_max:
        message = f"{what} has 1 to {bytes_max} bytes of UTF-8, not {size}"
        raise BadOperation(message)
