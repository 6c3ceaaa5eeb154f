"""The serving side: which handler answers a call, and the peer's calls while they are answered.

Rules for this file: one slotted object for each call; only a handler that awaits gets a task. Each
call ends exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import trio

from ringpop_py.base.errors import (
    BadRequest,
    CallTimeout,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    TooManyInFlight,
    WireError,
)
from ringpop_py.base.metering import TIMED_MASK, Histogram
from ringpop_py.base.values.declared import Struct
from ringpop_py.net.security.identity import Role
from ringpop_py.net.wire.calls import Answer
from ringpop_py.net.wire.frames import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.member.drain import Work
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.security.permits import ClientLimits
    from ringpop_py.net.transport.deadlines import Timed, Wheel
    from ringpop_py.net.transport.tracing import Tracing
    from ringpop_py.net.transport.writer import Flusher, LinkWriter
    from ringpop_py.net.wire.calls import CallReceived
    from ringpop_py.net.wire.connection import Connection

ANY_ENDPOINT: Final = "*"


class IncomingCall(Struct, eq=False):
    """A call of a peer. Answer it once; a second or late answer is dropped. See `Timed`.

    Attributes:
        calls: those of its connection.
        event: the call as it came, with its id and its head.
        endpoint: the endpoint of the service.
        arg2: the application's headers.
        arg3: the body.
        deadline: when the peer stops waiting, on the scale of `trio.current_time`.
        served: its endpoint.
        timed_from: since when it is timed, on the same scale; None if it is not.
    """

    calls: IncomingCalls
    event: CallReceived
    endpoint: str
    arg2: bytes
    arg3: bytes
    deadline: float
    served: Served
    timed_from: float | None
    ended: bool = False
    scope: trio.CancelScope | None = None
    bucket: dict[Timed, None] | None = None

    def __repr__(self) -> str:
        return f"<IncomingCall {self.service} {self.endpoint} from {self.caller}>"

    @property
    def service(self) -> str:
        """The service that is called."""
        return self.event.head.service

    @property
    def scheme(self) -> str:
        """How the arguments are encoded; an answer has the same scheme unless it names another."""
        return self.event.head.scheme

    @property
    def identity(self) -> Identity | None:
        """Who the caller has proved to be; None if it did not have to."""
        return self.calls.identity

    @property
    def remote_host(self) -> str:
        """The caller's host, as the network knows it; empty by a Unix socket."""
        return self.calls.remote_host

    @property
    def caller(self) -> str:
        """The caller's name for people: where it listens, or else its host."""
        return self.calls.peer_name()

    def answer(self, answer: Answer) -> None:
        """Answer the call."""
        if not self.ended:
            self.calls.answer(self, answer)

    def fail(self, error: Exception) -> None:
        """End the call with the error code of *error* (`failure_code`).

        An unexpected error is reported here, and the caller gets only its name. The text of a
        `PeerFailed` is meant for the caller.
        """
        if not self.ended:
            self.calls.fail(self, error)

    def expire(self) -> None:
        """See `Timed`."""
        self.calls.refuse(self, ErrorCode.TIMEOUT, "the time given to the call ran out")
        self.stop()

    def stop(self) -> None:
        """Drop the call, which nobody waits for, and cancel its handler if that is a task."""
        self.ended = True
        if self.scope is not None:
            self.scope.cancel()

    async def run(self, handling: Awaitable[Answer | None]) -> None:
        """Answer with what *handling* returns, unless the call ends before."""
        assert self.scope is not None
        with self.scope:
            try:
                answer = await handling
            except Exception as error:  # noqa: BLE001 - a handler's bug ends its call only
                self.fail(error)
            else:
                if answer is not None and not self.ended:
                    self.calls.answer(self, answer)


Handler = Callable[[IncomingCall], Answer | Awaitable[Answer | None] | None]
"""Returns an answer, or an awaitable of one, or None to `answer` later."""

_CODES: Final = (
    (PeerDeclined, ErrorCode.DECLINED),
    (PeerBusy, ErrorCode.BUSY),
    (TooManyInFlight, ErrorCode.BUSY),
    (BadRequest, ErrorCode.BAD_REQUEST),
    (WireError, ErrorCode.BAD_REQUEST),
    (CallTimeout, ErrorCode.TIMEOUT),
)


