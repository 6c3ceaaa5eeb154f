"""The entry of ASGI applications (Starlette, FastAPI, Litestar, Django), asyncio and trio alike."""

from __future__ import annotations

from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

import anyio
import anyio.to_thread
import sniffio

from ringpop_py.base.errors import ConfigError, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.direct import OwnersAsked
from ringpop_py.edge.entry.finder import KeyFinder
from ringpop_py.edge.entry.keys import Incoming, whole_path
from ringpop_py.edge.entry.owners import Follower
from ringpop_py.edge.entry.passing import (
    PROTOCOLS,
    Forwarding,
    Limited,
    again,
    answered_within,
    gone,
    pass_on,
    pass_websocket,
    refuse,
    refuse_websocket,
)
from ringpop_py.net.http.message import MARK
from ringpop_py.net.http.stream_calls import stream_call
from ringpop_py.route.proxy.request import HttpReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.base.address import Peer
    from ringpop_py.edge.entry.keys import KeyRule
    from ringpop_py.edge.entry.passing import App, Forward, Receive, Scope, Send
    from ringpop_py.net.http.stream_calls import StreamHead
    from ringpop_py.net.wire.calls import Answer
    from ringpop_py.route.proxy.request import HttpRequest

Outcome = http.OwnAnswer | HttpReply | None
_OF_BODIES = frozenset({b"content-length", b"transfer-encoding"})
_MARK = MARK.encode()


