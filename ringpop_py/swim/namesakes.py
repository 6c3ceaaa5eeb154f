"""Asks the processes that are said to have our name whether they live, and settles whose it is.

Rules for this file: a node yields only to an answer that it has asked for, of a process whose
tenure comes before its own. A rumour, a request or silence ends no node. So of two that live one
yields: each compares the same two tenures, and those change only while a process does not run.
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
"""So many addresses a node asks at a time at most, and so many namesakes it reports in its life."""


@dataclass(slots=True)
class _Inquiry:
    """An open question: whether a process of our name lives at an address.

    Attributes:
        number: tells it from earlier ones of the same address.
        row: the newest row of it that we have received.
        tenure: ours when we asked. What comes of the answer must not depend on when it arrives.
        helpers_open: how many members are trying to reach it for us.
    """

    number: int
    row: Member
    tenure: Tenure
    helpers_open: int = 0


class Settled(NamedTuple):
    """An inquiry is closed, and the name is still ours.

    Attributes:
        outbid: the row that the members should hear to be outdated, if there is one.
        yields: whether a living process has to yield to us: the members should learn so before
            that process is started again.
    """

    outbid: Member | None
    yields: bool = False


class Namesakes:
    """Asks each namesake once at a time; a joining node is not ready until it knows."""

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self._open: dict[Address, _Inquiry] = {}
        self._inquiry_count = 0
        self._settled: set[Address] = set()
        self._told: set[Address] = set()

    # What we receive.

    def heard_of(self, row: Member, now: int) -> bool:
        """*row* says that a process of our name is at another address: find out.

        Returns: whether that is settled, so that the row has only to be outbid.
        """
        inquiry = self._open.get(row.address)
        if inquiry is not None:
            inquiry.row = row if overrides(row, inquiry.row) else inquiry.row
        elif not self._core.ready and row.address in self._settled:
            return True  # another host's list repeats what is settled
        elif len(self._open) < NAMESAKES_MAX:
            self._ask(row, now)
        return False

    def pinged_by(self, row: Member, now: int) -> bool:
        """The process of *row*, at another address, pings in our name.

        Returns: whether its row comes before ours, so that we have to find out.
        """
        if self._core.stopped or not self._core.is_believable(row, now):
            return False
        if overrides(row, self._core.local):
            return True
        self._tell(row, None)  # it gets our row in the answer, and will ask us
        return False

    def asked_by(self, request: NameReq, now: int) -> Member | None:
        """*request* asks who we are. Returns: the row of a namesake that comes before us."""
        core = self._core
        row = Member(request.source, *request.source_address, request.source_incarnation)
        ours = row.name == core.name and row.address != core.address
        if ours and not core.stopped and core.is_believable(row, now):
            if tenure_in(request) < self._tenure():
                return row
            self._tell(row, request.since_ms)
        return None

    def ack(self) -> NameAck:
        """Who we are."""
        core, local = self._core, self._core.local
        since_ms = core.clock.since_ms
        return NameAck(local.name, *local.address, local.incarnation, since_ms, core.ready)

    # What we find out.

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
        """The question to *address* is answered, or will not be."""
        core, inquiry = self._core, self._open[address]
        if core.stopped:
            return None
        if isinstance(outcome, NameAck) and _is_another(outcome, core.local):
            return self._weigh(inquiry, outcome)
        if isinstance(outcome, NameAck | Refusal):
            return self._settle(inquiry)
        return self._ask_helpers(inquiry, now)

    def _weigh(self, inquiry: _Inquiry, ack: NameAck) -> Settled | None:
        """Settle which of us yields: the namesake lives."""
        theirs = Member(ack.source, *ack.source_address, ack.source_incarnation)
        if tenure_in(ack) < inquiry.tenure:
            self._lose(theirs, ack.since_ms)
            return None
        self._tell(theirs, ack.since_ms)  # it asks us as well, for it was asked
        return self._settle(inquiry)._replace(yields=True)

    def _ask_helpers(self, inquiry: _Inquiry, now: int) -> Settled | None:
        """Have others try to reach it: our own way there may be closed, for example by a firewall.

        No changes ride along: while we are joining, no member is to learn of us.
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
        """A helper has tried to reach a namesake, or did not answer."""
        inquiry = self._open.get(call.address)
        if self._core.stopped or inquiry is None or inquiry.number != call.inquiry:
            return None  # it is settled: another helper has reached it
        inquiry.helpers_open -= 1
        if isinstance(outcome, PingReqAck) and outcome.ping_ok:
            return self._seen(inquiry)
        return None if inquiry.helpers_open else self._settle(inquiry)

    def _seen(self, inquiry: _Inquiry) -> Settled | None:
        """A helper has reached it, so it lives; but its tenure is not known.

        If we are joining, we lose. Otherwise we keep still: the namesake does not reach us either,
        and if both outbid each other, that would never end.
        """
        if not self._core.ready:
            self._lose(inquiry.row, None)
            return None
        self._tell(inquiry.row, None)
        return self._settle(inquiry)._replace(outbid=None)

    # What comes of it.

    def _settle(self, inquiry: _Inquiry) -> Settled:
        """Close *inquiry*: the name is still ours."""
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
        """Report two processes under one name, once an address: an operator should know."""
        address = theirs.address
        if address not in self._told and len(self._told) < NAMESAKES_MAX:
            self._told.add(address)
            self._core.emit(NameTaken(self._core.local, theirs, lost=False, since_ms=since_ms))


def _is_another(ack: NameAck, local: Member) -> bool:
    """Whether a process of our name has answered, and not we ourselves by another address."""
    return ack.source == local.name and ack.source_address != local.address
