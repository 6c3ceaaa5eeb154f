"""What callers over HTTP see of a node that drains, and of one that ends; in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from ringpop_py import Config, open_ringpop
from ringpop_py.edge.web.server import App
from ringpop_py.member.drain import Work
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.state.keyspaces.clusters import all_online

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.net.security.site import SiteCertificate
    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time
BODY_S = 3.0


@asynccontextmanager
async def a_node() -> AsyncIterator[tuple[Ringpop, httpx.AsyncClient]]:
    """A node and a caller."""
    async with open_ringpop(Config(), network=MemoryNetwork(), store=MemoryStore()) as node:
        await all_online(await node.open_keyspace("k", partitions=4), node.name)
        app = App(node)
        node.ending.http = [_Http(app)]
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield node, http


class _Http:
    site: SiteCertificate | None = None

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def under_way(self) -> int:
        return self._app.under_way

    async def end(self) -> None:
        await trio.lowlevel.checkpoint()


async def slow_body() -> AsyncIterator[bytes]:
    yield b"1"
    await trio.sleep(BODY_S)
    yield b"2"


async def test_a_node_that_drains_is_not_ready_and_ends_each_connection() -> None:
    async with a_node() as (node, http):
        before = await http.get("/ready")

        node.drain()
        await node.wait_until(lambda ringpop: ringpop.node.local.draining)
        draining = await http.get("/ready")
        put = await http.put("/keyspaces/k/keys/x", json=1)

        node.undrain()
        await node.wait_until(lambda ringpop: not ringpop.node.local.draining)
        after = await http.get("/ready")

    assert [response.status_code for response in (before, draining, after)] == [200, 503, 200]
    assert put.status_code == 204
    closes = [r.headers.get("connection") for r in (before, draining, put, after)]
    assert closes == [None, "close", "close", None]


async def answers_of_a_slow_put(
    http: httpx.AsyncClient, nursery: trio.Nursery
) -> list[httpx.Response]:
    """A list that the answer comes into, once the body of a PUT that is under way has come."""
    answers: list[httpx.Response] = []

    async def ask() -> None:
        answers.append(await http.put("/keyspaces/k/keys/slow", content=slow_body()))

    nursery.start_soon(ask)
    await trio.sleep(0.1)
    return answers


async def test_an_answer_closes_its_connection_though_the_request_came_before_the_drain() -> None:
    async with a_node() as (node, http), trio.open_nursery() as nursery:
        answers = await answers_of_a_slow_put(http, nursery)
        node.drain()
        await node.wait_until(lambda ringpop: ringpop.node.local.draining)
        assert not answers
        while not answers:
            await trio.sleep(0.1)

    assert answers[0].status_code == 204
    assert answers[0].headers["connection"] == "close"


async def test_a_node_that_ends_answers_what_is_under_way_and_declines_what_is_new() -> None:
    async with a_node() as (node, http), trio.open_nursery() as nursery:
        answers = await answers_of_a_slow_put(http, nursery)
        assert node.ending.left()[Work.HTTP_REQUESTS] == 1
        nursery.start_soon(node.end)
        while not node.ending.closing:
            await trio.sleep(0.01)
        declined = await http.put("/keyspaces/k/keys/x", json=1)
        alive = await http.get("/alive")
        while not answers:
            await trio.sleep(0.1)

        assert answers[0].status_code == 204
        assert trio.current_time() >= BODY_S
        assert (declined.status_code, declined.json()["error"]) == (503, "Ending")
        assert declined.headers["retry-after"] == "1"
        assert declined.headers["connection"] == "close"
        assert alive.status_code == 200
