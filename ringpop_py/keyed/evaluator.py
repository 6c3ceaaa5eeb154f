"""What writes would do to a partition: they are evaluated, and nothing is changed.

What comes of a group of writes is a body for the log. It holds values, packed, and not operations,
so applying it needs no aggregation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ringpop_py.errors import (
    BadOperation,
    BodyError,
    KeyspaceError,
    OperationIdReused,
    PartitionFull,
)
from ringpop_py.keyed.aggregations import ABSENT, SCALARS, check_value
from ringpop_py.keyed.bodies import Group, is_digest
from ringpop_py.keyed.sessions import SEQUENCE_MAX, Session, after, check_id, digest_in
from ringpop_py.values.operations import (
    DIGEST_BYTES,
    Change,
    Outcome,
    PackedWrite,
    Value,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.keyed.aggregations import Aggregations
    from ringpop_py.keyed.bodies import Body
    from ringpop_py.keyed.entries import Entries
    from ringpop_py.keyed.sessions import Sessions

KEY_BYTES_MAX: Final = 1_024
VALUE_BYTES_MAX: Final = 1 << 20
CHANGES_MAX: Final = 65_536
"""Of one write."""
OFFSETS_MAX: Final = 4_096
"""Sources of input whose offsets are kept."""
OFFSET_BYTES_MAX: Final = 4_096


class Evaluator:
    """Evaluates writes to a partition's contents as they are at the time.

    *pack*, *unpack* and *mergeable* are as in `KeyedState`.

    Args:
        contents: entries, sessions and packed offsets; they are read, and never changed.
        limits: how many keys there may be, None if any number; and the bytes of a packed value.
    """

    def __init__(
        self,
        pack: Callable[[Value], bytes],
        unpack: Callable[[bytes], Value],
        aggregations: Aggregations,
        contents: tuple[Entries, Sessions, Mapping[str, bytes]],
        limits: tuple[int | None, int],
        *,
        mergeable: bool,
    ) -> None:
        self._pack = pack
        self._unpack = unpack
        self._aggregations = aggregations
        self._entries, self._sessions, self._offsets = contents
        self._keys_max, self._value_bytes_max = limits
        self._mergeable = mergeable

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
                raise BadOperation(f"the digest of a write has {DIGEST_BYTES} bytes")
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
            raise BadOperation(f"a value has at most {self._value_bytes_max} bytes when packed")
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
            raise OperationIdReused(
                f"operation id {source!r}{number} was used before, for a write to this partition "
                "that did something else; use a new id for each write"
            )

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
        """Return what *packed* says, of *key*. Raises BadOperation if it cannot be read."""
        try:
            return self._unpack(packed)
        except BodyError as error:
            raise BadOperation(
                f"the value of key {key!r} cannot be read, only put anew or deleted: {error}"
            ) from None

    def _check_room(self, growth: int) -> None:
        if (
            growth > 0
            and self._keys_max is not None
            and len(self._entries) + growth > self._keys_max
        ):
            raise PartitionFull(f"the partition has its maximum of {self._keys_max} keys")

    def _packed(self, value: Value, bytes_max: int) -> bytes:
        try:
            packed = self._pack(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadOperation(
                f"the value cannot be stored: {type(error).__name__}: {error}"
            ) from None
        if len(packed) > bytes_max:
            raise BadOperation(
                f"the value has {len(packed)} bytes when packed, of at most {bytes_max}"
            )
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
            raise BadOperation(f"a partition keeps at most {OFFSETS_MAX} offsets")
        return offsets


def _check_count(changes: Sequence[object]) -> None:
    if len(changes) > CHANGES_MAX:
        raise BadOperation(f"a write has at most {CHANGES_MAX} changes")


def _check_turn(session: Session | None, sequence: int) -> None:
    """Refuse a write of a series that is not the next one."""
    expected = 0 if session is None else session[0] + 1
    if sequence != expected:
        raise BadOperation(f"write {sequence} of a series is not next: that is write {expected}")


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
        raise BadOperation(f"{what} is no Unicode text") from None
    if not 0 < size <= bytes_max:
        raise BadOperation(f"{what} has 1 to {bytes_max} bytes of UTF-8, not {size}")
