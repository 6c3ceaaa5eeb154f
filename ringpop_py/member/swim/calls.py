"""Calls under way: each ends once, with a response, a failure, or a time-out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.member.swim.effects import CallPeer
from ringpop_py.member.swim.messages import Failure, Refusal, Request, Response
from ringpop_py.member.swim.waits import CallDue

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.waits import Continuation

Outcome = Response | Failure
"""How a call ended: its response, or why there was no response."""


class Calls:
    """The open calls by id; ids count up from one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # Whom it calls, the token of its timer, and what for.
        self._open: dict[int, tuple[Address, int, Continuation]] = {}
        self._call_count = 0

    def open(
        self, to: Address, request: Request, timeout_us: int, then: Continuation, now: int
    ) -> None:
        """Send *request*; *then* says what for. The call ends within *timeout_us*."""
        self._call_count = call_id = self._call_count + 1
        # The node times its calls itself, because only its own clock leaves out stalls.
        timeout = self._core.timers.set(now + timeout_us, CallDue(call_id))
        self._open[call_id] = to, timeout, then
        self._core.emit(CallPeer(call_id, to, request, timeout_us))

    def close(self, call_id: int) -> Continuation | None:
        """End the call *call_id*. Return what it was made for; None if it has already ended."""
        call = self._open.pop(call_id, None)
        if call is None:
            return None  # it timed out; a late answer changes nothing
        _, timeout, then = call
        self._core.timers.cancel(timeout)
        return then

    def __len__(self) -> int:
        return len(self._open)


def failure_of(outcome: Outcome) -> Failure:
    """Return *outcome*, which is not the expected answer, as a failure."""
    if isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, Refusal):
        return Failure("declined", f"{outcome.kind}: {outcome.message}")
    return Failure("failed", f"answered with {type(outcome).__name__}")


def silence_of(outcome: Outcome) -> str:
    """Return why a host that was asked for the member list did not send it."""
    failure = failure_of(outcome)
    return f"{failure.reason}: {failure.detail}" if failure.detail else failure.reason
