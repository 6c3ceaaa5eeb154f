"""What machines of either mode ask of their driver and report, and its answers: all of it data.

A duty takes time; its driver carries it out, and reports the end by `done`. A fact is carried out
where it stands, in the order of the list, and has no end to report.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.base.errors import CallTimeout, ConnectFailed, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.errors import RingpopError
    from ringpop_py.state.placement.assignment import Assignment
    from ringpop_py.state.placement.table import TableRow

# Duties of a durable keyspace.


class ReadAssignment(NamedTuple):
    """Read the newest recorded assignment; the result is it, None, or a `Trouble`."""


class RecordAssignment(NamedTuple):
    """Record *assignment* if its version is free; the result is whether it was, or a `Trouble`."""

    assignment: Assignment


# Duties of a keyspace in memory mode.


class Offer(NamedTuple):
    """Ask *to* to take a partition; the result is a `HandOverReply`, or `NOTHING_TO_GIVE`."""

    number: int
    to: str


class Send(NamedTuple):
    """Send all parts of a partition to *to*; the result is whether it has taken the last one.

    Before each part, `Steward.taker` says whether *to* is still the one to have it.
    """

    number: int
    to: str


class Recover(NamedTuple):
    """Ask other members for copies of partitions, and merge what is not here. It has no result."""

    numbers: Sequence[int]


Duty = ReadAssignment | RecordAssignment | Offer | Send | Recover


# Facts.


class Serve(NamedTuple):
    """From now on this node serves a partition, in *epoch*."""

    number: int
    epoch: int


class Withhold(NamedTuple):
    """This node no longer serves a partition, but still has it."""

    number: int


class Drop(NamedTuple):
    """This node no longer has a partition, and its state is forgotten."""

    number: int


class Abandon(NamedTuple):
    """A partition that was on its way here will not come."""

    number: int


class Remind(NamedTuple):
    """Offer a partition to *to*, only so that it goes on waiting."""

    number: int
    to: str


class Tell(NamedTuple):
    """Other members should know these *rows* soon; without any, that something has changed."""

    rows: Sequence[TableRow] = ()


class Changed(NamedTuple):
    """Requests that wait for a partition should look again."""


Fact = Serve | Withhold | Drop | Abandon | Tell | Changed | Remind
Task = Duty | Fact


# Results.


class Trouble(NamedTuple):
    """The store, or something in it, could not be used."""


NOTHING_TO_GIVE = "nothing to give"


class ReleaseSaid(Enum):
    """The answer of an owner that is asked to release a partition, or why it gave no answer."""

    RELEASED = "released"
    NOT_MINE = "not mine"
    NOT_YET = "not yet"
    UNREACHABLE = "unreachable"
    """Nobody answered, or there is no such member. This value is never sent."""

    @classmethod
    def of(cls, error: RingpopError) -> ReleaseSaid:
        """Return what is known of an owner if the request to it ended with *error*."""
        silent = isinstance(error, ConnectFailed | ConnectionLost | CallTimeout)
        return cls.UNREACHABLE if silent else cls.NOT_YET
