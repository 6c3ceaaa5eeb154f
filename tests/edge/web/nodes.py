"""Clusters in one process, and a caller of the routes of one of their nodes."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.edge.web.server import App
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop

KEYS = "/keyspaces/k/keys"


class Served:
    """A node, and a caller of its routes."""

    def __init__(self, node: Ringpop, http: httpx.AsyncClient) -> None:
        self.node = node
        self.http = http

    async def put(self, key: str, value: object) -> None:
        response = await self.http.put(f"{KEYS}/{key}", content=json.dumps(value))
        assert response.status_code == 204, response.text

    async def value(self, key: str) -> Any:  # noqa: ANN401 - as it is
        return (await self.http.get(f"{KEYS}/{key}")).json()


@asynccontextmanager
async def a_node(*, members: int = 1, **settings: Any) -> AsyncIterator[Served]:  # noqa: ANN401
    """The last of so many members that serve the keyspace "k"."""
    network, store = MemoryNetwork(), MemoryStore()
    async with AsyncExitStack() as stack:
        hosts = tuple(Address("10.0.0.1", 3000 + index) for index in range(members))
        for index, address in enumerate(hosts):
            config = Config(name=f"n{index}", listen=address, hosts=hosts[: index + 1])
            opened = open_ringpop(config, network=network, store=store)
            node = await stack.enter_async_context(opened)
        await node.open_keyspace("k", **{"partitions": 4, **settings})
        transport = httpx.ASGITransport(App(node))
        http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        yield Served(node, await stack.enter_async_context(http))
