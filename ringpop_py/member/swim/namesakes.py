"""Which of several processes of our name keeps it: they are asked whether they live.

A member is a name; its address is an attribute. A row is only hearsay: its process may have ended,
or never have existed. So no row alone takes the name from a process. A node that receives such a
row asks at its address. If two processes live, the order of `Tenure` decides.

Rules for this file: a node that has joined yields only to an answer that it asked for, if the
answering process's tenure precedes its own. No rumour, request or silence ends it. If two processes
live, exactly one yields, because both compare the same two tenures: a tenure changes only when a
process joins or does not run. (They must reach each other; see `_seen`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.address import Address  # noqa: TC001 - named tuple field, read at run time
from ringpop_py.member.swim.effects import NameTaken
from ringpop_py.member.swim.member import Member, Status, overrides
from ringpop_py.member.swim.messages import NameAck, NameReq, PingReq, PingReqAck, Refusal
from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.waits import NameCall, NameHelp

if TYPE_CHECKING:
    from ringpop_py.member.swim.calls import Calls, Outcome
    from ringpop_py.member.swim.core import Core

NAMESAKES_MAX: Final = 64
"""How many addresses a node asks at a time, and how many namesakes it reports in its life."""


class Tenure(NamedTuple):
    """A living process's claim to its name. The least tenure keeps the name.

    A process that has joined precedes one that is joining, whatever the clocks say. Next, the
    process that has run for longer precedes. A process that was stopped, or suspended with its
    machine, counts from when it resumed, because it may have been replaced (`StallClock.since_ms`).
    If no clock shows a suspension (`gossip.suspended_us`), it counts as time in which it ran.
    """

    joining: bool
    since_ms: int
    address: Address


def tenure_in(message: NameReq | NameAck) -> Tenure:
    """Return the tenure of the sender of *message*."""
    return Tenure(not message.joined, message.since_ms, message.source_address)


class Hearsay(Enum):
    """The meaning of a row of our name.

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


@dataclass(slots=True)
class _Inquiry:
    """An open question: whether a process of our name lives at an address."""

    number: int  # distinguishes it from earlier inquiries at the same address
    row: Member  # the newest row with that address that we have received
    tenure: Tenure  # ours when we asked: the result must not depend on when the answer arrives
    helpers_open: int = 0  # how many members are still trying to reach it for us


class Settled(NamedTuple):
    """An inquiry is closed, and the name is still ours.

    Attributes:
        outbid: the row that our own has to override, if there is one.
        yields: whether a living process yields to us: the members should receive our row before
            that process is started again.
    """

    outbid: Member | None
    yields: bool = False


