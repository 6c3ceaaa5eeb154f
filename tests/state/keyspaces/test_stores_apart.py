"""Members of one cluster with different stores: each keyspace stays where it was made."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.errors import ConfigError
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.stores.store import Store


pytestmark = pytest.mark.virtual_time


class Cluster:
    def __init__(self, stack: AsyncExitStack) -> None:
        self.network = MemoryNetwork()
        self._stack = stack
        self._hosts: list[Address] = []

    async def start(self, name: str, store: Store) -> Ringpop:
        address = Address("10.0.0.1", 3000 + len(self._hosts))
        self._hosts.append(address)
        config = Config(name=name, listen=address, hosts=tuple(self._hosts), store="memory:")
        node = open_ringpop(config, network=self.network, store=store)
        return await self._stack.enter_async_context(node)


async def test_a_member_with_another_store_owns_nothing_and_changes_nothing() -> None:
    ours, theirs = MemoryStore(), MemoryStore()
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack)
        a, b = await cluster.start("a", ours), await cluster.start("b", ours)
        keyspace = await a.open_keyspace("counts", partitions=8)
        there = await b.open_keyspace("counts")
        for n in range(20):
            await keyspace.put(f"k{n}", n)
        await trio.sleep(5)  # until a knows what b has
        epochs = [row.epoch for row in keyspace.table]

        await cluster.start("stranger", theirs)
        await trio.sleep(20)

        assert set(keyspace.table.owners()) == {"a", "b"}
        assert set(there.table.owners()) == {"a", "b"}
        assert [row.epoch for row in keyspace.table] == epochs
        assert await there.get_many(f"k{n}" for n in range(20)) == {f"k{n}": n for n in range(20)}


async def test_keyspaces_of_one_name_in_two_stores_are_two() -> None:
    ours, theirs = MemoryStore(), MemoryStore()
    async with AsyncExitStack() as stack:  # where no member has another store
        await (await Cluster(stack).start("b", theirs)).open_keyspace("counts", partitions=4)
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack)
        here = await (await cluster.start("a", ours)).open_keyspace("counts", partitions=8)
        there = await (await cluster.start("b", theirs)).open_keyspace("counts")

        await here.put("k", "here")
        await there.put("k", "there")
        await trio.sleep(10)

        assert (await here.get("k"), await there.get("k")) == ("here", "there")


async def test_no_keyspace_is_created_while_members_have_another_store() -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack)
        a = await cluster.start("a", MemoryStore())
        await a.open_keyspace("counts", partitions=8)
        b = await cluster.start("b", MemoryStore())

        with pytest.raises(ConfigError, match=r"'counts' is not in the store of 'b', .* store: a"):
            await b.open_keyspace("counts", partitions=8)

        assert (await a.open_keyspace("counts", partitions=8)).partitions == 8
