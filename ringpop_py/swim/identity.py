"""Whose name it is: what a row of our name means, and which of two processes keeps the name.

A member is a name; its address is an attribute. Rows of one name are ordered by (incarnation,
address), as all rows are (`member.overrides`), but a row is only hearsay: its process may have
ended, or never have existed. So a row alone takes the name from no process. A node that reads one
asks at its address (`namesakes`), and of two processes that live, the order of `Tenure` says which
one keeps the name.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.address import Address  # noqa: TC001 - named tuple field, read at run time
from ringpop_py.swim.member import Member, Status, overrides

if TYPE_CHECKING:
    from ringpop_py.swim.messages import NameAck, NameReq


class Tenure(NamedTuple):
    """What a living process has to say for its name. The least of all tenures keeps the name.

    A process that has joined comes before one that is joining: a newcomer loses, whatever the
    clocks say. Then the process comes first that has run for longer. One that was stopped, or
    suspended with its machine, counts from when it went on, for it may have been replaced. Where no
    clock shows that it was suspended (`gossip.suspended_us`), it counts as if it had run.

    Attributes:
        since_ms: see `StallClock.since_ms`.
    """

    joining: bool
    since_ms: int
    address: Address


def tenure_in(message: NameReq | NameAck) -> Tenure:
    """Return what the sender of *message* says of itself."""
    return Tenure(not message.joined, message.since_ms, message.source_address)


class Hearsay(Enum):
    """What a row of our name says.

    NOTHING: what we know, or knew. ACCUSATION: something of us, or of an earlier life of ours that
    is over, which is not true; a higher incarnation will say so. NAMESAKE: a process at another
    address has the name; it has to be asked. OUTDATED: the same, but our own row overrides that
    one, and the peer that repeats it has to hear ours; the namesake, if it lives, will ask us.
    """

    NOTHING = auto()
    ACCUSATION = auto()
    NAMESAKE = auto()
    OUTDATED = auto()


def hearsay_of(theirs: Member, ours: Member, *, joining: bool) -> Hearsay:
    """Return what *theirs*, a row of our name, means to us."""
    newer = overrides(theirs, ours)
    # A process that was found dead does not hold the name, wherever it was. One that has left may
    # still run; but a process that has joined since then was right to take the name.
    found_dead = theirs.status in (Status.FAULTY, Status.TOMBSTONE)
    gone = found_dead if joining else not theirs.status.reachable
    if theirs.address == ours.address or gone:
        return Hearsay.ACCUSATION if newer else Hearsay.NOTHING
    return Hearsay.NAMESAKE if newer or joining else Hearsay.OUTDATED
