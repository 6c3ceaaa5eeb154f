"""The entry of ASGI applications (Starlette, FastAPI, Litestar, Django), asyncio and trio alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

import anyio
import anyio.lowlevel
import anyio.to_thread
import sniffio

from ringpop_py.base.errors import ConfigError, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.finder import KeyFinder
from ringpop_py.edge.entry.keys import Incoming, whole_path
from ringpop_py.edge.entry.owners import Follower
from ringpop_py.route.proxy.entry import MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.address import Peer
    from ringpop_py.edge.entry.keys import KeyRule
    from ringpop_py.route.proxy.request import HttpReply, HttpRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Forward = Callable[["HttpRequest"], Awaitable["HttpReply | None"]]
"""Returns the reply of the owner; None if this host is to answer. Raises RingpopError."""
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
        websockets: whether connections of websockets whose key another host owns are answered
            ``"here"``, or refused with 421 (``"refuse"``). They are not forwarded.
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
        websockets: http.Elsewhere = "here",
        **options: Unpack[http.ForwardOptions],
    ) -> None:
        self._app = app
        self._finder = KeyFinder(key)
        self._options = http.Options(**options).checked()
        http.checked_elsewhere(websockets, "websockets")
        self._websockets = websockets
        self._follower = Follower(daemon, http.MEANWHILE[self._options.away])
        self._client = AsyncClient(daemon, timeout_s=self._options.timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI interface."""
        self._follower.start()
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_routed = False
        if any(name == _MARK for name, _ in scope["headers"]):
            scope, is_routed = await self._checked(scope)
        try:
            key = None if is_routed else self._finder.key_of(incoming_of(scope))
        except ConfigError as error:
            why = http.refusal_of(error)
            if kind == "websocket":
                await refuse_websocket(scope, receive, send, why)
            else:
                await refuse(send, why)
            return
        if key is None or await self._is_here(key):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        else:

            def forward(request: HttpRequest) -> Awaitable[HttpReply | None]:
                tries = self._options.tries(request.method)
                return self._client.handle_or_proxy(key, request, **tries)

            here = await answered(scope, receive, send, forward, self._options)
            if here is not None:
                await self._app(scope, here, send)

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
            changed["scheme"] = asker.scheme
        return {**scope, **changed, "headers": headers}, True

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._websockets == "here":
            await self._app(scope, receive, send)
            return
        refused = http.refusal(
            421, "another-host", "another host owns this key, and websockets are not forwarded"
        )
        await refuse_websocket(scope, receive, send, refused)


async def refuse_websocket(scope: Scope, receive: Receive, send: Send, why: http.OwnAnswer) -> None:
    """Refuse a websocket, with an answer where the server can send one."""
    await receive()  # websocket.connect
    if "websocket.http.response" in scope.get("extensions", {}):
        await refuse(send, why, prefix="websocket.")
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": "it is refused"})


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
    if path.startswith(("http://", "https://")):  # as clients write to proxies
        return "/" + "".join(path.split("/", 3)[3:])
    return path


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def answered(
    scope: Scope, receive: Receive, send: Send, forward: Forward, options: http.Options
) -> Receive | None:
    """Forward a request, and send its answer; return None then.

    Returns:
        If this host is to answer: a `Receive` that gives the application the body again.
    """
    body = await _body(receive, options.body_bytes_max)
    if body is None:
        return None  # its sender has gone away
    client = (scope.get("client") or ("",))[0] or ""
    request = http.to_forward(
        incoming_of(scope), body, client=client, scheme=scope["scheme"], keeps=options.keeps
    )
    if len(body) > options.body_bytes_max:
        request = http.too_long(options.body_bytes_max)
    if isinstance(request, http.OwnAnswer):
        await refuse(send, request)
        return None
    outcome = await _unless_gone(receive, partial(_forwarded, forward, request, options))
    if isinstance(outcome, http.OwnAnswer):
        await refuse(send, outcome)
    return _again(body, receive) if outcome is None else None


async def _forwarded(
    forward: Forward, request: HttpRequest, options: http.Options
) -> http.OwnAnswer | None:
    """Return the answer to a request; None if this host is to give it."""
    try:
        reply = await forward(request)
    except RingpopError as error:
        if http.may_be_answered_here(error, options.away):
            return None
        log.debug("request-not-forwarded", code=error.code, text=str(error))
        return http.refusal_of(error)
    if reply is None:
        return None
    return http.OwnAnswer(reply.status, http.reply_headers(reply, request.method), reply.body)


class _Caller(Enum):
    """The outcome of a request that nobody waits for any more."""

    GONE = "gone"


async def _unless_gone(
    receive: Receive, forwarded: Callable[[], Awaitable[http.OwnAnswer | None]]
) -> http.OwnAnswer | _Caller | None:
    """Return the result of *forwarded*, which is cancelled if the caller goes away."""
    # Under asyncio a group of tasks costs more than a task.
    if sniffio.current_async_library() == "asyncio":
        return await _unless_gone_by_task(receive, forwarded)
    outcome: http.OwnAnswer | _Caller | None = _Caller.GONE
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await _gone(receive)
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        outcome = await forwarded()
        tasks.cancel_scope.cancel()
    return outcome


async def _unless_gone_by_task(
    receive: Receive, forwarded: Callable[[], Awaitable[http.OwnAnswer | None]]
) -> http.OwnAnswer | _Caller | None:
    import asyncio  # noqa: PLC0415 - trio does without

    async def watch() -> None:
        await _gone(receive)
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


async def _gone(receive: Receive) -> None:
    """Return once the caller has gone away."""
    while (await receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()  # some always have a message


async def _body(receive: Receive, most: int) -> bytes | None:
    """Return the body, or more than *most* bytes of it; None if its sender has gone away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > most or not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `Receive` that gives *body*, and then the messages of *receive*."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


async def refuse(send: Send, answer: http.OwnAnswer, prefix: str = "") -> None:
    """Send an answer of ours, or that of an owner."""
    headers = [(name.lower().encode("latin-1"), value.encode()) for name, value in answer.headers]
    kind = f"{prefix}http.response"
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": answer.body})
