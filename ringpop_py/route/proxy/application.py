"""The application of a node: its handlers, and how many of their calls run at the same time."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.arguments import checked_callable
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    ConfigError,
    HandlerFailed,
    PeerBusy,
    PeerDeclined,
    RingpopError,
    TooManyInFlight,
)
from ringpop_py.base.faults import is_fault, text_of
from ringpop_py.base.metering import TIMED_MASK, Operations, Tally
from ringpop_py.net.http.streams import Streams
from ringpop_py.route.proxy.request import (
    AppCall,
    Handler,
    HttpReply,
    HttpRequest,
    ManyCall,
    ManyReply,
    Reply,
    Request,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.base.config.settings import ProxyConfig
    from ringpop_py.net.http.replay import HttpReplayer
    from ringpop_py.route.proxy.request import (
        AnyReply,
        AnyRequest,
        ManyHandler,
        ManyRequest,
    )


HEAD_BYTES: Final = 1_024
"""The bytes of a message that are set aside for its head."""
REPLY_BYTES_MAX: Final = WireLimits().message_bytes_max


@dataclass(slots=True)
class ProxyCounts:
    """How often things happened since the node was started.

    Attributes:
        attempts_failed: calls to owners that failed, by the name of their error.
    """

    handled_here: int = 0
    proxied: int = 0
    answered: int = 0
    retries: int = 0
    reroutes: int = 0
    failures: int = 0
    served: int = 0
    refused_keys: int = 0
    refused_checksum: int = 0
    in_flight: int = 0
    attempts_failed: dict[str, int] = field(default_factory=dict)


class Application:
    """The handlers of one node, and its HTTP application if there is one.

    Args:
        local: the name of this node.
        app_url: where the HTTP application listens.
        reply_bytes_max: the most bytes that a handler may return.
        marks: see `HttpReplayer`.

    Attributes:
        starting: whether handlers are still being added, so that a call of an unknown endpoint is
            declined: it may be tried again.
        on_handler: called with each endpoint that gets a handler.
        streams: the answers of the HTTP application that are passed on as they come.
        operations: what this node has served, of all kinds.
    """

    def __init__(
        self,
        local: str,
        config: ProxyConfig,
        app_url: str | None = None,
        reply_bytes_max: int = REPLY_BYTES_MAX,
        marks: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.local = local
        self.reply_bytes_max = reply_bytes_max
        self.config = config
        self.counts = ProxyCounts()
        self.operations = Operations()
        self.starting = False
        self.on_handler: Callable[[str], None] = lambda _endpoint: None
        self._handlers: dict[str, Handler] = {}
        self._many_handlers: dict[str, ManyHandler] = {}
        self.streams = Streams(config.streams_max)
        self._http: HttpReplayer | None = None
        if app_url is not None:
            from ringpop_py.net.http.replay import HttpReplayer  # noqa: PLC0415 - few have one

            self._http = HttpReplayer(app_url, config.body_bytes_max, config.replays_max, marks)

    @property
    def joint_bytes_max(self) -> int:
        """The most bytes of several answers in one message, which has a head besides."""
        return self.reply_bytes_max - HEAD_BYTES

    async def aclose(self) -> None:
        """Close the connections to the HTTP application."""
        self.streams.close()
        if self._http is not None:
            await self._http.aclose()

    def watch_refusals(self, on_refused: Callable[[str], None]) -> None:
        """Call *on_refused* with the reason if a request does not reach the HTTP application."""
        if self._http is not None:
            self._http.on_refused = on_refused

    def add_handler(self, endpoint: str, handler: Handler) -> None:
        """Serve *endpoint* with *handler*.

        Raises:
            ConfigError: the endpoint has a handler already, or is not a path; or *handler* cannot
                be called.
        """
        Request(endpoint)  # raises ConfigError
        checked_callable(handler, "handler")
        if endpoint in self._handlers:
            raise ConfigError(f"endpoint {endpoint!r} has a handler already")
        self._handlers[endpoint] = handler
        self.on_handler(endpoint)

    def add_many_handler(self, endpoint: str, handler: ManyHandler) -> None:
        """As `add_handler`, of a handler that gets many requests at a time."""
        checked_callable(handler, "handler")

        async def single(call: AppCall) -> bytes:
            if len(call.keys) != 1:
                raise BadRequest(f"{endpoint} takes one body a key")
            many = ManyCall(endpoint, call.keys, (call.body,), *call[3:])
            [result] = await self.results_of(many)
            if isinstance(result, bytes):
                return result
            raise result

        self.add_handler(endpoint, single)
        self._many_handlers[endpoint] = handler

    async def results_of(self, call: ManyCall) -> Sequence[bytes | RingpopError]:
        """Have the handler answer each of many requests; the errors of single ones are results.

        Raises:
            ApplicationError: a handler of many has raised it, or has failed.
            BadRequest: no handler serves the endpoint, or one of many has raised it.
        """
        handler = self._many_handlers.get(call.endpoint)
        if handler is None:
            return await self._each_by_itself(call)
        try:
            results = handler(call)
            if inspect.isawaitable(results):
                results = await results
            return self._checked_results(results, call)
        except BaseException as error:
            failure = self.failure(error, call.endpoint)
            if failure is error:
                raise
            raise failure from error

    def _checked_results(self, results: object, call: ManyCall) -> Sequence[bytes]:
        where = self._where(call.endpoint)
        if not isinstance(results, list | tuple) or not {*map(type, results)} <= {bytes}:
            raise HandlerFailed("TypeError", f"it returned no list of bytes {where}")
        if len(results) != len(call.keys):
            why = f"it returned {len(results)} bodies for {len(call.keys)} keys"
            raise HandlerFailed("ValueError", f"{why} {where}")
        return results

    async def _each_by_itself(self, call: ManyCall) -> list[bytes | RingpopError]:
        """Call a handler of single requests for each key, all at the same time."""
        handler = self.handler_for(call.endpoint)
        found: dict[int, bytes | RingpopError] = {}

        def note(place: int, result: object) -> None:
            found[place] = self.body_of(result, call.endpoint)

        def fail(place: int, error: BaseException) -> None:
            failure = self.failure(error, call.endpoint)
            if not isinstance(failure, RingpopError):
                raise failure
            found[place] = failure

        async def finish(place: int, result: Awaitable[object]) -> None:
            try:
                note(place, await result)
            except BaseException as error:  # noqa: BLE001 - looked at there
                fail(place, error)

        async with trio.open_nursery() as nursery:
            for place, (key, body) in enumerate(zip(call.keys, call.bodies, strict=True)):
                try:
                    result = handler(AppCall(call.endpoint, body, (key,), *call[3:]))
                    if not isinstance(result, bytes) and inspect.isawaitable(result):
                        nursery.start_soon(finish, place, result)
                    else:
                        note(place, result)
                except BaseException as error:  # noqa: BLE001 - looked at there
                    fail(place, error)
        # A handler that has kept a cancellation of its own and raises it has no result.
        failed = HandlerFailed("Cancelled", f"it was cancelled {self._where(call.endpoint)}")
        return [found.get(place, failed) for place in range(len(call.keys))]

    def handler_for(self, endpoint: str) -> Handler:
        """Return the handler of *endpoint*. Raises BadRequest, or PeerDeclined if `starting`."""
        handler = self._handlers.get(endpoint)
        if handler is None:
            message = f"no handler for endpoint {endpoint!r}"
            if self.starting:
                raise PeerDeclined(f"{message} yet: the application is starting")
            raise BadRequest(message)
        return handler

    async def replay(self, request: HttpRequest) -> HttpReply:
        """Have the HTTP application answer. If that takes long, the reply names a stream for it.

        Raises:
            BadRequest: there is no HTTP application, or see `HttpReplayer.replay`, also for others.
        """
        if self._http is None:
            raise BadRequest(f"{self.local} has no HTTP application (start it with --app-url)")
        if request.flow is not None and self.streams.is_full:
            if request.flow.kind != "answer":
                self.streams.check_room()
            request = replace(request, flow=None)  # its answer may still be one message
        status, headers, body, exchange, may_go_on = await self._http.replay(request)
        if exchange is None:
            return HttpReply(status, headers, body, self.local)
        stream = self.streams.add(exchange, may_be_cut=may_go_on)
        return HttpReply(status, headers, body, self.local, stream)

    async def handle_many(
        self, keys: tuple[str, ...], request: ManyRequest, deadline: float
    ) -> ManyReply:
        """Have the handlers of this node answer *request*, and count it. See `results_of`."""
        self.refuse_too_many()
        self.counts.in_flight += 1
        try:
            call = ManyCall(request.endpoint, keys, request.bodies, "", request.headers, deadline)
            reply = ManyReply(await self.results_of(call), self.local)
        except ApplicationError as error:
            self.operations.handler.fail(error, len(keys))
            raise
        finally:
            self.counts.in_flight -= 1
        self.operations.handler.add(reply.results)
        return reply

    async def handle(
        self, keys: tuple[str, ...], request: AnyRequest, deadline: float = math.inf
    ) -> AnyReply:
        """Have the handler, or the HTTP application, of this node answer *request*, and count it.

        Args:
            deadline: see `AppCall`.
        """
        tally, began_at = self.tally_of(request), trio.current_time()
        reply: AnyReply
        try:
            if isinstance(request, HttpRequest):
                reply = await self.replay(request)
                tally.end(reply.status)
            else:
                reply = await self._handled(keys, request, deadline)
                tally.done += 1
        except RingpopError as error:
            tally.fail(error)
            raise
        if tally.done & TIMED_MASK == 1:
            tally.seconds.observe(trio.current_time() - began_at)
        return reply

    def tally_of(self, request: AnyRequest | ManyRequest) -> Tally:
        """Return where *request* counts."""
        counted = self.operations
        return counted.entry if isinstance(request, HttpRequest) else counted.handler

    async def _handled(self, keys: tuple[str, ...], request: Request, deadline: float) -> Reply:
        handler = self.handler_for(request.endpoint)
        self.refuse_too_many()
        self.counts.in_flight += 1
        try:
            call = AppCall(request.endpoint, request.body, keys, "", request.headers, deadline)
            result = handler(call)
            if not isinstance(result, bytes) and inspect.isawaitable(result):
                result = await result
            return Reply(self.body_of(result, request.endpoint), self.local)
        except BaseException as error:
            failure = self.failure(error, request.endpoint)
            if failure is error:
                raise
            raise failure from error
        finally:
            self.counts.in_flight -= 1

    def body_of(self, result: object, endpoint: str) -> bytes:
        """Return what a handler has returned, or raise HandlerFailed if that is not bytes."""
        if isinstance(result, bytes) and len(result) <= self.reply_bytes_max:
            return result
        if result is None:
            return b""
        if isinstance(result, bytearray | memoryview):
            return self.body_of(bytes(result), endpoint)
        kind, why = "TypeError", f"it returned {type(result).__name__}, not bytes"
        if isinstance(result, bytes):  # also at the own key, where nothing has to be sent
            most = self.reply_bytes_max
            kind, why = "ValueError", f"it returned {len(result)} bytes, more than {most}"
        raise HandlerFailed(kind, f"{why} {self._where(endpoint)}")

    def failure(self, error: BaseException, endpoint: str) -> BaseException:
        """Return what the caller of a handler gets for what the handler has raised.

        An `ApplicationError` or a `BadRequest`, which are never retried, it raises on purpose. All
        else is its bug, also an error of ours that it let out: most of these say that a request did
        not start, but the handler has started. What ends the task is returned as it is.
        """
        if isinstance(error, ApplicationError | BadRequest) or not is_fault(error, trio.Cancelled):
            return error
        return HandlerFailed(type(error).__name__, f"{text_of(error)} {self._where(endpoint)}")

    def _where(self, endpoint: str) -> str:
        return f"(the handler of {endpoint} at {self.local})"

    def refuse_too_many(self) -> None:
        """Raise TooManyInFlight if this node has too many requests under way."""
        if self.counts.in_flight >= self.config.in_flight_max:
            # Not PeerBusy, which a route would retry: this node itself is the one that is busy.
            raise TooManyInFlight(f"{self.counts.in_flight} requests are under way here already")

    def admit(self) -> None:
        """Count one more call of a peer. Raises PeerBusy if there are too many."""
        if self.counts.in_flight >= self.config.in_flight_max:
            raise PeerBusy(f"{self.counts.in_flight} requests are under way here already")
        self.counts.served += 1
