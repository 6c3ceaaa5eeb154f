"""Asks other processes of our name whether they live, and settles which one keeps it.

Rules for this file: a node that has joined yields only to an answer that it asked for, if the
answering process's tenure precedes its own. No rumour, request or silence ends it. If two processes
live, exactly one yields, because both compare the same two tenures: a tenure changes only when a
process joins or does not run. (They must reach each other; see `_seen`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.swim.effects import NameTaken
from ringpop_py.swim.identity import Tenure, tenure_in
from ringpop_py.swim.member import Member, overrides
from ringpop_py.swim.messages import NameAck, NameReq, PingReq, PingReqAck, Refusal
from ringpop_py.swim.timers import microseconds
from ringpop_py.swim.waits import NameCall, NameHelp

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.calls import Calls, Outcome
    from ringpop_py.swim.core import Core

NAMESAKES_MAX: Final = 64
"""How many addresses a node asks at a time, and how many namesakes it reports in its life."""


@dataclass(slots=True)
class _Inquiry:
    """An open question: whether a process of our name lives at an address.

    Attributes:
        number: distinguishes it from earlier inquiries at the same address.
        row: the newest row with that address that we have received.
        tenure: ours when we asked: the result must not depend on when the answer arrives.
        helpers_open: how many members are still trying to reach it for us.
    """

    number: int
    row: Member
    tenure: Tenure
    helpers_open: int = 0


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
    """Keeps one inquiry for each address; a joining node is not ready until all are closed."""

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self._open: dict[Address, _Inquiry] = {}
        self._inquiry_count = 0
        self._settled: set[Address] = set()
        self._told: set[Address] = set()

    # What we receive.

    def heard_of(self, row: Member, now: int) -> bool:
        """Ask whether the process of *row*, with our name and another address, lives.

        Return whether that is already settled, so that the row only has to be outbid.
        """
        inquiry = self._open.get(row.address)
        if inquiry is not None:
            inquiry.row = row if overrides(row, inquiry.row) else inquiry.row
        elif not self._core.ready and row.address in self._settled:
            return True  # another host's list repeats a row about which we have asked
        elif len(self._open) < NAMESAKES_MAX:
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
        core, local = self._core, self._core.local
        since_ms = core.clock.since_ms
        return NameAck(local.name, *local.address, local.incarnation, since_ms, core.ready)

    # What we ask.

    def _tenure(self) -> Tenure:
        core = self._core
        return Tenure(not core.ready, core.clock.since_ms, core.address)

    def _ask(self, row: Member, now: int) -> None:
        core, local = self._core, self._core.local
        self._inquiry_count += 1
        self._open[row.address] = _Inquiry(self._inquiry_count, row, self._tenure())
        core.name_in_doubt = not core.ready
        request = NameReq(
            core.cluster,
            local.name,
            *local.address,
            local.incarnation,
            core.clock.since_ms,
            core.ready,
        )
        timeout_us = microseconds(core.config.ping_timeout_s)
        self._calls.open(row.address, request, timeout_us, NameCall(row.address), now)

    def answered(self, address: Address, outcome: Outcome, now: int) -> Settled | None:
        """Handle the answer from *address*; if none came, ask helpers."""
        core, inquiry = self._core, self._open[address]
        if core.stopped:
            return None
        if isinstance(outcome, NameAck) and _is_another(outcome, core.local):
            return self._weigh(inquiry, outcome)
        if isinstance(outcome, NameAck | Refusal):
            return self._settle(inquiry)
        return self._ask_helpers(inquiry, now)

    def _weigh(self, inquiry: _Inquiry, ack: NameAck) -> Settled | None:
        """Decide which of us yields, because the namesake lives."""
        theirs = Member(ack.source, *ack.source_address, ack.source_incarnation)
        if tenure_in(ack) < inquiry.tenure:
            self._lose(theirs, ack.since_ms)
            return None
        self._tell(theirs, ack.since_ms)  # our question makes it ask us in turn
        return self._settle(inquiry)._replace(yields=True)

    def _ask_helpers(self, inquiry: _Inquiry, now: int) -> Settled | None:
        """Ask members to ping it: only our own way there may be closed, for example by a firewall.

        No changes ride on this: while we are joining, no member must learn of us.
        """
        core, row = self._core, inquiry.row
        helpers = core.members.random_pingable(core.config.ping_req_size)
        inquiry.helpers_open = len(helpers)
        for helper in helpers:
            request = PingReq(
                core.cluster,
                core.name,
                *core.address,
                core.local.incarnation,
                core.members.checksum,
                row.name,
                *row.address,
            )
            timeout_us = microseconds(core.config.ping_req_timeout_s)
            core.counts.ping_reqs_sent += 1
            then = NameHelp(row.address, inquiry.number)
            self._calls.open(helper.address, request, timeout_us, then, now)
        return None if helpers else self._settle(inquiry)

    def helped(self, call: NameHelp, outcome: Outcome) -> Settled | None:
        """Count the answer of a helper, or that it failed."""
        inquiry = self._open.get(call.address)
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
        """Close *inquiry*; the name is still ours."""
        core, address = self._core, inquiry.row.address
        del self._open[address]
        if not core.ready and len(self._settled) < NAMESAKES_MAX:
            self._settled.add(address)
        if not self._open:
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


def _is_another(ack: NameAck, local: Member) -> bool:
    """Return whether another process of our name answered, and not we ourselves by an alias."""
    return ack.source == local.name and ack.source_address != local.address
