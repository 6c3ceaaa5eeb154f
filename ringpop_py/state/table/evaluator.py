"""What writes would do to a partition: they are evaluated, and nothing is changed.

The result of a group of writes is a body for the log. It holds packed values, not operations, so
applying it needs no aggregation.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    ConditionFailed,
    KeyspaceError,
    OperationIdReused,
    PartitionFull,
    RecordRefused,
    SpanRefused,
)
from ringpop_py.base.values.operations import (
    DIGEST_BYTES,
    KEY_BYTES_MAX,
    MARK_CLOSED,
    SCALARS,
    ArgumentRows,
    Change,
    Outcome,
    PackedWrite,
    Span,
    Value,
    Write,
    WriteRun,
    check_key,
    check_keys,
    check_text,
    is_usual_key,
)
from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.locks import terms
from ringpop_py.state.table.aggregations import ABSENT, Expiring, check_value
from ringpop_py.state.table.bodies import Body, Group, Ids, is_digest
from ringpop_py.state.table.conditions import replaces
from ringpop_py.state.table.due import have_instants, instant_of, plain, stamped
from ringpop_py.state.table.sessions import (
    SEQUENCE_MAX,
    after,
    after_run,
    check_id,
    digest_in,
    refusal_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.state.table.aggregations import Aggregations
    from ringpop_py.state.table.due import DueTimes
    from ringpop_py.state.table.entries import Entries
    from ringpop_py.state.table.joins import Pack
    from ringpop_py.state.table.sessions import Sessions

VALUE_BYTES_MAX: Final = 1 << 20
CHANGES_MAX: Final = 65_536
"""The most changes of one write; a write with more is refused."""
OFFSETS_MAX: Final = 4_096
"""The most sources of input whose offsets a partition keeps."""
OFFSET_BYTES_MAX: Final = 4_096
MARK_PREFIX: Final = "mark:"
"""The prefix of the names of offsets that are marks of sources; only spans set these."""


def _malformed(error: Exception) -> BadOperation:
    return BadOperation(f"the write is malformed: {type(error).__name__}: {error}")


def _is_plain(write: Write | PackedWrite | WriteRun) -> TypeGuard[Write]:
    """Return whether *write* has one change, and nothing besides."""
    return (
        type(write) is Write
        and len(write.changes) == 1
        and not (write.offsets or write.digest or write.span or write.repeats)
    )


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates writes to the present contents of a partition, which it reads and never changes.

    Attributes:
        offsets: packed.
        keys_max: the most keys of the partition; None if there is no limit.
    """

    pack: Pack
    aggregations: Aggregations
    entries: Entries
    sessions: Sessions
    offsets: Mapping[str, bytes]
    due: DueTimes
    keys_max: int | None
    mergeable: bool

    def stage(
        self, writes: Sequence[Write | PackedWrite | WriteRun] | WriteRun
    ) -> tuple[Body | None, list[Outcome | KeyspaceError]]:
        """Return what *writes* do, one after the other: a body for the log, and their outcomes.

        A run among them stands for its writes, each of which has an outcome.

        Nothing changes: the outcomes hold once the body is applied to the present state. The
        outcome of a refused write is its error. It leaves no trace in the body, unless it repeats
        and its condition fails (`Write.repeats`). The body is None if there is nothing to log.
        """
        if type(writes) is WriteRun:
            writes = (writes,)
        elif len(writes) == 1 and not self.mergeable:
            try:
                alone = self._stage_alone(writes[0]) if _is_plain(writes[0]) else None
            except KeyspaceError as error:
                return None, [error]
            except (TypeError, ValueError, AttributeError) as error:
                return None, [_malformed(error)]
            if alone is not None:
                return alone
        group = Group()
        outcomes: list[Outcome | KeyspaceError] = []
        for write in writes:
            if type(write) is not WriteRun:
                outcomes.append(self._outcome_of(write, group))
                continue
            values = self._stage_run(write, group)
            if values is not None:
                outcomes += [Outcome((value,)) for value in values]
            else:
                outcomes += [self._outcome_of(each, group) for each in write]
        is_any = group.ids or group.offsets
        return (group.body(mergeable=self.mergeable) if is_any else None), outcomes

    def _outcome_of(self, write: Write | PackedWrite, group: Group) -> Outcome | KeyspaceError:
        try:
            if isinstance(write, PackedWrite):
                return self._stage_write(write, group)
            if write.span is not None:
                return self._stage_span(write, write.span, group)
            nonce = terms.nonce_in(write) if write.offsets else ""
            stage = partial(self._stage_lock, nonce=nonce) if nonce else self._stage_write
            return stage(write, group=group)
        except KeyspaceError as error:
            return error
        except (TypeError, ValueError, AttributeError) as error:
            # Perhaps a name is not text. The other writes of the group must not fail with it.
            return _malformed(error)

    def _stage_run(self, run: WriteRun, group: Group) -> Sequence[Value] | None:
        """Stage the writes of *run* as one, in a fourth of the time; return the new values.

        None if they are not new, or one of them is refused: then nothing was staged.
        """
        if run.offsets and any(map(terms.is_fence, run.offsets)):
            return None
        source, first, count = run.source, run.first, len(run)
        before = group.sessions.get(source) or self.sessions.get(source)
        if type(first) is not int or (before is not None and first <= before[0]):
            return None
        changed: dict[str, bytes | None] = {}
        deleted: list[str] = []
        try:
            check_id(source, first)
            check_id(source, first + count - 1)
            values, growth = self._evaluate_run(run, group, changed, deleted)
            offsets = self._packed_offsets(run.offsets, group) if run.offsets else {}
        except (KeyspaceError, TypeError, ValueError, AttributeError, OverflowError):
            return None
        group.add(changed, deleted, growth, offsets)
        group.sessions[source] = after_run(before, first, count)
        group.ids.setdefault(source, []).extend(range(first, first + count))
        return values

    def _stage_alone(self, write: Write) -> tuple[Body, list[Outcome | KeyspaceError]] | None:
        """Do what `stage` does with one plain write, in half the time; None if it is not usual.

        A usual write is the next one of a source that is known.
        """
        source, sequence = write.source, write.sequence
        before = self.sessions.get(source)
        if before is None or sequence != before[0] + 1 or type(sequence) is not int:
            return None
        if sequence > SEQUENCE_MAX:
            return None
        (change,) = write.changes
        packed, value = self.evaluate(change)
        ids: dict[str, Ids] = {source: [sequence]}
        key = change[0]
        if packed is None:
            deleted = [] if self.entries.get(key) is None else [key]
            return Body({}, deleted, ids, {}), [Outcome((None,))]
        return Body({key: packed}, [], ids, {}), [Outcome((value,))]

    def evaluate(self, change: Change) -> tuple[bytes | None, Value]:
        """Return what the key of *change* holds then, packed and plain; None twice for nothing.

        Raises:
            KeyspaceError: if the change is refused.
        """
        key, name, argument = change
        packed = self.entries.get(key)
        try:
            if packed is None and not is_usual_key(key):
                check_key(key)
            function, reads = self.aggregations.get(name) or self.aggregations.find(name)
            if type(argument) not in SCALARS:
                check_value(argument)
            there = self._value_of(key, packed) if reads and packed is not None else ABSENT
            value = function(there, argument)
            if value is ABSENT:
                return None, None
            if packed is None:
                self._check_room(1)
            if type(value) is Expiring or (self.due.used and packed is not None):
                stored = self._stored(value, packed, name, argument)
                return stored, value.value if type(value) is Expiring else value
            return self._packed(value, VALUE_BYTES_MAX), value
        except KeyspaceError:  # an application's own may be a ValueError, too
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise _malformed(error) from None

    def _stage_write(self, write: Write | PackedWrite, group: Group) -> Outcome:
        source, sequence = write.source, write.sequence
        before = group.sessions.get(source) or self.sessions.get(source)
        if before is None or type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MAX:
            check_id(source, sequence)  # a source that is known was checked before
        session = after(before, sequence)
        given = None if isinstance(write, PackedWrite) else write.offsets
        fences = terms.fences_in(given) if given else {}
        if session is None:
            outcome = self._repeated(write, group)
            later = terms.later_terms(fences, partial(self._offset, group=group))
            group.offsets |= {name: self.pack(term) for name, term in later.items()}
            return outcome
        if fences and given:
            known = self._checked_fences(fences, group)
            given = {name: offset for name, offset in given.items() if name not in known}
        changes = write.keys if isinstance(write, PackedWrite) else write.changes
        if len(changes) > CHANGES_MAX:
            raise BadOperation(f"a write has at most {CHANGES_MAX} changes")
        changed: dict[str, bytes | None] = {}
        deleted: list[str] = []
        values: list[Value] = []
        offsets: dict[str, bytes] | None = None
        digest = b""
        if isinstance(write, PackedWrite):
            expected = 0 if before is None else before[0] + 1
            if sequence != expected:
                raise BadOperation(
                    f"write {sequence} of a series cannot follow: the next one is write {expected}"
                )
            growth = self._evaluate_packed(write, group, changed, deleted)
        else:
            if write.digest and not is_digest(write.digest):
                raise BadOperation(f"the digest of a write has {DIGEST_BYTES} bytes")
            try:
                values, growth = self._evaluate(write.changes, group, changed, deleted)
            except ConditionFailed:
                if write.repeats:
                    group.add_id(source, sequence, session, refusal_of(write.digest))
                raise
            offsets = self._packed_offsets(given, group) if given else None
            digest = write.digest
        # From here on nothing raises, so the group has a write as a whole or not at all.
        group.add(changed, deleted, growth, offsets)
        group.add_id(source, sequence, session, digest)
        return Outcome(tuple(values))

    def _stage_lock(self, write: Write, *, nonce: str, group: Group) -> Outcome:
        """Take, renew or release a lock; the value is its term, or 0 if it was held once."""
        source, sequence, (change,) = write.source, write.sequence, write.changes
        clock, offset_of = self.due.clock, partial(self._offset, group=group)
        if self.mergeable or clock is None:
            raise BadOperation("only keys of durable keyspaces can be locked")
        check_id(source, sequence)
        session = after(group.sessions.get(source) or self.sessions.get(source), sequence)
        if session is None:
            self._repeated(write, group)
            return Outcome((terms.term_of(change.key, nonce, offset_of),), repeated=True)
        try:
            given, term = terms.step(change, nonce, self.offsets, offset_of, clock)
        except ConditionFailed:
            if write.repeats:
                group.add_id(source, sequence, session, refusal_of(write.digest))
            raise
        group.add({}, (), 0, self._packed_offsets(given, group))
        group.add_id(source, sequence, session, b"")
        return Outcome((term,))

    def _stage_span(self, write: Write, span: Span, group: Group) -> Outcome:
        """Evaluate the part of *write* that is new; see `Span`."""
        check_span(span, len(write.changes))
        if terms.fences_in(write.offsets):
            raise BadOperation("a write with a span has no fence: its source has one reader")
        if self.mergeable:
            raise BadOperation("in memory mode, copies do not agree how far a source was read")
        if len(write.changes) > CHANGES_MAX:
            raise BadOperation(f"a write has at most {CHANGES_MAX} changes")
        mark = self._mark_of(span.source, group)
        if mark >= span.upto:
            return Outcome((mark,), repeated=True)
        known = bisect_right(span.positions, mark)
        is_whole = span.upto >= MARK_CLOSED or (write.changes and not span.positions)
        if mark < span.after or (mark > span.after and is_whole):
            raise SpanRefused(
                f"the partition has source {span.source!r} up to {mark}, and the write has what is "
                f"after {span.after}, up to {span.upto}"
            )
        changed: dict[str, bytes | None] = {}
        deleted: list[str] = []
        new = write.changes[known:]
        for name in {change.aggregation for change in new}:
            self.aggregations.find(name)  # if it is unknown here, no record is at fault
        try:
            _, growth = self._evaluate(new, group, changed, deleted)
        except (BadOperation, ConditionFailed) as error:
            raise RecordRefused(str(error)) from None
        offsets = self._packed_offsets(write.offsets or {}, group)
        offsets |= self._packed_offsets({mark_name(span.source): span.upto}, group, marks=True)
        group.add(changed, deleted, growth, offsets)
        return Outcome((span.upto,))

    def _checked_fences(self, fences: Mapping[str, int], group: Group) -> list[str]:
        """Return the *fences* that are known. Raises StaleTerm if a later term has written."""
        if self.mergeable:
            raise BadOperation("in memory mode, copies do not agree which term was the last")
        offset_of = partial(self._offset, group=group)
        return [
            name for name, term in fences.items() if terms.is_known(name, term, offset_of(name))
        ]

    def _offset(self, name: str, group: Group) -> Value:
        packed = group.offsets.get(name) or self.offsets.get(name)
        offset: Value = None if packed is None else decode_value("msgpack", packed)
        return offset

    def _mark_of(self, source: str, group: Group) -> int:
        mark = self._offset(mark_name(source), group) or 0
        if type(mark) is not int or mark < 0:
            raise BadOperation(f"the mark of {source!r} is {mark!r:.100}, which is not a position")
        return mark

    def _evaluate(
        self,
        changes: Sequence[Change],
        group: Group,
        changed: dict[str, bytes | None],
        deleted: list[str],
    ) -> tuple[list[Value], int]:
        """Add the effects of *changes* to *changed* and *deleted*.

        Return the new values, and by how much the number of keys grows.
        """
        values: list[Value] = []
        growth = 0
        # Local names: the loop runs a million times a second.
        before, get_packed, get_aggregation = (
            group.changed,
            self.entries.get,
            self.aggregations.get,
        )
        for key, name, argument in changes:
            if key in changed:
                packed = changed[key]
            elif key in before:
                packed = before[key]
            else:
                packed = get_packed(key)
            if packed is None and not is_usual_key(
                key
            ):  # also for a delete: other copies get its key, too
                check_key(key)
            function, reads = get_aggregation(name) or self.aggregations.find(name)
            if type(argument) not in SCALARS:
                check_value(argument)
            there = self._value_of(key, packed) if reads and packed is not None else ABSENT
            value = function(there, argument)
            if value is ABSENT:
                values.append(None)
                if packed is not None:
                    growth -= 1
                elif reads or not self.mergeable:  # there is nothing to delete
                    continue  # but a merged state needs the tombstone of a blind delete
                changed[key] = None
                deleted.append(key)
                continue
            if packed is None:
                growth += 1
                self._check_room(group.growth + growth)
            changed[key] = (
                self._stored(value, packed, name, argument)
                if type(value) is Expiring or (self.due.used and packed is not None)
                else self._packed(value, VALUE_BYTES_MAX)
            )
            values.append(value.value if type(value) is Expiring else value)
        return values, growth

    def _evaluate_run(
        self,
        run: WriteRun,
        group: Group,
        changed: dict[str, bytes | None],
        deleted: list[str],
    ) -> tuple[Sequence[Value], int]:
        """Do what `_evaluate` does; if all changes are puts, in a third of the time."""
        keys, names, arguments = zip(*run.changes, strict=True)
        if self.mergeable or names.count("put") < len(names):
            return self._evaluate(run.changes, group, changed, deleted)
        if not SCALARS.issuperset(map(type, arguments)):
            for argument in arguments:
                check_value(argument)
        packed = list(map(self.pack, arguments))
        write = PackedWrite(run.source, run.first, "put", keys, packed)
        return arguments, self._evaluate_packed(write, group, changed, deleted)

    def _evaluate_packed(
        self,
        write: PackedWrite,
        group: Group,
        changed: dict[str, bytes | None],
        deleted: list[str],
    ) -> int:
        """Add the effects of *write* to *changed* and *deleted*.

        Return by how much the number of keys grows, or 0 if that is not limited.
        """
        if len(write.keys) != 1 or not is_usual_key(write.keys[0]):
            check_keys(write.keys)
        if write.aggregation != "put":
            rows = write.arguments
            if isinstance(rows, ArgumentRows) and len(set(write.keys)) == len(rows):
                return self._aggregate_rows(write, rows, group, changed)
            return self._aggregate(write, group, changed, deleted)
        # All rows together, in C: a job has millions of them.
        keys, values = write.keys, cast("Sequence[bytes]", write.arguments)
        if max(map(len, values), default=0) > VALUE_BYTES_MAX:
            raise BadOperation(f"a value has at most {VALUE_BYTES_MAX} bytes when packed")
        if have_instants(values):
            self._check_expires()
        changed.update(zip(keys, values, strict=True))
        if self.keys_max is None:
            return 0
        before, get = group.changed, self.entries.get
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
        # `_evaluate` for one aggregation and checked keys: it looks up and checks less for each.
        if not write.keys:  # then the aggregation need not even exist
            return 0
        function, reads = self.aggregations.find(write.aggregation)
        before, get_packed = group.changed, self.entries.get
        growth, is_bounded = 0, self.keys_max is not None
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
                changed[key] = (
                    self._stored(value, packed, write.aggregation, argument)
                    if type(value) is Expiring or (self.due.used and packed is not None)
                    else self._packed(value, VALUE_BYTES_MAX)
                )
            elif packed is not None:
                changed[key] = None
                deleted.append(key)
                growth -= 1
        return growth

    def _aggregate_rows(
        self,
        write: PackedWrite,
        rows: ArgumentRows,
        group: Group,
        changed: dict[str, bytes | None],
    ) -> int:
        # `_aggregate` for all rows together, as far as they are alike. No key is deleted.
        keys, known, get = write.keys, group.changed, self.entries.get
        before = [known[key] if key in known else get(key) for key in keys]
        after = rows.applied(before)
        changed.update(zip(keys, after, strict=True))
        left = [
            place
            for place, packed in enumerate(after)
            if packed is None or len(packed) > VALUE_BYTES_MAX
        ]
        if left:
            some = write._replace(
                keys=[keys[place] for place in left], arguments=[rows[place] for place in left]
            )
            rest: dict[str, bytes | None] = {}
            self._aggregate(some, group, rest, [])
            changed.update(rest)
        growth = before.count(None)
        self._check_room(group.growth + growth)
        return growth

    def refusals(self, write: PackedWrite) -> dict[int, KeyspaceError]:
        """Return the places of the changes for which *write* would be refused now, and why.

        Without them the same write would take effect.
        """
        group, refused = Group(), dict[int, KeyspaceError]()
        name, is_put = write.aggregation, write.aggregation == "put"
        for place, (key, argument) in enumerate(zip(write.keys, write.arguments, strict=True)):
            changed: dict[str, bytes | None] = {}
            try:
                value = self._value_of(key, plain(cast(bytes, argument))) if is_put else argument
                _, growth = self._evaluate([Change(key, name, value)], group, changed, [])
            except KeyspaceError as error:
                refused[place] = error
            else:  # later changes of the key follow on this one
                group.changed.update(changed)
                group.growth += growth
        return refused

    def _repeated(self, write: Write | PackedWrite, group: Group) -> Outcome:
        """Return the outcome of *write*, whose id is known.

        Raises:
            ConditionFailed: if the write was refused.
            OperationIdReused: if the id is known to stand for another write.
        """
        if isinstance(write, PackedWrite):
            return Outcome((), repeated=True)
        source, sequence = write.source, write.sequence
        session = self.sessions.get(source)
        known = group.digest_of(source, sequence)
        known = known or (digest_in(session[2], sequence) if session else b"")
        if known == refusal_of(write.digest):
            raise ConditionFailed(
                "the condition of the write did not hold, and this is kept under its id; "
                "use a new id for a new write"
            )
        if known and write.digest and known != write.digest:
            number = f" and sequence {sequence}" if sequence else ""
            raise OperationIdReused(
                f"operation id {source!r}{number} was used before, for another write to this "
                "partition; use a new id for each write"
            )
        values: list[Value] = []
        for key, _, _ in write.changes:
            before = group.changed
            packed = before[key] if key in before else self.entries.get(key)
            try:
                values.append(None if packed is None else decode_value("msgpack", plain(packed)))
            except BodyError:  # the write took effect all the same, so this is not an error
                values.append(None)
        return Outcome(tuple(values), repeated=True)

    def _value_of(self, key: str, packed: bytes) -> Value:
        try:
            packed = plain(packed) if self.due.used else packed
            value: Value = decode_value("msgpack", packed)
        except BodyError as error:  # a job may put any bytes
            raise BadOperation(
                f"the value of key {key!r} cannot be read, only replaced or deleted: {error}"
            ) from None
        return value

    def _check_room(self, growth: int) -> None:
        if growth > 0 and self.keys_max is not None and len(self.entries) + growth > self.keys_max:
            raise PartitionFull(f"the partition has its maximum of {self.keys_max} keys")

    def _stored(self, value: Value, before: bytes | None, operation: str, argument: Value) -> bytes:
        """Return what is stored for the *value* that *operation* has given."""
        if type(value) is Expiring:
            value, at_ms = value
            if at_ms is not None:
                self._check_expires()
        else:  # a put begins anew; what changes a value leaves it its instant
            begins = before is None or replaces(operation, argument)
            at_ms = None if begins else instant_of(cast("bytes", before))
        return stamped(self._packed(value, VALUE_BYTES_MAX), at_ms)

    def _check_expires(self) -> None:
        if self.due.refusal:
            raise BadOperation(self.due.refusal)
        self.due.used = True

    def _packed(self, value: Value, bytes_max: int) -> bytes:
        try:
            packed = self.pack(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadOperation(
                f"the value cannot be stored: {type(error).__name__}: {error}"
            ) from None
        if len(packed) > bytes_max:
            raise BadOperation(
                f"the value has {len(packed)} bytes when packed, of at most {bytes_max}"
            )
        return packed

    def _packed_offsets(
        self, given: Mapping[str, Value], group: Group, *, marks: bool = False
    ) -> dict[str, bytes]:
        offsets: dict[str, bytes] = {}
        for name, offset in given.items():
            if isinstance(name, str) and name.startswith(MARK_PREFIX) and not marks:
                raise BadOperation(f"offsets that begin with {MARK_PREFIX!r} are kept for spans")
            check_text(name, "the name of an offset", KEY_BYTES_MAX)
            check_value(offset)
            offsets[name] = self._packed(offset, OFFSET_BYTES_MAX)
        new = [name for name in {**group.offsets, **offsets} if name not in self.offsets]
        if len(self.offsets) + len(new) > OFFSETS_MAX:
            raise BadOperation(f"a partition keeps at most {OFFSETS_MAX} offsets")
        return offsets


def mark_name(source: str) -> str:
    """Return the name of the offset that is the mark of *source*."""
    return f"{MARK_PREFIX}{source}"


def check_span(span: Span, changes_count: int) -> None:
    """Check *span*, of a write with that many changes. Raises BadOperation."""
    check_id(span.source, 0)
    if span.upto == span.after == changes_count == 0:
        return  # it asks for the mark
    if not 0 <= span.after < span.upto:
        raise BadOperation(f"a span after {span.after}, up to {span.upto}, has no positions")
    positions = span.positions
    if not positions:
        return
    if len(positions) != changes_count:
        raise BadOperation(f"{changes_count} changes are at {len(positions)} positions")
    if any(after < before for before, after in pairwise(positions)):
        raise BadOperation("the positions of changes do not rise")
    if positions[0] <= span.after or positions[-1] > span.upto:
        raise BadOperation(f"positions are not after {span.after}, or not up to {span.upto}")
