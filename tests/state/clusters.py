"""Clusters in one process: a network and a store in memory, in virtual time."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.partitions.strategies import NOBODY
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.transport.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.config import StateConfig
    from ringpop_py.ringpop import Ringpop
    from ringpop_py.state.keyspace import Keyspace


class Cluster:
    """Nodes that are started one by one, on one network and one store."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.network = MemoryNetwork()
        self.store = MemoryStore()
        self._stack = stack
        self._hosts: list[Address] = []

    async def start(self, name: str, *, state: StateConfig | None = None) -> Ringpop:
        """A node that lasts as long as the cluster."""
        return await self._stack.enter_async_context(self._opened(name, state))

    @asynccontextmanager
    async def _opened(self, name: str, state: StateConfig | None) -> AsyncIterator[Ringpop]:
        address = Address("10.0.0.1", 3000 + len(self._hosts))
        self._hosts.append(address)
        config = Config(name=name, listen=address, hosts=tuple(self._hosts), store="memory:")
        config = replace(config, state=state or config.state)
        async with open_ringpop(config, network=self.network, store=self.store) as node:
            yield node

    @asynccontextmanager
    async def for_a_while(self, name: str) -> AsyncIterator[Ringpop]:
        """A node that leaves in good order at the end of the block."""
        async with self._opened(name, None) as node:
            yield node


@asynccontextmanager
async def a_cluster() -> AsyncIterator[Cluster]:
    """A cluster without nodes; those that are started end with the block."""
    async with AsyncExitStack() as stack:
        yield Cluster(stack)


async def all_online(keyspace: Keyspace, *names: str) -> None:
    """Return when *names*, and nobody else, serve all partitions."""
    table = keyspace.table
    while NOBODY in table.owners() or set(table.counts()) != set(names) or table.moving:
        await trio.sleep(0.01)


def key_at(keyspace: Keyspace, owner: str, prefix: str = "k") -> str:
    """A key that *owner* serves."""
    keys = (f"{prefix}{number}" for number in range(10_000))
    return next(key for key in keys if keyspace.owner_of(key) == owner)
