"""What a row of our name means, and which of two processes keeps the name.

A member is a name; its address is an attribute. A row is only hearsay: its process may have ended,
or never have existed. So no row alone takes the name from a process. A node that receives such a
row asks at its address (`namesakes`). If two processes live, the order of `Tenure` decides.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.address import Address  # noqa: TC001 - named tuple field, read at run time
from ringpop_py.swim.member import Member, Status, overrides

if TYPE_CHECKING:
    from ringpop_py.swim.messages import NameAck, NameReq


class Tenure(NamedTuple):
    """A living process's claim to its name. The least tenure keeps the name.

    A process that has joined precedes one that is joining, whatever the clocks say. Next, the
    process that has run for longer precedes. A process that was stopped, or suspended with its
    machine, counts from when it went on, because it may have been replaced (`StallClock.since_ms`).
    If no clock shows a suspension (`gossip.suspended_us`), it counts as time in which it ran.
    """

    joining: bool
    since_ms: int
    address: Address


def tenure_in(message: NameReq | NameAck) -> Tenure:
    """Return the tenure of the sender of *message*."""
    return Tenure(not message.joined, message.since_ms, message.source_address)


class Hearsay(Enum):
    """What a row of our name says.

    NOTHING: nothing new. ACCUSATION: something untrue about us, or about an earlier process of
    our name; we refute it with a higher incarnation. NAMESAKE: a process at another address has
    the name; we have to ask it. OUTDATED: the same, but our row overrides that one; we repeat our
    row, and the namesake, if it lives, will ask us.
    """

    NOTHING = auto()
    ACCUSATION = auto()
    NAMESAKE = auto()
    OUTDATED = auto()


def hearsay_of(theirs: Member, ours: Member, *, joining: bool) -> Hearsay:
    """Return what *theirs*, a row of our name, means to us."""
    newer = overrides(theirs, ours)
    # A process that was declared faulty does not keep the name, wherever it was. One that has left
    # may still run, so a joining node asks; a node that has joined since rightly has the name.
    found_dead = theirs.status in (Status.FAULTY, Status.TOMBSTONE)
    gone = found_dead if joining else not theirs.status.reachable
    if theirs.address == ours.address or gone:
        return Hearsay.ACCUSATION if newer else Hearsay.NOTHING
    return Hearsay.NAMESAKE if newer or joining else Hearsay.OUTDATED
