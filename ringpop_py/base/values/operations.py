"""Requests to keyed state, as values: changes of keys, grouped into writes with an id."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast, final, overload

from ringpop_py.base.errors import BadOperation, BodyError
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text

Value = None | bool | int | float | str | bytes | Sequence["Value"] | Mapping[str, "Value"]
"""A value that a key can hold, as msgpack can express it. None is one; an absent key has none.

A sequence is a list, a mapping is a dict; others are refused (`BadOperation`). To type checkers a
``list[str]`` is a ``Sequence[Value]``, but no ``list[Value]``, which could take other items.
"""

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    AnyValue = Value
    Argument = Value
else:
    AnyValue = Any
    # What msgspec can check while it reads: a union cannot have text and bytes, nor contain itself.
    # `ApplyRequest.decode` reads other values again, as `Any`, and `check_values` checks them.
    _Scalar = None | bool | int | float | str
    _Inner = _Scalar | list[_Scalar] | dict[str, _Scalar]
    Argument = _Scalar | list[_Inner] | dict[str, _Inner]

DIGEST_BYTES: Final = 8
KEY_BYTES_MAX: Final = 1_024
"""The longest key of a keyspace, as UTF-8."""
ACTOR_VERSION: Final = "ringpop.actor"
"""The first field of an actor's record, by which it is known from an application's own values."""
MARK_CLOSED: Final = 1 << 62
"""The mark of a source that goes on under another name: nothing is taken from it any more."""
SOURCE_CHARACTERS_MAX: Final = 256

Key = Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
SourceName = Annotated[str, Meta(max_length=SOURCE_CHARACTERS_MAX)]


class OperationId(NamedTuple):
    """Names a write to one partition, so that its repetitions are recognised.

    Attributes:
        source: the writer, for example a client's process; or a whole id of its own.
        sequence: counts up for each write of that source to one partition. Writes may arrive out
            of order, but within a window of others (see `ringpop_py.state.table.keyed`).
    """

    source: str
    sequence: int = 0


class Change(NamedTuple):
    """Gives *key* the result of *aggregation* over its value and *argument*."""

    key: Key
    aggregation: Text
    argument: Argument = None


def are_plain(changes: Sequence[object]) -> bool:
    """Return whether each is a tuple of a key, text for the aggregation, and an argument."""
    return (
        {tuple}.issuperset(map(type, changes))
        and {len(Change._fields)}.issuperset(map(len, cast("Sequence[Change]", changes)))
        and {str}.issuperset([type(change[1]) for change in cast("Sequence[Change]", changes)])
    )


class Span(Declared, frozen=True):
    """Says that a write has *all* records of a source of input in a range, for one partition.

    A source is a sequence of records, each at a position; positions rise from 1 on. The partition
    keeps how far it has come in each source: its mark, the offset ``mark:SOURCE``. It takes a write
    whose range begins at the mark or before, and ignores what it has already; so writes may be
    repeated, doubled and reordered, even by several senders, and each record counts once.
    The outcome of a write is the mark. A write without changes, after 0 and up to 0, asks for it;
    one up to `MARK_CLOSED` or more closes the source, if its mark is exactly *after*.

    Attributes:
        after: the position before the range.
        upto: the last position in it.
        positions: of the record that each change is of, in the order of changes, which never falls;
            empty if the changes are a whole, of which no part may be ignored.
    """

    source: SourceName
    after: Natural
    upto: Natural
    positions: tuple[Natural, ...] = ()


class Write(Declared, frozen=True):
    """Changes of keys of one partition: all of them take effect once, or none.

    Attributes:
        source: with *sequence*, its `OperationId`. With a *span* they are not looked at.
        offsets: how far each source of input was read for these changes; kept with the state,
            and handed to the node that gains the partition.
        digest: a hash of *changes*, of `DIGEST_BYTES`, if the caller chose the id, and could
            choose it twice; empty otherwise.
        span: by what its repetitions are recognised in place of an id.
        repeats: whether an earlier copy of it may be on its way. Then a `ConditionFailed` is its
            outcome, which is kept under its id: no copy takes effect any more.
    """

    source: SourceName
    sequence: Natural
    changes: tuple[Change, ...]
    offsets: Mapping[str, Argument] | None = None
    digest: bytes = b""
    span: Span | None = None
    repeats: bool = False


@final
class WriteRun(Sequence[Write]):
    """Writes of one change each, independent of one another, whose ids follow one another.

    A caller that makes many changes has no use for an object each.

    Attributes:
        first: the sequence of the first one.
        offsets: of each.
    """

    __slots__ = ("changes", "first", "offsets", "source")

    @classmethod
    def gathered(cls, writes: Sequence[Write]) -> Sequence[Write]:
        """Return *writes*, as a run if they are one."""
        if len(writes) <= 1:
            return writes
        source, first, offsets = writes[0].source, writes[0].sequence, writes[0].offsets
        changes: list[Change] = []
        for sequence, write in enumerate(writes, first):
            if write.sequence != sequence or write.source != source or len(write.changes) != 1:
                return writes
            if write.digest or write.span or write.repeats or write.offsets != offsets:
                return writes
            changes += write.changes
        return cls(source, first, changes, offsets)

    def __init__(
        self,
        source: str,
        first: int,
        changes: Sequence[Change],
        offsets: Mapping[str, Value] | None = None,
    ) -> None:
        self.source = source
        self.first = first
        self.changes = changes
        self.offsets = offsets

    def __repr__(self) -> str:
        return f"<WriteRun of {len(self)} from {self.source!r} {self.first} on>"

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Write]:
        for sequence, change in enumerate(self.changes, self.first):
            yield Write(self.source, sequence, (change,), self.offsets)

    @overload
    def __getitem__(self, at: int) -> Write: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Write]: ...

    def __getitem__(self, at: int | slice) -> Write | Sequence[Write]:
        return tuple(self)[at]


class ArgumentRows(Sequence[Value]):
    """Arguments of many changes that are evaluated together (`ringpop_py.state.rows.vectors`)."""

    @abstractmethod
    def applied(self, before: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the packed values that follow on *before*; None for rows that are left over."""


