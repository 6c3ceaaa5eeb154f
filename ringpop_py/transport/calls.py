"""Our calls in flight, and how they end with their connection.

Rules for this file: one slotted object for each call, and no task, lock, event or cancel scope.
Each call ends exactly once.
"""

from __future__ import annotations

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
        unsent: of calls of which nothing was written.
        sent: of calls that the peer may have received.
    """

    reason: str
    broke: bool = True
    unsent: type[CallError] = ConnectBroke
    sent: type[CallError] = ConnectionLost


def silence(reason: str) -> LinkEnd:
    """Return the end of a connection because its peer is silent."""
    # The peer may still run, so its calls must not end as if it had closed the connection.
    return LinkEnd(reason, unsent=ConnectTooSlow, sent=PeerSilent)


class PendingCall(Timed):
    """A call of ours; *done* is called with how it ended.

    Attributes:
        id: on its connection, or `NOT_SENT`.
        queued_at: how many bytes the connection had queued before it.
    """

    __slots__ = ("_done", "call", "deadline", "ended", "id", "link", "queued_at")

    def __init__(self, call: Call, done: Callable[[Outcome], None] | None) -> None:
        self.bucket = None
        self.call = call
        self.id = NOT_SENT
        self.queued_at = 0
        self.deadline = 0.0
        self.link: _CallingLink | None = None
        self.ended = False
        self._done = done

    def finish(self, outcome: Outcome) -> None:
        """End the call with *outcome*; only the first time counts."""
        if not self.ended:
            self.ended = True
            assert self._done is not None
            self._done(outcome)

    def expire(self) -> None:
        """See `Timed`."""
        assert self.link is not None
        self.link.timed_out(self)


class ParkedCall(PendingCall):
    """A call for which the task that makes it is parked."""

    __slots__ = ("_parked", "_task", "outcome")

    def __init__(self, call: Call) -> None:
        super().__init__(call, None)
        self.outcome: Outcome | None = None
        self._task = trio.lowlevel.current_task()
        self._parked = False

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
