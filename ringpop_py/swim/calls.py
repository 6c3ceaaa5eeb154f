"""The calls under way: each ends once, with its response, its failure, or its time-out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringpop_py.swim.effects import CallPeer
from ringpop_py.swim.messages import Failure, Refusal, Request, Response

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.timers import Timer

Outcome = Response | Failure
"""How a call ended: with a response, or without, and why."""

OnDone = Callable[[Outcome, int], None]
"""What to do with the outcome of a call, and the instant of its end."""


@dataclass(slots=True)
class _OpenCall:
    timeout: Timer
    done: OnDone


class Calls:
    """Open calls by their ids, which count up from one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._open: dict[int, _OpenCall] = {}
        self._call_count = 0

    def open(self, to: Address, request: Request, timeout_us: int, done: OnDone, now: int) -> None:
        """Send *request*; *done* learns how that ended, within *timeout_us*."""
        self._call_count += 1
        call_id = self._call_count
        timeout = self._core.timers.set(now + timeout_us, self._timed_out, call_id)
        self._open[call_id] = _OpenCall(timeout, done)
        self._core.emit(CallPeer(call_id, to, request, timeout_us))

    def close(self, call_id: int, outcome: Outcome, now: int) -> None:
        """End the call *call_id*, if it is still open."""
        call = self._open.pop(call_id, None)
        if call is None:
            return  # it was given up before; what comes late changes nothing
        call.timeout.cancel()
        call.done(outcome, now)

    def _timed_out(self, call_id: int, now: int) -> None:
        self.close(call_id, Failure("timeout"), now)

    def __len__(self) -> int:
        return len(self._open)


def failure_of(outcome: Outcome) -> Failure:
    """How the call failed of which *outcome* came, as one that was to bring an `Ack`."""
    if isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, Refusal):
        return Failure("declined", f"{outcome.kind}: {outcome.message}")
    return Failure("failed", f"answered with {type(outcome).__name__}")
