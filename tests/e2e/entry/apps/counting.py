"""FastAPI, under uvicorn: counts visits in a keyspace, through a daemon that may be killed."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Response

from ringpop_py import AsyncClient, AsyncKeyspaceClient, KeyspaceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TICK_S = 0.005


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with (
        AsyncClient(os.environ["DAEMON"]) as client,
        AsyncKeyspaceClient(client, "visits") as app.state.visits,
    ):
        gc.freeze()  # a full collection stops the loop: let it not pass through all modules
        ticking = asyncio.create_task(tick(app))
        yield
        ticking.cancel()


async def tick(app: FastAPI) -> None:
    """Measure how long the loop was busy at a time."""
    app.state.gap_s = 0.0
    while True:
        began = time.monotonic()
        await asyncio.sleep(TICK_S)
        app.state.gap_s = max(app.state.gap_s, time.monotonic() - began - TICK_S)


app = FastAPI(lifespan=lifespan)


@app.post("/visits/{user}/{visit}")
async def count(user: str, visit: str, response: Response) -> Any:  # noqa: ANN401 - a number
    visits: AsyncKeyspaceClient = app.state.visits
    try:
        return await visits.update(user, "count", operation_id=visit, timeout_s=8)
    except KeyspaceError as error:
        response.status_code = error.http_status
        return str(error)


@app.get("/visits")
async def counts() -> dict[str, Any]:
    return {key: value async for key, value in app.state.visits.scan()}


@app.get("/gap")
async def gap() -> float:
    """Return the longest gap since the last call, in seconds."""
    found: float = app.state.gap_s
    app.state.gap_s = 0.0
    return found


@app.get("/who")
async def who() -> str:
    return "counting"