class RingpopMiddleware:
    """A wrapper of the ASGI application *app*: the host that owns a request's key answers it.

    The daemon of this host says who owns keys, and forwards requests; it needs ``--app-url``, the
    URL of this application, to which it replays requests of other hosts.

    Args:
        key: where the key of a request is: ``"header:X-User"``, ``"path:/carts/{key}"``,
            ``"query:user"``, ``"cookie:sid"``, a function of an `Incoming`, or a list of these, of
            which the first that finds a key decides. A request without a key is answered here.
        daemon: the address of this host's daemon, or its Unix socket; see `Client`.
        websockets: whether those whose key another host owns are opened there (``"forward"``),
            answered ``"here"``, or refused with 421 (``"refuse"``).
        options: see `ForwardOptions`.

    Raises:
        ConfigError: an argument is not valid.
    """

    def __init__(
        self,
        app: App,
        *,
        key: str | KeyRule | Sequence[str | KeyRule],
        daemon: Peer | str | None = None,
        websockets: http.Websockets = "forward",
        **options: Unpack[http.ForwardOptions],
    ) -> None:
        self._app = app
        self._finder = KeyFinder(key)
        self._options = http.Options(**options).checked()
        http.checked_elsewhere(websockets, "websockets", "forward")
        self._websockets = websockets
        self._follower = Follower(daemon, http.MEANWHILE[self._options.away])
        self._client = AsyncClient(daemon, timeout_s=self._options.timeout_s)
        self._owners = OwnersAsked(self._follower, self._options.timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI interface."""
        self._follower.start()
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_routed = False
        named = {name for name, _ in scope["headers"]}
        if _MARK in named:
            scope, is_routed = await self._checked(scope)
        asked = incoming_of(scope)
        try:
            key = None if is_routed else self._finder.key_of(asked)
        except ConfigError as error:
            why = http.refusal_of(error)
            if kind == "websocket":
                await receive()  # websocket.connect
                await refuse_websocket(scope, send, why)
            else:
                await refuse(send, why)
            return
        if key is None or await self._is_here(key):
            if not named.isdisjoint(_OF_BODIES) and kind == "http" and not is_routed:
                await self._here(asked, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        elif kind == "websocket":
            await self._websocket(key, scope, receive, send)
        else:
            here = await answered(scope, receive, send, self._forwarding(key), self._options)
            if here is not None:
                await self._app(scope, here, send)

    async def _here(self, asked: Incoming, scope: Scope, receive: Receive, send: Send) -> None:
        most = self._options.body_bytes_max
        length = http.length_in(asked.headers)
        if (length or 0) > most:
            await refuse(send, http.too_long(most))
            return
        if length is None and any(name == b"transfer-encoding" for name, _ in scope["headers"]):
            await answered_within(self._app, scope, receive, send, most)
        else:
            await self._app(scope, receive, send)

    def _forwarding(self, key: str) -> Forwarding:
        async def forward(request: HttpRequest) -> HttpReply | None:
            tries = self._options.tries(request.method)
            if "failover" not in tries and sniffio.current_async_library() == "asyncio":
                began_at = anyio.current_time()
                reply = await self._owners.reply(key, request, tries)
                if reply is not None:
                    return reply
                tries["deadline_s"] = self._options.timeout_s - (anyio.current_time() - began_at)
            return await self._client.handle_or_proxy(key, request, **tries)

        def on_stream(head: StreamHead, data: bytes) -> Awaitable[Answer]:
            return self._client.call(stream_call(head, data))

        return Forwarding(forward, on_stream)

    async def _is_here(self, key: str) -> bool:
        ring = self._follower.ring
        if ring is None:
            ring = await anyio.to_thread.run_sync(self._follower.wait, http.RING_S)
        return ring is not None and ring.is_here(key)

    async def _checked(self, scope: Scope) -> tuple[Scope, bool]:
        """Return *scope* without the mark, and whether the daemon here has replayed the request.

        The application never sees the mark, which it might show to anybody. It sees the caller at
        the other host, as if the request had come to this one.
        """
        [*_, mark] = [value for name, value in scope["headers"] if name == _MARK]
        headers = [pair for pair in scope["headers"] if pair[0] != _MARK]
        known, text = self._follower.ring, mark.decode("latin-1")
        is_routed = known is not None and known.mark == text
        if not is_routed:
            is_routed = await anyio.to_thread.run_sync(self._follower.knows_mark, text)
        if not is_routed:
            return {**scope, "headers": headers}, False
        asker = http.asker_of((name.decode(), _text(value)) for name, value in headers)
        changed: dict[str, Any] = {}
        if asker.host:
            headers = [pair for pair in headers if pair[0] != b"host"]
            headers.insert(0, (b"host", asker.host.encode()))
        if asker.client:
            changed["client"] = asker.client, 0
        if asker.scheme:
            is_http = scope["type"] == "http"
            changed["scheme"] = asker.scheme if is_http else asker.scheme.replace("http", "ws", 1)
        return {**scope, **changed, "headers": headers}, True

    async def _websocket(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        if self._websockets == "here":
            await self._app(scope, receive, send)
        elif self._websockets == "refuse":
            await receive()  # websocket.connect
            text = "another host owns this key, and websockets are not forwarded"
            await refuse_websocket(scope, send, http.refusal(421, "another-host", text))
        else:
            forwarding = self._forwarding(key)
            here = await websocket_answered(scope, receive, send, forwarding, self._options)
            if here is not None:
                await self._app(scope, here, send)


def incoming_of(scope: Scope) -> Incoming:
    """Return the parts of a request that may have its key."""
    headers = [(name.decode("latin-1"), _text(value)) for name, value in scope["headers"]]
    query = scope["query_string"].decode("latin-1")
    root = scope.get("root_path", "")
    # Starlette says what the server has put before the path, also in applications that it mounts.
    server_root = scope.get("app_root_path", root)
    path = whole_path(root, _path(scope))
    return Incoming(scope.get("method", "GET"), path, query, headers, server_root)


def _path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return quote(scope["path"])
    path = raw.partition(b"?")[0].decode("latin-1")  # some servers leave the query in it
    if path[:8].lower().startswith(("http://", "https://")):  # as clients write to proxies
        return "/" + "".join(path.split("/", 3)[3:])
    return path


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def answered(
    scope: Scope, receive: Receive, send: Send, forwarding: Forwarding, options: http.Options
) -> Receive | None:
    """Forward a request, and send its answer; return None then.

    Returns:
        If this host is to answer: a `Receive` that gives the application the body again.
    """
    asked = incoming_of(scope)
    if (http.length_in(asked.headers) or 0) > options.body_bytes_max:
        await refuse(send, http.too_long(options.body_bytes_max))
        return None
    limited = Limited(receive, options.body_bytes_max)
    body, goes_on, receive = await _beginning(limited, options.whole_bytes_max)
    if limited.exceeded:
        await refuse(send, http.too_long(options.body_bytes_max))
        return None
    if body is None:
        return None  # its sender has gone away
    client = (scope.get("client") or ("",))[0] or ""
    request = http.to_forward(
        asked,
        body,
        client=client,
        scheme=scope["scheme"],
        before=options.before(client),
        kind="body" if goes_on else "answer",
    )
    if isinstance(request, http.OwnAnswer):
        await refuse(send, request)
        return None
    forwarded = partial(_forwarded, forwarding.forward, request, options)
    outcome = await (forwarded() if goes_on else _unless_gone(receive, forwarded))
    if outcome is None:
        return again({"type": "http.request", "body": body, "more_body": goes_on}, receive)
    if isinstance(outcome, http.OwnAnswer):
        await refuse(send, outcome)
    elif isinstance(outcome, HttpReply):
        began = request, outcome, forwarding
        await pass_on(
            scope,
            receive,
            send,
            began,
            options,
            goes_on=goes_on,
            is_too_long=lambda: limited.exceeded,
        )
    return None


async def websocket_answered(
    scope: Scope, receive: Receive, send: Send, forwarding: Forwarding, options: http.Options
) -> Receive | None:
    """As `answered`, of a websocket."""
    message = await receive()
    if message["type"] != "websocket.connect":
        return None
    client, scheme = (scope.get("client") or ("",))[0] or "", scope["scheme"]
    asked = incoming_of(scope)
    kept = [pair for pair in asked.headers if pair[0] != PROTOCOLS]  # some servers leave them out
    if scope.get("subprotocols"):
        kept.append((PROTOCOLS, ", ".join(scope["subprotocols"])))
    request = http.to_forward(
        asked._replace(headers=kept),
        b"",
        client=client,
        scheme=scheme.replace("ws", "http", 1),
        before=options.before(client),
        kind="websocket",
    )
    outcome: Outcome
    if isinstance(request, http.OwnAnswer):
        outcome = request
    else:
        outcome = await _forwarded(forwarding.forward, request, options)
    if outcome is None:
        return again(message, receive)
    if isinstance(outcome, HttpReply):
        await pass_websocket(receive, send, outcome, forwarding)
    else:
        await refuse_websocket(scope, send, outcome)
    return None


async def _forwarded(
    forward: Forward, request: HttpRequest, options: http.Options
) -> http.OwnAnswer | HttpReply | None:
    """Return the answer to a request, or its beginning; None if this host is to give it."""
    try:
        reply = await forward(request)
    except RingpopError as error:
        if http.may_be_answered_here(error, options.away):
            return None
        log.debug("request-not-forwarded", code=error.code, text=str(error))
        return http.refusal_of(error)
    if reply is None or reply.stream:
        return reply
    return http.OwnAnswer(reply.status, http.reply_headers(reply, request.method), reply.body)


class _Caller(Enum):
    """The outcome of a request that nobody waits for any more."""

    GONE = "gone"


async def _unless_gone(
    receive: Receive, forwarded: Callable[[], Awaitable[Outcome]]
) -> Outcome | _Caller:
    """Return the result of *forwarded*, which is cancelled if the caller goes away."""
    # Under asyncio a group of tasks costs more than a task.
    if sniffio.current_async_library() == "asyncio":
        return await _unless_gone_by_task(receive, forwarded)
    outcome: Outcome | _Caller = _Caller.GONE
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await gone(receive)
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        outcome = await forwarded()
        tasks.cancel_scope.cancel()
    return outcome


async def _unless_gone_by_task(
    receive: Receive, forwarded: Callable[[], Awaitable[Outcome]]
) -> Outcome | _Caller:
    import asyncio  # noqa: PLC0415 - trio does without

    async def watch() -> None:
        await gone(receive)
        until_gone.reschedule(-inf)

    try:
        async with asyncio.timeout(None) as until_gone:
            watcher = asyncio.create_task(watch())
            try:
                return await forwarded()
            finally:
                watcher.cancel()
    except TimeoutError:
        if not until_gone.expired():
            raise
        return _Caller.GONE


async def _beginning(receive: Receive, most: int) -> tuple[bytes | None, bool, Receive]:
    """Return a body, or *most* bytes of it and whether more follows; None if its sender has gone.

    Returns:
        Besides, a `Receive` that gives what follows.
    """
    body, goes_on = bytearray(), True
    while goes_on and len(body) <= most:
        message = await receive()
        if message["type"] != "http.request":
            return None, False, receive
        body += message.get("body", b"")
        goes_on = message.get("more_body", False)
    if len(body) > most:
        rest = {"type": "http.request", "body": bytes(body[most:]), "more_body": goes_on}
        return bytes(body[:most]), True, again(rest, receive)
    return bytes(body), False, receive