class Namesakes:
    """Keeps one inquiry for each address; a joining node is not ready until all are closed.

    Attributes:
        inquiries: what is known of each process with our name that is being asked about.
    """

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self.inquiries: dict[Address, _Inquiry] = {}
        self._inquiry_count = 0
        self._settled: set[Address] = set()
        self._told: set[Address] = set()

    # What we receive.

    def heard_of(self, row: Member, now: int) -> bool:
        """Ask whether the process of *row*, with our name and another address, lives.

        Return whether that is already settled, so that the row only has to be outbid.
        """
        inquiry = self.inquiries.get(row.address)
        if inquiry is not None:
            inquiry.row = row if overrides(row, inquiry.row) else inquiry.row
        elif not self._core.ready and row.address in self._settled:
            return True  # another host's list repeats a row about which we have asked
        elif len(self.inquiries) < NAMESAKES_MAX:
            self._ask(row, now)
        return False

    def pinged_by(self, row: Member, now: int) -> bool:
        """Note a ping in our name from another address, whose sender's row is *row*.

        Return whether *row* overrides ours, so that we have to ask.
        """
        if self._core.stopped or not self._core.is_believable(row, now):
            return False
        if overrides(row, self._core.local):
            return True
        self._tell(row, None)  # it receives our row in the answer, and will ask us
        return False

    def asked_by(self, request: NameReq, now: int) -> Member | None:
        """Return the row of the sender of *request* if it has our name and precedes us."""
        core = self._core
        row = Member(request.source, *request.source_address, request.source_incarnation)
        ours = row.name == core.name and row.address != core.address
        if ours and not core.stopped and core.is_believable(row, now):
            if tenure_in(request) < self._tenure():
                return row
            self._tell(row, request.since_ms)
        return None

    def ack(self) -> NameAck:
        """Return our answer to a `NameReq`."""
        core = self._core
        return NameAck(*core.sender, core.clock.since_ms, core.ready)

    # What we ask.

    def _tenure(self) -> Tenure:
        core = self._core
        return Tenure(not core.ready, core.clock.since_ms, core.address)

    def _ask(self, row: Member, now: int) -> None:
        core = self._core
        self._inquiry_count += 1
        self.inquiries[row.address] = _Inquiry(self._inquiry_count, row, self._tenure())
        core.name_in_doubt = not core.ready
        request = NameReq(core.cluster, *core.sender, core.clock.since_ms, core.ready)
        timeout_us = microseconds(core.config.ping_timeout_s)
        self._calls.open(row.address, request, timeout_us, NameCall(row.address), now)

    def answered(self, address: Address, outcome: Outcome, now: int) -> Settled | None:
        """Handle the answer from *address*; if none came, ask helpers."""
        core, inquiry = self._core, self.inquiries[address]
        if core.stopped:
            return None
        if isinstance(outcome, NameAck):
            # By an alias of our own address we would answer ourselves.
            is_other = outcome.source == core.name and outcome.source_address != core.address
            if is_other:
                return self._weigh(inquiry, outcome)
        if isinstance(outcome, NameAck | Refusal):
            return self._settle(inquiry)
        return self._ask_helpers(inquiry, now)

    def _weigh(self, inquiry: _Inquiry, ack: NameAck) -> Settled | None:
        theirs = Member(ack.source, *ack.source_address, ack.source_incarnation)
        if tenure_in(ack) < inquiry.tenure:
            self._lose(theirs, ack.since_ms)
            return None
        self._tell(theirs, ack.since_ms)  # our question makes it ask us in turn
        return self._settle(inquiry)._replace(yields=True)

    def _ask_helpers(self, inquiry: _Inquiry, now: int) -> Settled | None:
        # Perhaps only our own path to the namesake is closed, as by a firewall. No changes ride
        # on these requests: while we are joining, no member must learn of us.
        core, row = self._core, inquiry.row
        helpers = core.members.random_pingable(core.config.ping_req_size)
        inquiry.helpers_open = len(helpers)
        for helper in helpers:
            checksum = core.members.checksum
            request = PingReq(core.cluster, *core.sender, checksum, row.name, *row.address)
            timeout_us = microseconds(core.config.ping_req_timeout_s)
            core.counts.ping_reqs_sent += 1
            then = NameHelp(row.address, inquiry.number)
            self._calls.open(helper.address, request, timeout_us, then, now)
        return None if helpers else self._settle(inquiry)

    def helped(self, call: NameHelp, outcome: Outcome) -> Settled | None:
        """Count the answer of a helper, or that it failed."""
        inquiry = self.inquiries.get(call.address)
        if self._core.stopped or inquiry is None or inquiry.number != call.inquiry:
            return None  # another helper has already reached it
        inquiry.helpers_open -= 1
        if isinstance(outcome, PingReqAck) and outcome.ping_ok:
            return self._seen(inquiry)
        return None if inquiry.helpers_open else self._settle(inquiry)

    def _seen(self, inquiry: _Inquiry) -> Settled | None:
        """Decide after a helper has reached it: it lives, but its tenure is unknown.

        If we are joining, we lose. Otherwise we neither yield nor outbid: the namesake may not
        reach us either, and then both would outbid each other without end.
        """
        if not self._core.ready:
            self._lose(inquiry.row, None)
            return None
        self._tell(inquiry.row, None)
        return self._settle(inquiry)._replace(outbid=None)

    # What follows.

    def _settle(self, inquiry: _Inquiry) -> Settled:
        core, address = self._core, inquiry.row.address
        del self.inquiries[address]
        if not core.ready and len(self._settled) < NAMESAKES_MAX:
            self._settled.add(address)
        if not self.inquiries:
            core.name_in_doubt = False
        return Settled(inquiry.row)

    def _lose(self, theirs: Member, since_ms: int | None) -> None:
        self._core.name_lost = True
        self._core.emit(NameTaken(self._core.local, theirs, lost=True, since_ms=since_ms))

    def _tell(self, theirs: Member, since_ms: int | None) -> None:
        """Report to operators that *theirs* uses our name, once for each address."""
        address = theirs.address
        if address not in self._told and len(self._told) < NAMESAKES_MAX:
            self._told.add(address)
            self._core.emit(NameTaken(self._core.local, theirs, lost=False, since_ms=since_ms))
