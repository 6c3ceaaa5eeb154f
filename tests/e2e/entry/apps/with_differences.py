"""An application that answers as the header ``X-Answer`` says, or else with what it has seen.

What stands in ``X-Answer`` is JSON: ``status``, ``headers``, the ``parts`` of the body, each
``times``, whether it ``raises``, and whether it answers ``early``, before it has read the body.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from ringpop_py.edge.entry.asgi import RingpopMiddleware

if TYPE_CHECKING:
    from ringpop_py.edge.entry.passing import Receive, Scope, Send

Pairs = list[tuple[bytes, bytes]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request or websocket."""
    if scope["type"] == "websocket":
        await _websocket(scope, receive, send)
    else:
        await _http(scope, receive, send)


async def _http(scope: Scope, receive: Receive, send: Send) -> None:
    body, goes_on = b"", True
    said = dict(scope["headers"]).get(b"x-answer")
    wanted: dict[str, Any] = json.loads(said) if said else {}
    while goes_on and not wanted.get("early"):
        message = await receive()
        body += message.get("body", b"")
        goes_on = message.get("more_body", False)
    if wanted.get("raises"):
        raise ValueError("the application fails")
    parts = [each.encode("latin-1") * wanted.get("times", 1) for each in wanted.get("parts", ())]
    headers: Pairs = [(_raw(name), _raw(value)) for name, value in wanted.get("headers", ())]
    if not wanted:
        parts = [json.dumps(_seen(scope, body)).encode()]
        length = b"7" if scope["method"] == "HEAD" else b"%d" % len(parts[0])
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    status = wanted.get("status", 200)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _websocket(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    if b"x-refuse" in dict(scope["headers"]):
        await send({"type": "websocket.close", "code": 1008})
        return
    protocols = scope["subprotocols"]
    headers: Pairs = [(b"x-of-app", b"1"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    accept = {"type": "websocket.accept", "subprotocol": (protocols or [None])[-1]}
    await send({**accept, "headers": headers})
    await receive()
    await send({"type": "websocket.send", "text": json.dumps(_seen(scope, b""))})
    await send({"type": "websocket.close", "code": 4000, "reason": "enough"})


def _seen(scope: Scope, body: bytes) -> dict[str, Any]:
    return {
        "method": scope.get("method", ""),
        "raw_path": scope["raw_path"].decode("latin-1"),
        "path": scope["path"],
        "query": scope["query_string"].decode("latin-1"),
        "scheme": scope["scheme"],
        "client": scope["client"][0],
        "headers": [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]],
        "body": f"{len(body)} {hashlib.sha256(body).hexdigest()}",
    }


def _raw(text: str) -> bytes:
    return text.encode("latin-1")


middleware = RingpopMiddleware(app, key="header:x-key", daemon=os.environ["DAEMON"])


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve `app` behind the middleware, or bare for requests that say ``X-Bare``."""
    is_bare = b"x-bare" in dict(scope["headers"])
    await (app if is_bare else middleware)(scope, receive, send)
