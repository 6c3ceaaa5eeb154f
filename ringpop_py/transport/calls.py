"""Calls in flight: those that we wait for, and those that wait for us.

Rules for this file: an object a call, slotted, and no task, lock, event or cancel scope for it;
only a handler that awaits gets a task. Each call ends exactly once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ringpop_py.errors import (
    BadRequest,
    CallError,
    CallTimeout,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    TooManyInFlight,
    WireError,
)
from ringpop_py.transport.deadlines import Timed
from ringpop_py.wire.calls import Answer
from ringpop_py.wire.frames import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.wire.calls import Call
    from ringpop_py.wire.events import CallReceived

Outcome = Answer | CallError
NOT_SENT: Final = -1


class _CallingLink(Protocol):
    def give_up(self, pending: PendingCall, why: str) -> None: ...
    def timed_out(self, pending: PendingCall) -> None: ...


class PendingCall(Timed):
    """A call of ours; *done* is told how it ended.

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
        """Tell how the call ended; only the first time counts."""
        if not self.ended:
            self.ended = True
            assert self._done is not None
            self._done(outcome)

    def expire(self) -> None:
        """See `Timed`."""
        assert self.link is not None
        self.link.timed_out(self)


class ParkedCall(PendingCall):
    """A call on which the task that makes it is parked."""

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
        """The answer.

        Raises:
            CallError: if there is none.
        """
        if self.ended:
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
        self.ended = True
        if self.link is not None:
            self.link.give_up(self, "the caller was cancelled")
        return trio.lowlevel.Abort.SUCCEEDED


class _ServingLink(Protocol):
    def answer(self, incoming: IncomingCall, answer: Answer) -> None: ...
    def refuse(self, incoming: IncomingCall, code: ErrorCode, message: str) -> None: ...
    def report(self, incoming: IncomingCall, error: Exception) -> None: ...
    def tell_unreadable(self, incoming: IncomingCall, why: str) -> None: ...

    @property
    def peer_host_port(self) -> str: ...

    @property
    def peer_name(self) -> str: ...


class IncomingCall(Timed):
    """A call of a peer. Answer it once; what comes after the first, or too late, is dropped.

    Attributes:
        deadline: when the peer stops waiting, on the scale of `trio.current_time`.
    """

    __slots__ = ("_event", "_link", "deadline", "ended", "scope")

    def __init__(self, link: _ServingLink, event: CallReceived, deadline: float) -> None:
        self.bucket = None
        self.deadline = deadline
        self.ended = False
        self.scope: trio.CancelScope | None = None
        self._link = link
        self._event = event

    def __repr__(self) -> str:
        return f"<IncomingCall {self.service} {self.endpoint} from {self.peer}>"

    @property
    def id(self) -> int:
        """Its id on its connection."""
        return self._event.id

    @property
    def service(self) -> str:
        """The service that is called."""
        return self._event.head.service

    @property
    def endpoint(self) -> str:
        """What of it is called."""
        return self._event.head.endpoint

    @property
    def scheme(self) -> str:
        """How the arguments are encoded; an answer is in the same unless it says otherwise."""
        return self._event.head.scheme

    @property
    def headers(self) -> Mapping[str, str]:
        """All transport headers."""
        return self._event.head.headers

    @property
    def arg2(self) -> bytes:
        """The application's headers."""
        return self._event.arg2

    @property
    def arg3(self) -> bytes:
        """The body."""
        return self._event.arg3

    @property
    def peer(self) -> str:
        """Where the caller says that it listens."""
        return self._link.peer_host_port

    @property
    def caller(self) -> str:
        """Who calls, for people: where it says that it listens, or its machine, if nowhere."""
        return self._link.peer_name

    def answer(self, answer: Answer) -> None:
        """Answer the call."""
        if not self.ended:
            self._link.answer(self, answer)

    def fail(self, error: Exception) -> None:
        """End the call with the error that *error* stands for.

        One that stands for none is reported on this side, and told by its name only, unless it
        is a `PeerFailed`: its words are meant for the caller.
        """
        if not self.ended:
            code = failure_code(error)
            text = str(error)
            if isinstance(error, WireError):
                self._link.tell_unreadable(self, text)
            if code == ErrorCode.UNEXPECTED:
                self._link.report(self, error)
                text = text if isinstance(error, PeerFailed) else type(error).__name__
            self._link.refuse(self, code, text)

    def expire(self) -> None:
        """See `Timed`."""
        self._link.refuse(self, ErrorCode.TIMEOUT, "the time given to the call ran out")
        self.stop()

    def stop(self) -> None:
        """Nobody waits for it any more: cancel its handler, if that is a task."""
        self.ended = True
        if self.scope is not None:
            self.scope.cancel()

    async def run(self, handling: Awaitable[Answer | None]) -> None:
        """Answer with what *handling* returns, until there is nobody to answer."""
        assert self.scope is not None
        with self.scope:
            try:
                answer = await handling
            except Exception as error:  # noqa: BLE001 - a handler's bug ends its call only
                self.fail(error)
            else:
                if answer is not None:
                    self.answer(answer)


Handler = Callable[[IncomingCall], Answer | Awaitable[Answer | None] | None]
"""Answers at once, or with what it returns to be awaited, or (None) later by `answer`."""

_CODES: Final = (
    (PeerDeclined, ErrorCode.DECLINED),
    (PeerBusy, ErrorCode.BUSY),
    (TooManyInFlight, ErrorCode.BUSY),
    (BadRequest, ErrorCode.BAD_REQUEST),
    (WireError, ErrorCode.BAD_REQUEST),
    (CallTimeout, ErrorCode.TIMEOUT),
)


def failure_code(error: Exception) -> ErrorCode:
    """How a handler's *error* is told to the caller."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNEXPECTED
