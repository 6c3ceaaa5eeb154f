"""What is asked of keyed state, as values: changes of keys, grouped into writes with an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - read at run time
from typing import Final, NamedTuple

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
"""What a key can hold: what msgpack can say. None is a value like others; absent is not None."""


DIGEST_BYTES: Final = 8


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

    key: str
    aggregation: str
    argument: Value = None


class Write(NamedTuple):
    """Changes of keys of one partition: all of them take effect, or none, and once.

    Attributes:
        offsets: how far which source of input was read when these changes came about; kept with
            the state, and handed to whoever gains the partition.
        digest: a hash of *changes*, of `DIGEST_BYTES`, if the id was chosen by somebody who could
            choose it twice; empty otherwise.
    """

    id: OperationId
    changes: tuple[Change, ...]
    offsets: Mapping[str, Value] | None = None
    digest: bytes = b""


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


class Outcome(NamedTuple):
    """What became of a write.

    Attributes:
        values: of each changed key after the change, in order; None for a deleted one. As they
            are now, where the write was *repeated*; None then also for one that cannot be read.
        repeated: it had taken effect before, and did not do so again.
    """

    values: tuple[Value, ...]
    repeated: bool = False
