"""A keyspace of each kind: in both modes on a cluster of one, and without a cluster."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.state.keyspaces.local import open_local_keyspaces
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.state.keyspaces.keyspace import Keyspace

KINDS: Final = ("durable", "memory", "local", "local with a store")


@asynccontextmanager
async def a_keyspace(kind: str, *, partitions: int = 1) -> AsyncIterator[Keyspace]:
    """A keyspace of that *kind*, one of `KINDS`."""
    if kind.startswith("local"):
        store = MemoryStore() if kind == "local with a store" else None
        async with open_local_keyspaces(store) as local:
            yield await local.open_keyspace("counts", partitions=partitions)
    else:
        async with a_cluster() as cluster:
            node = await cluster.start("a")
            mode: Any = kind
            yield await node.open_keyspace("counts", partitions=partitions, mode=mode)
