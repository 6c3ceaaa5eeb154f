"""Asks the processes that are said to have our name whether they live, and settles whose it is.

Rules for this file: a node yields only to an answer that it has asked for, of a process whose
tenure comes before its own. A rumour, a request or silence ends no node. So of two that live one
yields: each compares the same two tenures, and those change only while a process does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.effects import NameTaken
from ringpop_py.swim.identity import Tenure, tenure_in
from ringpop_py.swim.member import Member, overrides
from ringpop_py.swim.messages import NameAck, NameReq, PingReq, PingReqAck, Refusal
from ringpop_py.swim.timers import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.address import Address
    from ringpop_py.swim.calls import Calls, Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.rows import Rows

NAMESAKES_MAX: Final = 64
"""So many addresses a node asks at a time at most, and so many namesakes it reports in its life."""


@dataclass(slots=True)
class _Inquiry:
    """An open question: whether a process of our name lives at an address.

    Attributes:
        row: the newest row of it that we have received.
        tenure: ours when we asked. What comes of the answer must not depend on when it arrives.
        helpers_open: how many members are trying to reach it for us.
    """

    row: Member
    tenure: Tenure
    helpers_open: int = 0


class Namesakes:
    """Asks each namesake once at a time; a joining node is not ready until it knows.

    Attributes:
        on_lost: called once, when our name belongs to another process.
        on_settled: called when no inquiry is open any more, and the name is still ours.
        on_kept: called when we have joined, and a living process has to yield to us: the members
            should learn so before that process is started again.
    """

    def __init__(self, core: Core, rows: Rows, calls: Calls) -> None:
        self._core = core
        self._rows = rows
        self._calls = calls
        self._open: dict[Address, _Inquiry] = {}
        self._settled: set[Address] = set()
        self._told: set[Address] = set()
        self.on_lost: Callable[[], None] = _do_nothing
        self.on_settled: Callable[[int], None] = _ignore
        self.on_kept: Callable[[int], None] = _ignore
        rows.on_namesake = self.heard_of

    # What we receive.

    def heard_of(self, row: Member, now: int) -> None:
        """*row* says that a process of our name is at another address: find out."""
        inquiry = self._open.get(row.address)
        if inquiry is not None:
            inquiry.row = row if overrides(row, inquiry.row) else inquiry.row
        elif not self._core.ready and row.address in self._settled:
            self._rows.outbid(row, now)  # another host's list repeats what is settled
        elif len(self._open) < NAMESAKES_MAX:
            self._ask(row, now)

    def pinged_by(self, row: Member, now: int) -> None:
        """Take note that the process of *row*, at another address, pings in our name."""
        if self._core.stopped or not self._rows.is_believable(row, now):
            return
        if overrides(row, self._core.local):
            self.heard_of(row, now)
        else:
            self._tell(row, None)  # it gets our row in the answer, and will ask us

    def answer(self, request: NameReq, now: int) -> NameAck:
        """Say who we are; and ask back a namesake that comes before us."""
        core = self._core
        row = Member(request.source, request.source_address, request.source_incarnation)
        ours = row.name == core.name and row.address != core.address
        if ours and not core.stopped and self._rows.is_believable(row, now):
            if tenure_in(request) < self._tenure():
                self.heard_of(row, now)
            else:
                self._tell(row, request.since_ms)
        local = core.local
        return NameAck(local.name, local.address, local.incarnation, core.since_ms, core.ready)

    # What we find out.

    def _tenure(self) -> Tenure:
        core = self._core
        return Tenure(not core.ready, core.since_ms, core.address)

    def _ask(self, row: Member, now: int) -> None:
        core = self._core
        inquiry = self._open[row.address] = _Inquiry(row, self._tenure())
        core.name_in_doubt = not core.ready

        def answered(outcome: Outcome, now: int) -> None:
            if core.stopped:
                return
            if isinstance(outcome, NameAck) and _is_another(outcome, core.local):
                self._weigh(inquiry, outcome, now)
            elif isinstance(outcome, NameAck | Refusal):
                self._settle(inquiry, now, outbid=True)
            else:
                self._ask_helpers(inquiry, now)

        local = core.local
        request = NameReq(
            core.cluster, local.name, local.address, local.incarnation, core.since_ms, core.ready
        )
        timeout_us = microseconds(core.config.ping_timeout_s)
        self._calls.open(row.address, request, timeout_us, answered, now)

    def _weigh(self, inquiry: _Inquiry, ack: NameAck, now: int) -> None:
        """Settle which of us yields: the namesake lives."""
        theirs = Member(ack.source, ack.source_address, ack.source_incarnation)
        if tenure_in(ack) < inquiry.tenure:
            self._lose(theirs, ack.since_ms)
        else:
            self._tell(theirs, ack.since_ms)  # it asks us as well, for it was asked
            self._settle(inquiry, now, outbid=True)
            if self._core.ready:
                self.on_kept(now)

    def _ask_helpers(self, inquiry: _Inquiry, now: int) -> None:
        """Have others try to reach it: our own way there may be closed, for example by a firewall.

        No changes ride along: while we are joining, no member is to learn of us.
        """
        core, row = self._core, inquiry.row
        helpers = core.members.random_pingable(core.config.ping_req_size)
        inquiry.helpers_open = len(helpers)

        def answered(outcome: Outcome, now: int) -> None:
            if core.stopped or self._open.get(row.address) is not inquiry:
                return  # it is settled: another helper has reached it
            inquiry.helpers_open -= 1
            if isinstance(outcome, PingReqAck) and outcome.ping_ok:
                self._seen(inquiry, now)
            elif not inquiry.helpers_open:
                self._settle(inquiry, now, outbid=True)

        for helper in helpers:
            request = PingReq(
                core.cluster,
                core.name,
                core.address,
                core.local.incarnation,
                core.members.checksum,
                row.name,
                row.address,
            )
            timeout_us = microseconds(core.config.ping_req_timeout_s)
            core.counts.ping_reqs_sent += 1
            self._calls.open(helper.address, request, timeout_us, answered, now)
        if not helpers:
            self._settle(inquiry, now, outbid=True)

    def _seen(self, inquiry: _Inquiry, now: int) -> None:
        """A helper has reached it, so it lives; but its tenure is not known.

        If we are joining, we lose. Otherwise we keep still: the namesake does not reach us either,
        and if both outbid each other, that would never end.
        """
        if self._core.ready:
            self._tell(inquiry.row, None)
            self._settle(inquiry, now, outbid=False)
        else:
            self._lose(inquiry.row, None)

    # What comes of it.

    def _settle(self, inquiry: _Inquiry, now: int, *, outbid: bool) -> None:
        """Close *inquiry*: the name is still ours. With *outbid*, have the members know it."""
        core, address = self._core, inquiry.row.address
        del self._open[address]
        if not core.ready and len(self._settled) < NAMESAKES_MAX:
            self._settled.add(address)
        if outbid:
            self._rows.outbid(inquiry.row, now)
        if not self._open:
            core.name_in_doubt = False
            self.on_settled(now)

    def _lose(self, theirs: Member, since_ms: int | None) -> None:
        self._core.name_lost = True
        self._core.emit(NameTaken(self._core.local, theirs, lost=True, since_ms=since_ms))
        self.on_lost()

    def _tell(self, theirs: Member, since_ms: int | None) -> None:
        """Report two processes under one name, once an address: an operator should know."""
        address = theirs.address
        if address not in self._told and len(self._told) < NAMESAKES_MAX:
            self._told.add(address)
            self._core.emit(NameTaken(self._core.local, theirs, lost=False, since_ms=since_ms))


def _is_another(ack: NameAck, local: Member) -> bool:
    """Whether a process of our name has answered, and not we ourselves by another address."""
    return ack.source == local.name and ack.source_address != local.address


def _do_nothing() -> None:
    """Do nothing: the node has not set its own function yet."""


def _ignore(_now: int) -> None:
    """Do nothing: the node has not set its own function yet."""
