"""Requests of HTTP that come in at a node (`Config.http_in`), for the owners of their keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import ConfigError, DeadlineExceeded, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.asgi import answered, incoming_of, websocket_answered
from ringpop_py.edge.entry.callers import networks
from ringpop_py.edge.entry.finder import KeyFinder
from ringpop_py.edge.entry.passing import Forwarding, refuse, refuse_websocket
from ringpop_py.edge.web.refusals import HttpRefusal
from ringpop_py.edge.web.server import (
    CLEARTEXT_REFUSED,
    NO_HTTP_2,
    REQUESTS_MAX,
    check_length,
    in_time,
    with_close,
)
from ringpop_py.node.asker import OwnerAsker
from ringpop_py.node.end import ENDING_TEXT
from ringpop_py.node.events import LoggedTroubles
from ringpop_py.route.proxy.request import HttpReply

if TYPE_CHECKING:
    from ringpop_py.edge.entry.keys import Incoming, KeyRule
    from ringpop_py.edge.entry.passing import Message, Receive, Scope, Send
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import HttpRequest

_KINDS: Final = {"http": "requests", "websocket": "websockets"}
BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes that bodies of all requests take, from when they come until they are answered."""


class EntryApp:
    """The ASGI application that forwards each request to the owner of its key.

    A request without a key goes to the application of this host, or to that of another one if
    this one does not take it.
    """

    def __init__(self, ringpop: Ringpop, rule: KeyRule) -> None:
        self._open = dict.fromkeys(_KINDS, 0)
        self._ringpop = ringpop
        self._finder = KeyFinder(rule, ringpop.config.http_in_key)
        self._bodies_bytes = 0
        self._told = LoggedTroubles()
        limits = ringpop.config.entry
        self._options = http.Options(
            body_bytes_max=limits.body_bytes_max,
            timeout_s=limits.timeout_s,
            idle_timeout_s=limits.idle_timeout_s,
            total_timeout_s=limits.total_timeout_s,
            trusted=networks(limits.trusted),
            whole_bytes_max=min(http.WHOLE_BYTES_MAX, ringpop.config.proxy.body_bytes_max),
        ).checked()
        self._asker = OwnerAsker(ringpop, self._options.idempotent, self._options.timeout_s)

    @property
    def under_way(self) -> int:
        """The number of open requests; a node that ends does not wait for websockets."""
        return self._open["http"]

    async def run(self) -> None:
        """See `HttpApp`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI interface."""
        kind = scope["type"]
        if kind not in self._open:
            await _lifespan(receive, send)
            return
        self._open[kind] += 1
        try:
            await (self._http if kind == "http" else self._websocket)(scope, receive, send)
        finally:
            self._open[kind] -= 1

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = with_close(send, self._ringpop.ending)
        asked, came = incoming_of(scope), list[int]()
        receive = self._counted(in_time(receive), came, asked)
        try:
            self._check(scope)
            here = await answered(scope, receive, send, self._forwarding(asked), self._options)
            assert here is None, "the node answers for its own host as well"
        except (HttpRefusal, ConfigError) as error:
            refusal = _answer_to(error)
            self._ringpop.proxying.operations.entry.end(refusal.status)
            await refuse(send, refusal)
        finally:
            self._bodies_bytes -= sum(came)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            forwarding = self._forwarding(incoming_of(scope))
        except (HttpRefusal, ConfigError) as error:
            await receive()  # websocket.connect
            await refuse_websocket(scope, send, _answer_to(error))
            return
        here = await websocket_answered(scope, receive, send, forwarding, self._options)
        assert here is None, "the node answers for its own host as well"

    def _forwarding(self, asked: Incoming) -> Forwarding:
        forward = partial(self._forward, self._finder.key_of(asked))
        ringpop = self._ringpop
        return Forwarding(forward, ringpop.proxying.on_stream, ringpop.ending.closes.wait)

    def _check(self, scope: Scope) -> None:
        if scope["http_version"] == CLEARTEXT_REFUSED:
            raise HttpRefusal(505, "http-version", NO_HTTP_2)
        if self._ringpop.ending.closing:
            raise HttpRefusal(503, "ending", ENDING_TEXT)
        if self._open[scope["type"]] > REQUESTS_MAX:
            text = f"{REQUESTS_MAX} {_KINDS[scope['type']]} are open here already"
            raise HttpRefusal(503, "busy", text)

    def _counted(self, receive: Receive, came: list[int], asked: Incoming) -> Receive:
        async def counted() -> Message:
            message = await receive()
            if sum(came) > self._options.whole_bytes_max:  # then they are passed on one by one
                self._bodies_bytes -= came.pop()
            came.append(len(message.get("body", b"")))
            self._bodies_bytes += came[-1]
            if came[-1] and self._bodies_bytes > BODIES_BYTES_MAX:
                text = f"bodies of other requests take {BODIES_BYTES_MAX >> 20} MiB here already"
                raise HttpRefusal(503, "busy", text, {"connection": "close"})
            if not message.get("more_body", False):  # now, or hypercorn would not send the answer
                check_length([name.lower() for name, _ in asked.headers])
            return message

        return counted

    async def _forward(self, key: str | None, request: HttpRequest) -> HttpReply:
        seconds = self._options.timeout_s
        try:
            # The limit also holds for answers of this host's application.
            with trio.move_on_after(seconds):
                reply = await self._asker.reply(key, request)
                assert isinstance(reply, HttpReply)
                return reply
            self._ringpop.proxying.operations.entry.failed += 1
            raise DeadlineExceeded(f"there was no answer within {seconds:g} s")
        except RingpopError as error:  # callers learn no names of members; the log has them
            if self._told.first_time(error.code, str(error), trio.current_time()):
                log.warning("request-not-forwarded", code=error.code, text=str(error))
            raise


def _answer_to(error: HttpRefusal | ConfigError) -> http.OwnAnswer:
    if isinstance(error, ConfigError):
        return http.refusal_of(error)
    answer = http.refusal(error.status, error.kind, str(error))
    return answer._replace(headers=(*answer.headers, *(error.headers or {}).items()))


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
