"""Whose name it is: what follows from rows and messages that go by our own name.

A member is a name; its address is an attribute. Two processes of one name at a time are ordered
by (incarnation, address), as their rows are everywhere (`member.overrides`). Who is still
joining outbids the row it finds: it is a restart, and the other an earlier life. Who has joined
never outbids a living namesake, or the two would go on for ever: of two claims the lower one
yields, for good. So the owner of the highest claim that was ever made never yields, and every
other one does as soon as it hears of it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ringpop_py.membership.effects import NameTaken
from ringpop_py.membership.member import Member, overrides

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.membership.core import Core

NAMESAKES_MAX: Final = 64


class Claim(Enum):
    """What a row of our name says.

    NOTHING: what we know, or knew. ACCUSATION: we are held for something that we are not, or for
    an earlier life of ours; a higher incarnation will say so. LOST: the name is another's.
    NAMESAKE: another process goes by it, whose claim is below ours.
    """

    NOTHING = auto()
    ACCUSATION = auto()
    LOST = auto()
    NAMESAKE = auto()


def claim_of(theirs: Member, ours: Member, *, joining: bool) -> Claim:
    """What *theirs*, a row of our name, means to us."""
    newer = overrides(theirs, ours)
    # Who is held for dead, or has left, cannot hold the name, wherever that was.
    if theirs.address == ours.address or not theirs.status.reachable or joining:
        return Claim.ACCUSATION if newer else Claim.NOTHING
    return Claim.LOST if newer else Claim.NAMESAKE


class Namesakes:
    """Tells of those who go by our name elsewhere, once an address.

    Not of rows of an address that we met while we were joining: that was an earlier life of
    ours, of which rumours may still be about. But of whoever calls us from there.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._earlier: set[Address] = set()
        self._told: set[Address] = set()

    def met_while_joining(self, theirs: Member) -> None:
        """A row of our name was there before us."""
        if len(self._earlier) < NAMESAKES_MAX:
            self._earlier.add(theirs.address)

    def met(self, theirs: Member, *, called: bool = False) -> None:
        """*theirs* has a claim below ours; with *called* it spoke to us itself."""
        address = theirs.address
        rumour = address in self._earlier and not called
        if not rumour and address not in self._told and len(self._told) < NAMESAKES_MAX:
            self._told.add(address)
            self._core.emit(NameTaken(self._core.local, theirs, lost=False))