class PackedWrite(NamedTuple):
    """Many changes of one kind, as one write of a series. It is made at the owner, and not sent.

    The writes of a series take effect in the order of their sequences, from 0 on, without a gap:
    one whose predecessor has not taken effect is refused. The new values are not returned. They
    have no digests: their source is a job, whose rows all come from files that were decided once.

    Attributes:
        source: with *sequence*, its `OperationId`.
        arguments: one for each key. If the aggregation is ``put``, the new values as they are
            stored, packed; otherwise plain values, perhaps as `ArgumentRows`.
    """

    source: str
    sequence: int
    aggregation: str
    keys: Sequence[str]
    arguments: Sequence[Value]


class Outcome(Declared, frozen=True, tag=0):
    """The outcome of a write. Its reader has to call `check_values`.

    Attributes:
        values: of each changed key after the change, in order; None for a deleted one. If the
            write was *repeated*, the values are those of now; None also for an unreadable one.
            Of a write with a `Span`: its mark.
        repeated: whether it had taken effect before, and did not do so again.
    """

    values: tuple[AnyValue, ...]
    repeated: bool = False


SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_KEYS: Final = {str}


def is_of_actor(packed: bytes) -> bool:
    """Return whether a packed value is the record of an actor."""
    return packed.startswith(_ACTOR, 1) and packed[0] & 0xF0 == _SMALL_MAP


_SMALL_MAP: Final = 0x80
_ACTOR: Final = bytes([0xA0 | len(ACTOR_VERSION)]) + ACTOR_VERSION.encode()


is_usual_key: Final = re.compile(f"[\0-\x7f]{{1,{KEY_BYTES_MAX}}}").fullmatch
"""Whether a key is one that `check_key` permits without a closer look, which most are: each request
would pay for its call."""


def check_key(key: str) -> None:
    """Raise BadOperation unless a keyspace can have *key*."""
    check_text(key, "a key", KEY_BYTES_MAX)


def check_keys(keys: Sequence[str]) -> None:
    """Raise BadOperation unless a keyspace can have each of *keys*."""
    # Characters of ASCII are bytes, so mostly no key has to be encoded, or looked at alone.
    sizes = set(map(len, keys)) or {1}
    if min(sizes) < 1 or max(sizes) > KEY_BYTES_MAX or not "".join(keys).isascii():
        for key in keys:
            check_key(key)


def check_text(text: str, what: str, bytes_max: int) -> None:
    """Raise BadOperation unless *text* has 1 to *bytes_max* bytes of UTF-8."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise BadOperation(f"{what} is not valid Unicode") from None
    if not 0 < size <= bytes_max:
        raise BadOperation(f"{what} has 1 to {bytes_max} bytes of UTF-8, not {size}")


def check_values(values: Iterable[object]) -> None:
    """Check that a key can hold each of *values*, as they were read.

    Raises:
        BodyError: one has an extension of msgpack, or a map with a key that is not text.
    """
    pending = list(values)  # no recursion: peers choose how deep values are
    while pending:
        value = pending.pop()
        if type(value) in SCALARS:
            continue
        if isinstance(value, dict):
            if not set(map(type, value)) <= _KEYS:
                raise BodyError("a value has a map with a key that is not text")
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        else:
            raise BodyError("a value holds an extension of msgpack")
