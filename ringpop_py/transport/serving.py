"""The serving side: which handler answers a call, and the peer's calls while they are answered.

Rules for this file: an object a call, slotted; only a handler that awaits gets a task. Each call
ends exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import trio

from ringpop_py.errors import (
    BadRequest,
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
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ringpop_py.config.settings import WireLimits
    from ringpop_py.drain import Work
    from ringpop_py.transport.deadlines import Wheel
    from ringpop_py.transport.writer import Flusher, LinkWriter
    from ringpop_py.wire.connection import Connection
    from ringpop_py.wire.events import CallReceived

ANY_ENDPOINT: Final = "*"


class IncomingCall(Timed):
    """A call of a peer. Answer it once; what comes after the first, or too late, is dropped.

    Attributes:
        deadline: when the peer stops waiting, on the scale of `trio.current_time`.
    """

    __slots__ = ("_calls", "_event", "deadline", "ended", "scope")

    def __init__(self, calls: IncomingCalls, event: CallReceived, deadline: float) -> None:
        self.bucket = None
        self.deadline = deadline
        self.ended = False
        self.scope: trio.CancelScope | None = None
        self._calls = calls
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
        return self._calls.peer_host_port

    @property
    def caller(self) -> str:
        """Who calls, for people: where it says that it listens, or its machine, if nowhere."""
        return self._calls.peer_name

    def answer(self, answer: Answer) -> None:
        """Answer the call."""
        if not self.ended:
            self._calls.answer(self, answer)

    def fail(self, error: Exception) -> None:
        """End the call with the error that *error* stands for.

        One that stands for none is reported on this side, and told by its name only, unless it
        is a `PeerFailed`: its words are meant for the caller.
        """
        if not self.ended:
            code = failure_code(error)
            text = str(error)
            if isinstance(error, WireError):
                self._calls.tell_unreadable(self, text)
            if code == ErrorCode.UNEXPECTED:
                self._calls.report(self, error)
                text = text if isinstance(error, PeerFailed) else type(error).__name__
            self._calls.refuse(self, code, text)

    def expire(self) -> None:
        """See `Timed`."""
        self._calls.refuse(self, ErrorCode.TIMEOUT, "the time given to the call ran out")
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


class Handlers:
    """What answers which calls, and which are declined.

    Attributes:
        on_unserved: called with service and endpoint of a call that nothing serves; it may `serve`
            the endpoint, and the call is then answered.
        asked_count: of all calls for which a handler was looked up.
    """

    def __init__(self) -> None:
        self.on_unserved: Callable[[str, str], None] | None = None
        self.asked_count = 0
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._works: dict[tuple[str, str], Work] = {}
        self._declined: Collection[Work] = ()
        self._why_declined = ""

    def serve(self, service: str, endpoint: str, handler: Handler, work: Work | None) -> None:
        """See `Channel.serve`."""
        self._handlers[service, endpoint] = handler
        if work is not None:
            self._works[service, endpoint] = work

    def decline(self, works: Collection[Work], reason: str) -> None:
        """See `Channel.decline`."""
        self._declined, self._why_declined = works, reason

    def handler_for(self, service: str, endpoint: str) -> Handler | None:
        """What answers a call of *endpoint*; None if nothing does."""
        self.asked_count += 1
        if self._declined and self._work_of(service, endpoint) in self._declined:
            return self._decline
        handler = self._find(service, endpoint)
        if handler is None and self.on_unserved is not None:
            self.on_unserved(service, endpoint)
            handler = self._find(service, endpoint)
        return handler

    def works_of(self, calls: Iterable[IncomingCall]) -> Counter[Work]:
        """How many of *calls* are of each kind of work."""
        works = (self._work_of(call.service, call.endpoint) for call in calls)
        return Counter(work for work in works if work is not None)

    def _find(self, service: str, endpoint: str) -> Handler | None:
        handler = self._handlers.get((service, endpoint))
        return handler or self._handlers.get((service, ANY_ENDPOINT))

    def _work_of(self, service: str, endpoint: str) -> Work | None:
        work = self._works.get((service, endpoint))
        return work or self._works.get((service, ANY_ENDPOINT))

    def _decline(self, _: IncomingCall) -> NoReturn:
        raise PeerDeclined(self._why_declined)


class ServingHost(Protocol):
    """What serving needs of the Channel."""

    wheel: Wheel
    limits: WireLimits
    handlers: Handlers
    flusher: Flusher

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """See `Channel.spawn`."""

    def report(self, endpoint: str, error: Exception) -> None:
        """See `Channel.report`."""

    def tell_trouble(self, peer_name: str, endpoint: str, reason: str) -> None:
        """See `Channel.tell_trouble`."""


class _ServingLink(Protocol):
    connection: Connection
    writer: LinkWriter

    @property
    def peer_name(self) -> str: ...


class IncomingCalls:
    """The calls of one peer on one connection that wait for an answer."""

    def __init__(self, host: ServingHost, link: _ServingLink) -> None:
        self._host = host
        self._link = link
        self._connection = link.connection
        self._writer = link.writer
        self._calls: dict[int, IncomingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[IncomingCall]:
        return iter(self._calls.values())

    @property
    def peer_host_port(self) -> str:
        """Where the peer says that it listens."""
        return self._connection.peer_host_port

    @property
    def peer_name(self) -> str:
        """The peer, for people."""
        return self._link.peer_name

    def serve(self, event: CallReceived, now: float) -> None:
        """Have a handler answer a call, within this receive if it can."""
        head, host = event.head, self._host
        handler = host.handlers.handler_for(head.service, head.endpoint)
        if handler is None:
            message = f"no endpoint {head.endpoint} of {head.service}"
            self._connection.send_error(event.id, ErrorCode.BAD_REQUEST, message)
            host.tell_trouble(self.peer_name, head.endpoint, f"the call was refused: {message}")
            return
        if self._writer.unsent_bytes > host.limits.outgoing_bytes_max:
            self._connection.send_error(event.id, ErrorCode.BUSY, "earlier answers were not read")
            return
        incoming = IncomingCall(self, event, now + event.ttl_ms / 1_000)
        try:
            result = handler(incoming)
        except Exception as error:  # noqa: BLE001 - a handler's bug ends its call only
            incoming.fail(error)
            return
        if isinstance(result, Answer):
            if not incoming.ended:
                incoming.ended = True
                self._connection.send_answer(event.id, result)
            return
        if not incoming.ended:
            self._calls[event.id] = incoming
            host.wheel.add(incoming, incoming.deadline)
        if result is not None:
            incoming.scope = trio.CancelScope()
            host.spawn(incoming.run, result)

    def answer(self, incoming: IncomingCall, answer: Answer) -> None:
        """Answer a call that was not answered within its receive."""
        self._end(incoming)
        self._connection.send_answer(incoming.id, answer)
        self._host.flusher.flush_soon(self._writer)

    def refuse(self, incoming: IncomingCall, code: ErrorCode, message: str) -> None:
        """End such a call with an error."""
        self._end(incoming)
        self._connection.send_error(incoming.id, code, message)
        self._host.flusher.flush_soon(self._writer)

    def cancel(self, call_id: int) -> None:
        """The peer no longer wants an answer, and knows that it gets none."""
        incoming = self._calls.get(call_id)
        if incoming is not None:
            self._end(incoming)
            incoming.stop()

    def refuse_all(self, reason: str) -> None:
        """Cancel all calls, and tell the peer why."""
        for incoming in list(self):
            self.refuse(incoming, ErrorCode.CANCELLED, reason)
            incoming.stop()

    def cancel_all(self) -> None:
        """The connection is gone: nobody waits for an answer."""
        for call_id in list(self._calls):
            self.cancel(call_id)

    def report(self, incoming: IncomingCall, error: Exception) -> None:
        """Tell this side about a handler's bug."""
        self._host.report(incoming.endpoint, error)

    def tell_unreadable(self, incoming: IncomingCall, why: str) -> None:
        """Tell this side that the peer sent a call that a handler could not read."""
        why = f"the call cannot be read: {why}"
        self._host.tell_trouble(self.peer_name, incoming.endpoint, why)

    def _end(self, incoming: IncomingCall) -> None:
        incoming.ended = True
        self._host.wheel.discard(incoming)
        self._calls.pop(incoming.id, None)