def failure_code(error: Exception) -> ErrorCode:
    """Return the code with which the caller gets a handler's *error*."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNEXPECTED


class Served:
    """An endpoint: what answers its calls, and how these went.

    Attributes:
        role: the least role of a caller.
        count: how many calls came.
        failed: how many were answered with an error, by its code.
        seconds: how long those took that are timed, from their bytes to their answer.
    """

    __slots__ = ("count", "failed", "handler", "role", "seconds")

    def __init__(self, handler: Handler, role: Role) -> None:
        self.handler = handler
        self.role = role
        self.count = 0
        self.failed: Counter[ErrorCode] = Counter()
        self.seconds = Histogram()


class Handlers:
    """The handlers of calls, and which calls are declined.

    Attributes:
        on_unserved: called with the service and endpoint of a call that has no handler; it may
            `serve` the endpoint, and the call is then answered.
        served: by service and endpoint.
        usual: the same, while no calls are declined; then it is empty.
        refused: how many calls reached no handler, by reason.
        limits: what each client and each reader may have; None if there is no limit.
        new_incoming: makes the `IncomingCalls` of a connection.
    """

    def __init__(self, limits: ClientLimits | None) -> None:
        self.limits = limits
        self.new_incoming: Callable[..., IncomingCalls] = IncomingCalls
        self.on_unserved: Callable[[str, str], None] | None = None
        self.served: dict[tuple[str, str], Served] = {}
        self.usual = self.served
        self.refused: Counter[str] = Counter()
        self._works: dict[tuple[str, str], Work] = {}
        self._declining = Served(self._decline, min(Role))
        self._declined: Collection[Work] = ()
        self._why_declined = ""

    def serve(
        self, service: str, endpoint: str, handler: Handler, work: Work | None, role: Role
    ) -> None:
        """See `Channel.serve`."""
        self.served[service, endpoint] = Served(handler, role)
        if work is not None:
            self._works[service, endpoint] = work

    def decline(self, works: Collection[Work], reason: str) -> None:
        """Decline all calls of these kinds from now on: they do not run, and may go elsewhere."""
        self._declined, self._why_declined = works, reason
        self.usual = {} if works else self.served

    def find(self, service: str, endpoint: str) -> Served | None:
        """Return what answers calls of *endpoint*; None if nothing does."""
        # A handler that declines, so that a declined call ends as all others do.
        if self._declined and self._work_of(service, endpoint) in self._declined:
            return self._declining
        served = self.served
        found = served.get((service, endpoint)) or served.get((service, ANY_ENDPOINT))
        if found is None and self.on_unserved is not None:
            self.on_unserved(service, endpoint)  # it may serve just this endpoint
            found = served.get((service, endpoint))
        return found

    def works_of(self, calls: Iterable[IncomingCall]) -> Counter[Work]:
        """Return how many of *calls* are of each kind of work."""
        works = (self._work_of(call.service, call.endpoint) for call in calls)
        return Counter(work for work in works if work is not None)

    def _work_of(self, service: str, endpoint: str) -> Work | None:
        work = self._works.get((service, endpoint))
        return work or self._works.get((service, ANY_ENDPOINT))

    def _decline(self, _: IncomingCall) -> NoReturn:
        self.refused["declined"] += 1
        raise PeerDeclined(self._why_declined)


class ServingHost(Protocol):
    """The part of the Channel that serving needs."""

    wheel: Wheel
    limits: WireLimits
    handlers: Handlers
    flusher: Flusher
    on_handler_error: Callable[[str, Exception], None]
    on_trouble: Callable[[str, str, str], None]
    tracing: Tracing | None

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """See `Channel.spawn`."""


class IncomingCalls:
    """The calls of one peer on one connection that wait for an answer.

    Args:
        peer_name: returns the peer's name for people.

    Attributes:
        identity: who the peer has proved to be; None if it did not have to, and may do all.
        remote_host: the peer's host, as the network knows it.
    """

    def __init__(
        self,
        host: ServingHost,
        connection: Connection,
        writer: LinkWriter,
        peer_name: Callable[[], str],
    ) -> None:
        self.peer_name = peer_name
        self.identity: Identity | None = None
        self.remote_host = ""
        self._host = host
        self._connection = connection
        self._writer = writer
        self._calls: dict[int, IncomingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[IncomingCall]:
        return iter(self._calls.values())

    def serve(self, event: CallReceived, now: float) -> None:
        """Have a handler answer a call, immediately if it can."""
        head, host = event.head, self._host
        handlers = host.handlers
        # Saves a call in the usual case.
        served = handlers.usual.get((head.service, head.endpoint)) or handlers.find(
            head.service, head.endpoint
        )
        caller, limits = self.identity, handlers.limits
        if (
            served is None
            or (caller is not None and caller.role < served.role)
            or (limits is not None and limits.why_over(caller, now, event.arg2, event.arg3))
        ):
            self._refuse(event, served, now)
            return
        served.count += 1
        # `unsent_bytes`, for which each call would pay a call.
        unsent_bytes = self._connection.queue.byte_count - self._writer.written_bytes
        if unsent_bytes > host.limits.outgoing_bytes_max:
            served.failed[ErrorCode.BUSY] += 1
            self._connection.send_error(event.id, ErrorCode.BUSY, "earlier answers were not read")
            return
        incoming = IncomingCall(
            self,
            event,
            head.endpoint,
            event.arg2,
            event.arg3,
            now + event.ttl_ms / 1_000,
            served,
            None if served.count & TIMED_MASK != 1 else now,
        )
        try:
            result = (
                host.tracing.serve(served.handler, incoming, event.tracing)
                if event.tracing and host.tracing is not None
                else served.handler(incoming)
            )
        except Exception as error:  # noqa: BLE001 - a handler's bug ends its call only
            incoming.fail(error)
            return
        if isinstance(result, Answer):
            if not incoming.ended:
                incoming.ended = True
                if incoming.timed_from is not None:
                    served.seconds.observe(trio.current_time() - now)
                self._connection.send_answer(event.id, result)  # leaves when all has been read
                if limits is not None:
                    limits.note_bytes(caller, len(result.arg3), now)
            return
        if not incoming.ended:  # a handler may have answered, and then returned None
            # Before its task begins, so that a cancel in the same receive finds it.
            self._calls[event.id] = incoming
            host.wheel.add(incoming, incoming.deadline)
        if result is not None:
            incoming.scope = trio.CancelScope()
            host.spawn(incoming.run, result)

    def _refuse(self, event: CallReceived, served: Served | None, now: float) -> None:
        """Refuse a call of an endpoint that is not there, or not or no more for this caller."""
        head, host, caller = event.head, self._host, self.identity
        if served is None:
            why, message = "unserved", f"no endpoint {head.endpoint} of {head.service}"
        elif caller is not None and caller.role >= served.role and host.handlers.limits is not None:
            host.handlers.refused["limit"] += 1
            message = host.handlers.limits.why_over(caller, now)
            self._connection.send_error(event.id, ErrorCode.BUSY, message)
            return
        else:
            why = "role"
            message = f"{head.endpoint} is for the role {served.role.label}, not {self.identity}"
        host.handlers.refused[why] += 1
        self._connection.send_error(event.id, ErrorCode.BAD_REQUEST, message)
        host.on_trouble(self.peer_name(), head.endpoint, f"the call was refused: {message}")

    def answer(self, incoming: IncomingCall, answer: Answer) -> None:
        """Answer a call that was not answered immediately."""
        self._end(incoming)
        self._connection.send_answer(incoming.event.id, answer)
        if (limits := self._host.handlers.limits) is not None:
            limits.note_bytes(self.identity, len(answer.arg3), trio.current_time())
        # The last answer leaves now; one of several waits for what other woken tasks will send.
        if not self._calls:
            self._writer.flush()
        else:
            self._host.flusher.flush_soon(self._writer)

    def refuse(self, incoming: IncomingCall, code: ErrorCode, message: str) -> None:
        """End a call with an error."""
        self._end(incoming)
        incoming.served.failed[code] += 1
        self._connection.send_error(incoming.event.id, code, message)
        self._host.flusher.flush_soon(self._writer)

    def fail(self, incoming: IncomingCall, error: Exception) -> None:
        """See `IncomingCall.fail`."""
        code = failure_code(error)
        text = str(error)
        if isinstance(error, WireError):
            why = f"the call cannot be read: {text}"
            self._host.on_trouble(self.peer_name(), incoming.endpoint, why)
        if code == ErrorCode.UNEXPECTED:
            self._host.on_handler_error(incoming.endpoint, error)
            # The text of a bug may hold what the peer must not see.
            text = text if isinstance(error, PeerFailed) else type(error).__name__
        self.refuse(incoming, code, text)

    def cancel(self, call_id: int) -> None:
        """Drop a call that the peer has cancelled."""
        incoming = self._calls.get(call_id)
        if incoming is not None:
            self._end(incoming)
            incoming.stop()

    def refuse_all(self, reason: str) -> None:
        """Cancel all calls, and tell the peer why."""
        for incoming in list(self):  # a copy: each one that ends is removed
            self.refuse(incoming, ErrorCode.CANCELLED, reason)
            incoming.stop()

    def cancel_all(self) -> None:
        """Drop all calls, because the connection is gone."""
        for call_id in list(self._calls):
            self.cancel(call_id)

    def _end(self, incoming: IncomingCall) -> None:
        incoming.ended = True
        if incoming.timed_from is not None:
            incoming.served.seconds.observe(trio.current_time() - incoming.timed_from)
        self._host.wheel.discard(incoming)
        self._calls.pop(incoming.event.id, None)
