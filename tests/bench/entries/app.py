"""The application that is measured: by itself, behind the middleware, or passed on by httpx.

``MODE`` is one of these, ``DAEMON`` the daemon of the host, ``OTHER`` where httpx sends requests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ringpop_py.edge.entry.asgi import RingpopMiddleware

if TYPE_CHECKING:
    from starlette.requests import Request

MODE, DAEMON, OTHER = (os.environ.get(name, "") for name in ("MODE", "DAEMON", "OTHER"))
client = httpx.AsyncClient(base_url=OTHER or "http://127.0.0.1:1")


async def cart(request: Request) -> Response:
    return JSONResponse({"key": request.path_params["key"], "items": [1, 2, 3]})


async def passed_on(request: Request) -> Response:
    reply = await client.request(request.method, request.url.path, headers=request.headers.raw)
    return Response(reply.content, reply.status_code, dict(reply.headers))


app: Any = Starlette(
    routes=[Route("/carts/{key}", passed_on if MODE == "httpx" else cart, methods=["GET"])]
)
if MODE == "middleware":
    app = RingpopMiddleware(app, key="path:/carts/{key}", daemon=DAEMON)
