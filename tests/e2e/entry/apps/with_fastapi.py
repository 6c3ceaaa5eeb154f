"""FastAPI, under uvicorn: asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
from answers import COOKIES, DAEMON, NAME, cart
from fastapi import FastAPI, Request, Response, WebSocket

from ringpop_py.edge.entry.asgi import RingpopMiddleware

app = FastAPI()
app.add_middleware(
    RingpopMiddleware,
    key=["path:/carts/{key}", "path:/slow/{key}", "path:/ws/{key}"],
    daemon=DAEMON,
    websockets="refuse",
)


@app.api_route("/carts/{key}", methods=["GET", "HEAD", "POST"])
async def carts(key: str, request: Request, response: Response) -> dict[str, Any]:
    for cookie in COOKIES:
        response.headers.append("set-cookie", cookie)
    body = await request.body()
    return cart(request.method, key, request.url.query, body, request.headers)


@app.get("/slow/{key}")
async def slow(key: str, request: Request) -> str:
    """Answer after a minute; write down if nobody waits any longer."""
    began = anyio.Path(f"began-{key}")
    await began.write_text(NAME)
    for _ in range(1_200):
        if await request.is_disconnected():
            await began.rename(f"gone-{key}")
            break
        await asyncio.sleep(0.05)
    return key


@app.websocket("/ws/{key}")
async def ws(key: str, websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(f"{NAME} {key}")
    await websocket.close()


@app.get("/who")
async def who() -> str:
    return NAME
