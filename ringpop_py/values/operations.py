"""What is asked of keyed state, as values: changes of keys, grouped into writes with an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from ringpop_py.errors import BodyError
from ringpop_py.values.declared import Declared, Meta, Natural, Text

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
"""What a key can hold: what msgpack can say. None is a value like others; absent is not None."""

if TYPE_CHECKING:
    from collections.abc import Iterable

    AnyValue = Value
    Argument = Value
else:
    AnyValue = Any
    # What msgspec can check while it reads: no type of its own may be bytes or text, nor endless.
    # `ApplyRequest.decode` reads the values that are neither again, as `Any`, and checks them here.
    _Scalar = None | bool | int | float | str
    _Inner = _Scalar | list[_Scalar] | dict[str, _Scalar]
    Argument = _Scalar | list[_Inner] | dict[str, _Inner]

DIGEST_BYTES: Final = 8
KEY_CHARACTERS_MAX: Final = 1_024
SOURCE_CHARACTERS_MAX: Final = 256

Key = Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]
SourceName = Annotated[str, Meta(max_length=SOURCE_CHARACTERS_MAX)]


class OperationId(NamedTuple):
    """Names a write to one partition, so that a repetition of it is known for one.

    Attributes:
        source: who wrote, for example a client's process, or a whole id of its own.
        sequence: counts up for each write of that source to one partition. Writes may arrive out
            of order, but not later than a window of others (see `ringpop_py.keyed.keyed`).
    """

    source: str
    sequence: int = 0


class Change(NamedTuple):
    """What is to become of *key*: the result of *aggregation* over its value and *argument*."""

    key: Key
    aggregation: Text
    argument: Argument = None


class Write(Declared, frozen=True):
    """Changes of keys of one partition: all of them take effect, or none, and once.

    Attributes:
        source: with *sequence*, its `OperationId`.
        offsets: how far which source of input was read when these changes came about; kept with
            the state, and handed to whoever gains the partition.
        digest: a hash of *changes*, of `DIGEST_BYTES`, if the id was chosen by somebody who could
            choose it twice; empty otherwise.
    """

    source: SourceName
    sequence: Natural
    changes: tuple[Change, ...]
    offsets: Mapping[str, Argument] | None = None
    digest: bytes = b""

    @property
    def id(self) -> OperationId:
        """The name of this write."""
        return OperationId(self.source, self.sequence)


class PackedWrite(NamedTuple):
    """Many changes of one kind, as one write of a series. It is made at the owner, and not sent.

    The writes of a series take effect in the order of their sequences, from 0 on, with no gap: one
    whose predecessor has not taken effect is refused. The new values are not returned. They
    have no digests: their source is a job, whose rows all come from files that were decided once.

    Attributes:
        arguments: one a key: the new values as they are stored (packed, of what was packed so), if
            the aggregation is ``put``; else plain values.
    """

    id: OperationId
    aggregation: str
    keys: Sequence[str]
    arguments: Sequence[Value]


class Outcome(Declared, frozen=True, tag=0):
    """What became of a write. Whoever reads one checks its values.

    Attributes:
        values: of each changed key after the change, in order; None for a deleted one. As they
            are now, where the write was *repeated*; None then also for one that cannot be read.
        repeated: it had taken effect before, and did not do so again.
    """

    values: tuple[AnyValue, ...]
    repeated: bool = False


_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_KEYS: Final = {str}


def check_values(values: Iterable[object]) -> None:
    """See that *values*, as they were read, are such as a key can hold.

    Raises:
        BodyError: if there is an extension of msgpack in one, or a map with a key that is no text.
    """
    pending = list(values)
    while pending:
        value = pending.pop()
        if type(value) in _SCALARS:
            continue
        if isinstance(value, dict):
            if not set(map(type, value)) <= _KEYS:
                raise BodyError("a value has a map with a key that is no text")
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        else:
            raise BodyError("a value holds an extension of msgpack")
