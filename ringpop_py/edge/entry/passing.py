"""What passes through an ASGI server in pieces: long bodies and answers, and websockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.lowlevel

from ringpop_py.base.errors import CallError, PeerFailed, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import asdict
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.pieces import OnStream, Pieces
from ringpop_py.net.http.message import CONTINUE, HttpReply, HttpRequest
from ringpop_py.net.http.piece import Close, decode_messages, encode_messages
from ringpop_py.net.http.stream_calls import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Forward = Callable[[HttpRequest], Awaitable[HttpReply | None]]
"""Returns the reply of the owner; None if this host is to answer. Raises RingpopError."""
PROTOCOLS: Final = "sec-websocket-protocol"
TRAILERS: Final = "http.response.trailers"
_FROM_CALLER: Final = {1005: 1000, 1006: 1001, 1015: 1001}
_FROM_OWNER: Final = {1005: 1000, 1006: 1011, 1015: 1011}
"""Codes that say how a websocket ended, and may not be sent; what is sent in their place."""
_TOO_LARGE: Final = Close(1009, f"a message has at most {http.WHOLE_BYTES_MAX} bytes here")
_RESTART: Final = Close(1012, "the host of this connection has gone away; connect again")


class Forwarding(NamedTuple):
    """How requests get to the owners of their keys.

    Attributes:
        on_stream: has an owner do something with the stream of an answer.
        until_closing: returns when what may have no end is to be cut here.
    """

    forward: Forward
    on_stream: OnStream
    until_closing: Callable[[], Awaitable[object]] = anyio.sleep_forever


class Limited:
    """A `Receive` that ends a body of more than *most* bytes as if its sender had gone away.

    Attributes:
        exceeded: whether it has.
    """

    def __init__(self, receive: Receive, most: int) -> None:
        self.exceeded = False
        self._receive = receive
        self._left = most

    async def __call__(self) -> Message:
        """Return the next message."""
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        self.exceeded |= self._left < 0
        return {"type": "http.disconnect"} if self.exceeded else message


async def gone(receive: Receive) -> None:
    """Return once the caller has gone away."""
    while (await receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()  # some always have a message


def again(message: Message, receive: Receive) -> Receive:
    """Return a `Receive` that gives *message*, and then the messages of *receive*."""
    left = [message]

    async def once_more() -> Message:
        return left.pop() if left else await receive()

    return once_more


async def answered_within(app: App, scope: Scope, receive: Receive, send: Send, most: int) -> None:
    """Have *app* answer a request whose body has at most *most* bytes; refuse a longer one."""
    limited, has_begun = Limited(receive, most), False

    async def noted(message: Message) -> None:
        nonlocal has_begun
        if has_begun or not limited.exceeded:  # else it is an error of the application's
            has_begun = True
            await send(message)

    try:
        await app(scope, limited, noted)
    except Exception:  # the sender of the body has not really gone away
        if not limited.exceeded or has_begun:
            raise
    if limited.exceeded and not has_begun:
        await refuse(send, http.too_long(most))


async def refuse(send: Send, answer: http.OwnAnswer, prefix: str = "") -> None:
    """Send an answer of ours, or that of an owner."""
    kind = f"{prefix}http.response"
    headers = _sendable(answer.headers)
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": answer.body})


async def refuse_websocket(scope: Scope, send: Send, why: http.OwnAnswer) -> None:
    """Refuse a websocket that wants to connect, with an answer where the server can send one."""
    if "websocket.http.response" in scope.get("extensions", {}):
        await refuse(send, why, prefix="websocket.")
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": "it is refused"})


async def pass_on(
    scope: Scope,
    receive: Receive,
    send: Send,
    began: tuple[HttpRequest, HttpReply, Forwarding],
    options: http.Options,
    *,
    goes_on: bool,
    is_too_long: Callable[[], bool],
) -> None:
    """Send an answer as it comes, while the rest of the request is sent to its owner.

    Args:
        goes_on: whether more of the body follows.
        is_too_long: returns whether the caller is believed to be gone for that reason.

    Raises:
        RingpopError: the answer broke off, so that the server must not end it properly.
        Exception: that which *receive* has raised.
    """
    request, reply, forwarding = began
    pieces = Pieces(reply, forwarding.on_stream, options)
    sent = _Sending(scope, send, request.method)

    async def upload() -> None:
        if not goes_on or await _upload(receive, pieces):
            await gone(receive)

    async def cut() -> None:
        await forwarding.until_closing()
        if sent.has_length:
            await anyio.sleep_forever()
        raise PeerFailed("this node ends")

    try:
        failed = await _first_to_end(upload, partial(sent.all_of, reply, pieces), cut)
    finally:
        await pieces.aclose()
    if is_too_long() and not sent.has_begun:
        await refuse(send, http.too_long(options.body_bytes_max))
    elif isinstance(failed, RingpopError) and not sent.has_begun:
        log.debug("request-not-forwarded", code=failed.code, text=str(failed))
        await refuse(send, http.refusal_of(failed))
    elif failed is not None:
        raise failed


async def _first_to_end(*ways: Callable[[], Awaitable[None]]) -> Exception | None:
    """Run all of *ways* until the first one ends; return the exception with which it did."""
    ends: list[Exception | None] = []
    async with anyio.create_task_group() as tasks:

        async def run(way: Callable[[], Awaitable[None]]) -> None:
            try:
                await way()
            except OSError:  # so some servers say that the caller has gone
                ends.append(None)
            except Exception as error:  # noqa: BLE001 - it is raised by the caller
                ends.append(error)
            else:
                ends.append(None)
            tasks.cancel_scope.cancel()

        for way in ways:
            tasks.start_soon(run, way)
    return ends[0]


async def _upload(receive: Receive, pieces: Pieces) -> bool:
    """Send the rest of a body; return whether its sender is still there.

    An owner that takes no more of it may have answered.
    """
    is_last = False
    with suppress(CallError):
        while not is_last:
            message = await receive()
            if message["type"] != "http.request":
                return False
            is_last = not message.get("more_body", False)
            parts = list(_parts(message.get("body", b""))) or [b""]
            for part in parts[:-1]:
                await pieces.write(part)
            await pieces.write(parts[-1], is_last=is_last)
    return True


def _parts(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]


class _Sending:
    """Sends an answer in pieces.

    Attributes:
        has_begun: whether its head was sent.
        has_length: whether it has said how long it is.
    """

    def __init__(self, scope: Scope, send: Send, method: str) -> None:
        self.has_begun = self.has_length = False
        self._can_trail = TRAILERS in scope.get("extensions", {})
        self._send = send
        self._method = method

    async def all_of(self, reply: HttpReply, pieces: Pieces) -> None:
        """Send *reply*, and then *pieces*. Raises DeadlineExceeded, CallError."""
        if reply.status == CONTINUE:
            first = await pieces.read()
            reply = HttpReply(first.status, first.headers, first.data, reply.owner, reply.stream)
        headers = _sendable(http.reply_headers(reply, self._method))
        named = tuple(pair for pair in reply.headers if pair[0] == "trailer")
        trails = self._can_trail and bool(named)
        headers += _sendable(named) if trails else []
        self.has_begun = True
        self.has_length = any(name == b"content-length" for name, _ in headers)
        start = {"type": "http.response.start", "status": reply.status, "headers": headers}
        await self._send({**start, "trailers": True} if trails else start)
        data, is_last = reply.body, False
        while not is_last:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            piece = await pieces.read()
            data, is_last = piece.data, piece.is_last
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        if trails:
            await self._send({"type": TRAILERS, "headers": _sendable(piece.headers)})


async def pass_websocket(
    receive: Receive, send: Send, reply: HttpReply, forwarding: Forwarding
) -> None:
    """Pass messages on between a caller and the application that has opened a websocket."""
    headers = dict(reply.headers)
    subprotocol = headers.pop(PROTOCOLS, None)
    kept = tuple(p for p in http.reply_headers(reply, "GET") if p[0] in headers)
    accept = {"type": "websocket.accept", "subprotocol": subprotocol, "headers": _sendable(kept)}
    pieces = Pieces(reply, forwarding.on_stream, http.NO_LIMITS)

    async def upload() -> None:
        with suppress(CallError):  # who downloads finds out what has ended
            while (end := await _upload_message(await receive(), pieces)) is None:
                pass
            if end is _TOO_LARGE:
                await send({"type": "websocket.close", **asdict(end)})
            return
        await anyio.sleep_forever()

    async def download() -> None:
        end = await _download_messages(send, pieces)
        await send({"type": "websocket.close", **asdict(end)})

    async def cut() -> None:
        await forwarding.until_closing()
        await send({"type": "websocket.close", **asdict(_RESTART)})

    try:
        await send(accept)
        failed = await _first_to_end(upload, download, cut)
    finally:
        await pieces.aclose()
    if failed is not None:
        raise failed


async def _upload_message(message: Message, pieces: Pieces) -> Close | None:
    """Send a message of the caller; return it if it is the last one."""
    end: Close | None = None
    if message["type"] == "websocket.disconnect":
        code = message.get("code") or 1005
        end = Close(_FROM_CALLER.get(code, code), message.get("reason") or "")
    else:
        text = message.get("text")
        said: str | bytes = message["bytes"] if text is None else text
        if len(said) > http.WHOLE_BYTES_MAX:
            end = _TOO_LARGE
    await pieces.write(encode_messages([end or said]), is_last=end is not None)
    return end


async def _download_messages(send: Send, pieces: Pieces) -> Close:
    """Send the messages of the application, and return the last one."""
    try:
        while True:
            for message in decode_messages((await pieces.read()).data):
                if isinstance(message, Close):
                    return Close(_FROM_OWNER.get(message.code, message.code), message.reason)
                kind = "text" if isinstance(message, str) else "bytes"
                await send({"type": "websocket.send", kind: message})
    except CallError as error:
        log.debug("websocket-cut", text=str(error))
        return _RESTART


def _sendable(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode()) for name, value in headers]
