"""Clusters in one process: a network and a store in memory, in virtual time."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import GossipConfig, StateConfig
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.base.config.settings import DialectName
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace


class Cluster:
    """Nodes that are started and stopped one by one, on one network and one store."""

    def __init__(
        self,
        stack: AsyncExitStack,
        store: MemoryStore,
        dialect: DialectName,
        gossip: GossipConfig,
    ) -> None:
        self.network = MemoryNetwork()
        self.store = store
        self._dialect = dialect
        self._gossip = gossip
        self._stack = stack
        self._addresses: dict[str, Address] = {}
        self._running: dict[str, AsyncExitStack] = {}

    async def start(
        self,
        name: str,
        *,
        state: StateConfig | None = None,
        has_store: bool = True,
        store: MemoryStore | None = None,
        http: Address | None = None,
    ) -> Ringpop:
        """A node that lasts as long as the cluster, or until `stop`; *store* is its own view."""
        addresses = self._addresses
        address = addresses.setdefault(name, Address("10.0.0.1", 3000 + len(addresses)))
        config = Config(
            name=name if self._dialect == "native" else None,
            dialect=self._dialect,
            listen=address,
            hosts=tuple(addresses.values()),
            gossip=self._gossip,
            store="memory:" if has_store else None,
            state=state or StateConfig(),
            http=http,
        )
        running = self._running[name] = AsyncExitStack()
        await self._stack.enter_async_context(running)
        seen = (store or self.store) if has_store else None
        node = open_ringpop(config, network=self.network, store=seen)
        return await running.enter_async_context(node)

    async def stop(self, name: str) -> None:
        """Have it leave in good order."""
        await self._running.pop(name).aclose()

    @asynccontextmanager
    async def for_a_while(self, name: str) -> AsyncIterator[Ringpop]:
        """A node that leaves in good order at the end of the block."""
        yield await self.start(name)
        await self.stop(name)

    def isolate(self, name: str) -> None:
        """Cut it off from all others; it still reaches the store."""
        for other, address in self._addresses.items():
            if other != name:
                self.network.cut(self._addresses[name], address)

    def hang(self, name: str) -> None:
        """Have it say and hear nothing, as if its process were stopped; it reaches the store."""
        self.network.hang(self._addresses[name])

    def resume(self, name: str) -> None:
        """End a `hang`."""
        self.network.resume(self._addresses[name])


@asynccontextmanager
async def a_cluster(
    store: MemoryStore | None = None,
    *,
    dialect: DialectName = "native",
    gossip: GossipConfig | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster without nodes; those that are started end with the block."""
    async with AsyncExitStack() as stack:
        given = store if store is not None else MemoryStore()
        yield Cluster(stack, given, dialect, gossip or Config().gossip)


async def all_online(keyspace: Keyspace, *names: str) -> None:
    """Return when *names*, and nobody else, serve all partitions."""
    table = keyspace.table
    while NOBODY in table.owners() or set(table.counts()) != set(names) or table.moving:
        await trio.sleep(0.01)


def key_at(keyspace: Keyspace, owner: str, prefix: str = "k") -> str:
    """A key that *owner* serves."""
    keys = (f"{prefix}{number}" for number in range(10_000))
    return next(key for key in keys if keyspace.owner_of(key) == owner)
