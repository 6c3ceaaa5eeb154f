"""Our calls in flight, and how they end with their connection.

Rules for this file: one slotted object for each call, and no task, lock, event or cancel scope.
Each call ends exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from ringpop_py.errors import (
    CallError,
    ConnectBroke,
    ConnectionLost,
    ConnectTooSlow,
    PeerSilent,
)
from ringpop_py.transport.deadlines import Timed
from ringpop_py.wire.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.wire.calls import Call

Outcome = Answer | CallError
NOT_SENT: Final = -1


class _CallingLink(Protocol):
    def give_up(self, pending: PendingCall, why: str) -> None: ...
    def timed_out(self, pending: PendingCall) -> None: ...


class LinkEnd(NamedTuple):
    """Why a connection ends, and with which errors its calls end.

    Attributes:
        broke: whether it was lost, and not closed on purpose by one of its ends.
        unsent: the error of calls of which nothing was written.
        sent: the error of calls that the peer may have received.
    """

    reason: str
    broke: bool = True
    unsent: type[CallError] = ConnectBroke
    sent: type[CallError] = ConnectionLost


def silence(reason: str) -> LinkEnd:
    """Return the end of a connection because its peer is silent."""
    # The peer may still run, so its calls must not end as if it had closed the connection.
    return LinkEnd(reason, unsent=ConnectTooSlow, sent=PeerSilent)


@dataclass(slots=True, eq=False)
class PendingCall(Timed):
    """A call of ours.

    Attributes:
        done: called with how it ended.
        id: on its connection, or `NOT_SENT`.
        queued_at: how many bytes the connection had queued before it.
    """

    call: Call
    done: Callable[[Outcome], None] | None = None
    id: int = field(default=NOT_SENT, init=False)
    queued_at: int = field(default=0, init=False)
    deadline: float = field(default=0.0, init=False)
    link: _CallingLink | None = field(default=None, init=False)
    ended: bool = field(default=False, init=False)

    def finish(self, outcome: Outcome) -> None:
        """End the call with *outcome*; only the first time counts."""
        if not self.ended:
            self.ended = True
            assert self.done is not None
            self.done(outcome)

    def expire(self) -> None:
        """See `Timed`."""
        assert self.link is not None
        self.link.timed_out(self)


@dataclass(slots=True, eq=False)
class ParkedCall(PendingCall):
    """A call for which the task that makes it is parked."""

    outcome: Outcome | None = field(default=None, init=False)
    _task: trio.lowlevel.Task = field(default_factory=trio.lowlevel.current_task, init=False)
    _parked: bool = field(default=False, init=False)

    def finish(self, outcome: Outcome) -> None:
        """Wake the task."""
        if not self.ended:
            self.ended = True
            self.outcome = outcome
            if self._parked:
                self._parked = False
                trio.lowlevel.reschedule(self._task)

    async def wait(self) -> Answer:
        """Wait for the answer and return it. Raises CallError."""
        if self.ended:  # immediately, for example at a limit; a call must still be a checkpoint
            await trio.lowlevel.checkpoint()
        else:
            self._parked = True
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        outcome = self.outcome
        if isinstance(outcome, Answer):
            return outcome
        assert outcome is not None
        raise outcome

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._parked = False
        self.ended = True  # an answer that comes now must not wake the task a second time
        if self.link is not None:
            self.link.give_up(self, "the caller was cancelled")
        return trio.lowlevel.Abort.SUCCEEDED
