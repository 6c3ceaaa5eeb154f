"""Clusters in one process and in virtual time, that can be cut and whose nodes can crash."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.stores.store import Store


NO_STORES: Final[Mapping[str, Store]] = MappingProxyType({})


class Cluster:
    """Nodes by name, on one network; those in *stores* have that store.

    Attributes:
        on_start: called with each node before it joins.
    """

    def __init__(
        self, nursery: trio.Nursery, stores: Mapping[str, Store], drain_timeout_s: float
    ) -> None:
        self.network = MemoryNetwork()
        self.nodes: dict[str, Ringpop] = {}
        self.on_start: Callable[[Ringpop], None] = lambda _: None
        self._stores = stores
        self._drain_timeout_s = drain_timeout_s
        self._nursery = nursery
        self._addresses: dict[str, Address] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ends: dict[str, trio.Event] = {}
        self._ended: dict[str, trio.Event] = {}

    async def start(self, *names: str) -> list[Ringpop]:
        """Start a node of each name, one after the other; at its old address if it had one."""
        return [await self._start(name) for name in names]

    async def _start(self, name: str) -> Ringpop:
        count = len(self._addresses)
        address = self._addresses.setdefault(name, Address("10.0.0.1", 3000 + count))
        config = Config(
            name=name,
            listen=address,
            hosts=tuple(self._addresses.values()),
            store="memory:" if name in self._stores else None,
            drain_timeout_s=self._drain_timeout_s,
        )
        node: Ringpop = await self._nursery.start(self._run, config)
        return node

    async def _run(self, config: Config, *, task_status: trio.TaskStatus[Ringpop]) -> None:
        name = config.name
        assert name is not None
        end, ended = self._ends[name], self._ended[name] = trio.Event(), trio.Event()
        store = self._stores.get(name)
        with trio.CancelScope() as self._scopes[name]:
            opened = open_ringpop(config, network=self.network, store=store, wait_ready=False)
            async with opened as node:
                self.on_start(node)
                await node.wait_ready()
                self.nodes[name] = node
                task_status.started(node)
                await end.wait()
        ended.set()

    def crash(self, name: str) -> None:
        """End a node without a word to anybody."""
        self._scopes[name].cancel()

    async def shut_down(self, name: str) -> None:
        """End a node in good order, and return when it has ended."""
        self._ends[name].set()
        await self._ended[name].wait()

    def cut(self, one: Iterable[str], other: Iterable[str]) -> None:
        """No node of *one* reaches any of *other* from now on."""
        others = tuple(other)
        for name in one:
            for far in others:
                self.network.cut(self.nodes[name].address, self.nodes[far].address)

    async def heal(self) -> None:
        """All reach all, and know it: at some node, what runs from time to time is run now."""
        self.network.heal()
        for _ in range(2):
            for node in self.nodes.values():
                await node.heal()

    def end(self) -> None:
        """Crash all."""
        for scope in self._scopes.values():
            scope.cancel()


@asynccontextmanager
async def a_cluster(
    stores: Mapping[str, Store] = NO_STORES, *, drain_timeout_s: float = 30.0
) -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, stores, drain_timeout_s)
        yield cluster
        cluster.end()


async def serving(keyspace: Keyspace, *names: str) -> None:
    """Return when *names*, and nobody else, serve all partitions, as this node knows."""
    table = keyspace.table
    while NOBODY in table.owners() or set(table.counts()) != set(names) or table.moving:
        await trio.sleep(0.05)


def key_at(keyspace: Keyspace, name: str) -> str:
    """A key whose partition *name* owns."""
    keys = (f"key-{number}" for number in range(100_000))
    return next(key for key in keys if keyspace.owner_of(key) == name)
