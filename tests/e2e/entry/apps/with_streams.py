"""An application whose bodies and answers are long, take their time, or are websockets.

It is the same behind the middleware (`behind`) and beside a daemon with ``--http-in`` (`app`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING, Any

from answers import NAME
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket  # noqa: TC002 - starlette reads it

from ringpop_py.edge.entry.asgi import RingpopMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

left = set[str]()
"""The keys whose callers went away before the end of their answer, or of their websocket."""
PIECE = bytes(range(256)) * 256


async def events(request: Request) -> Response:
    """Send an event each 20 ms, as many as ``count``; all for ever without it.

    With ``alone`` there is no second one, and no end.
    """
    key, count = request.path_params["key"], int(request.query_params.get("count", "1000000"))

    async def sent() -> AsyncIterator[str]:
        try:
            for number in range(count):
                yield f"data: {NAME} {number}\n\n"
                if "alone" in request.query_params:
                    await asyncio.Event().wait()
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            left.add(key)
            raise

    return StreamingResponse(sent(), media_type="text/event-stream")


async def download(request: Request) -> Response:
    """Send ``pieces`` of 64 KiB; with their length if ``length`` is there."""
    pieces = int(request.query_params["pieces"])

    async def sent() -> AsyncIterator[bytes]:
        for _ in range(pieces):
            yield PIECE

    headers = {"x-host": NAME, "etag": '"a"'}
    if "length" in request.query_params:
        headers["content-length"] = str(pieces * len(PIECE))
    return StreamingResponse(sent(), headers=headers)


async def upload(request: Request) -> Response:
    """Say what came."""
    digest, size = hashlib.sha256(), 0
    try:
        async for part in request.stream():
            digest.update(part)
            size += len(part)
    except ClientDisconnect:
        left.add(request.path_params["key"])
        raise
    said: dict[str, Any] = {"host": NAME, "bytes": size, "sha256": digest.hexdigest()}
    return JSONResponse({**said, "length": request.headers.get("content-length")})


class Echo:
    """Send each part of the body back as it comes."""

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        goes_on = True
        while goes_on:
            message = await receive()
            goes_on = message.get("more_body", False)
            body = message.get("body", b"")
            await send({"type": "http.response.body", "body": body, "more_body": goes_on})


async def early(_: Request) -> Response:
    """Answer before the body is read."""
    return JSONResponse({"host": NAME}, status_code=422, headers={"connection": "close"})


async def asked(request: Request) -> Response:
    """Say what is known of the request; with ``login``, send the caller to another page."""
    if "login" in request.query_params:
        return RedirectResponse(request.url_for("who"))
    await request.body()  # or its server would close the connection
    client = request.client and request.client.host
    said: dict[str, Any] = {"host": NAME, "client": client, "url": str(request.url)}
    return JSONResponse({**said, "headers": dict(request.headers)})


async def pid(_: Request) -> Response:
    """Say which process this is, for a test that kills it."""
    return JSONResponse(os.getpid())


async def gone(_: Request) -> Response:
    """Return `left`."""
    return JSONResponse(sorted(left))


async def who(_: Request) -> Response:
    """Say that this application runs."""
    return JSONResponse(NAME)


async def websocket(ws: WebSocket) -> None:
    """Say who this is, and send everything back, until the message ``bye``."""
    key = ws.path_params["key"]
    if "refused" in ws.query_params:
        await ws.send_denial_response(JSONResponse({"host": NAME}, status_code=403))
        return
    await ws.accept(subprotocol=(ws.scope["subprotocols"] or [None])[-1])
    await ws.send_text(f"{NAME} {key}")
    if "asked" in ws.query_params:
        await ws.send_json({"url": str(ws.url), "headers": dict(ws.headers)})
    while (message := await ws.receive())["type"] != "websocket.disconnect":
        if message.get("text") == "bye":
            await ws.close(4000, "as you said")
            return
        if message.get("text") is not None:
            await ws.send_text(message["text"])
        else:
            await ws.send_bytes(message["bytes"])
    left.add(f"{key} {message['code']}")


app = Starlette(
    routes=[
        Route("/events/{key}", events),
        Route("/download/{key}", download),
        Route("/upload/{key}", upload, methods=["POST", "PUT"]),
        Route("/echo/{key}", Echo(), methods=["POST"]),
        Route("/early/{key}", early, methods=["POST"]),
        Route("/asked/{key}", asked, methods=["GET", "POST", "TRACE"]),
        Route("/pid", pid),
        Route("/gone", gone),
        Route("/who", who),
        WebSocketRoute("/ws/{key}", websocket),
    ]
)
KEYED = ("events", "download", "upload", "echo", "early", "asked", "ws")
KEYS = [f"path:/{name}/{{key}}" for name in KEYED]
behind = RingpopMiddleware(app, key=KEYS, daemon=os.environ["DAEMON"], body_bytes_max=24 << 20)
