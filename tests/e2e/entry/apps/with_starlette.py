"""Starlette, under hypercorn: trio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from answers import COOKIES, DAEMON, NAME, cart
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ringpop_py.edge.entry.asgi import RingpopMiddleware

if TYPE_CHECKING:
    from starlette.requests import Request


async def carts(request: Request) -> Response:
    body, key = await request.body(), request.path_params["key"]
    value = cart(request.method, key, request.url.query, body, request.headers)
    response = JSONResponse(value)
    for cookie in COOKIES:
        response.headers.append("set-cookie", cookie)
    return response


async def who(_request: Request) -> Response:
    return JSONResponse(NAME)


app = Starlette(
    routes=[Route("/carts/{key}", carts, methods=["GET", "POST"]), Route("/who", who)],
    middleware=[Middleware(RingpopMiddleware, key="path:/carts/{key}", daemon=DAEMON)],
)
