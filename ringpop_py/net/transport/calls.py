"""Our calls in flight, and how they end with their connection.

Rules for this file: one struct for each call, and no task, lock, event or cancel scope; nor is it
on the wheel of deadlines by itself (`CallDeadlines`). Each call ends exactly once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from ringpop_py.base import errors
from ringpop_py.base.values.declared import Struct
from ringpop_py.net.wire.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.net.transport.deadlines import Timed, Wheel
    from ringpop_py.net.wire.calls import Call

Outcome = Answer | errors.CallError
NOT_SENT: Final = -1


class _CallingLink(Protocol):
    def give_up(self, pending: PendingCall, why: str) -> None: ...
    def settle(self) -> None: ...


class LinkEnd(NamedTuple):
    """Why a connection ends, and with which errors its calls end.

    Attributes:
        broke: whether it was lost, and not closed on purpose by one of its ends.
        unsent: the error of calls of which nothing was written.
        sent: the error of calls that the peer may have received.
    """

    reason: str
    broke: bool = True
    unsent: type[errors.CallError] = errors.ConnectBroke
    sent: type[errors.CallError] = errors.ConnectionLost


def silence(reason: str) -> LinkEnd:
    """Return the end of a connection because its peer is silent."""
    # The peer may still run, so its calls must not end as if it had closed the connection.
    return LinkEnd(reason, unsent=errors.ConnectTooSlow, sent=errors.PeerSilent)


class PendingCall(Struct, eq=False):
    """A call of ours.

    Attributes:
        done: called with how it ended.
        id: on its connection, or `NOT_SENT`.
        queued_at: how many bytes the connection had queued before it.
        deadline: when it ends without an answer, on the scale of `trio.current_time`.
    """

    call: Call
    done: Callable[[Outcome], None] | None = None
    id: int = NOT_SENT
    queued_at: int = 0
    deadline: float = inf
    link: _CallingLink | None = None
    ended: bool = False

    def finish(self, outcome: Outcome) -> None:
        """End the call with *outcome*; only the first time counts."""
        if not self.ended:
            self.ended = True
            assert self.done is not None
            self.done(outcome)


class ParkedCall(PendingCall, eq=False):
    """A call for which the task that makes it is parked.

    Attributes:
        task: the one that waits for it.
    """

    outcome: Outcome | None = None
    task: trio.lowlevel.Task | None = None

    def finish(self, outcome: Outcome) -> None:
        """Wake the task."""
        if not self.ended:
            self.ended = True
            self.outcome = outcome
            if self.task is not None:
                trio.lowlevel.reschedule(self.task)

    async def wait(self) -> Answer:
        """Wait for the answer and return it. Raises CallError."""
        if self.ended:  # immediately, for example at a limit; a call must still be a checkpoint
            await trio.lowlevel.checkpoint()
        else:
            self.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        outcome = self.outcome
        if isinstance(outcome, Answer):
            return outcome
        assert outcome is not None
        raise outcome

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self.ended = True  # an answer that comes now must not wake the task a second time
        if self.link is not None:
            self.link.give_up(self, "the caller was cancelled")
        return trio.lowlevel.Abort.SUCCEEDED


class CallDeadlines:
    """The deadlines of all calls on one connection, as one entry of the wheel: the earliest.

    Hardly any call runs out of time, so each but the first costs one comparison and no entry. When
    the entry is due, all calls are looked at, and the earliest deadline of those that are left is
    the next; so a connection that is used wakes the wheel once in the time of a call. See `Timed`.

    Args:
        calls: returns those that have not ended.
        end: ends one whose time is over.

    Attributes:
        next_at: when the calls are looked at; who adds one with an earlier deadline calls `watch`.
    """

    __slots__ = ("_calls", "_end", "_wheel", "bucket", "next_at")

    def __init__(
        self,
        wheel: Wheel,
        calls: Callable[[], Iterable[PendingCall]],
        end: Callable[[PendingCall], None],
    ) -> None:
        self.bucket: dict[Timed, None] | None = None
        self.next_at = inf
        self._wheel = wheel
        self._calls = calls
        self._end = end

    def watch(self, deadline: float) -> None:
        """Look at the calls at *deadline*, unless it is infinite."""
        self._wheel.discard(self)
        self.next_at = deadline
        if deadline < inf:
            self._wheel.add(self, deadline)

    def expire(self) -> None:
        """See `Timed`."""
        now = trio.current_time()
        late: list[PendingCall] = []
        next_at = inf
        for pending in self._calls():
            if pending.deadline <= now:
                late.append(pending)
            else:
                next_at = min(next_at, pending.deadline)
        self.watch(next_at)
        for pending in late:
            if not pending.ended:  # the end of one may end others
                self._end(pending)
