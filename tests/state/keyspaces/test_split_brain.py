"""What a cut does to a keyspace in memory: it has two writers, and a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import OperationIdReused
from ringpop_py.base.values.operations import Outcome
from tests.state.keyspaces.memory_clusters import a_cluster, serving

if TYPE_CHECKING:
    from ringpop_py.state.placement.definition import Settings

pytestmark = pytest.mark.virtual_time


async def test_memory_has_a_writer_on_both_sides_and_they_become_one_by_the_rule() -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b", "c")
        settings: Settings = {"mode": "memory", "partitions": 8, "merge": "union"}
        here, _, there = [await n.open_keyspace("state", **settings) for n in nodes]
        await serving(here, "a", "b", "c")
        await here.put("k", ["before"])

        cluster.cut("ab", "c")
        await serving(here, "a", "b")
        await serving(there, "c")
        await here.put("k", ["here"])
        await there.put("k", ["there"])
        assert await here.get("k") == ["here"]
        assert await there.get("k") == ["there"]
        await cluster.heal()
        await trio.sleep(10)

        assert await there.get("k") == await here.get("k") == ["here", "there"]


async def test_an_id_that_was_used_on_one_side_is_compared_on_both_when_they_are_one() -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b", "c")
        settings: Settings = {"mode": "memory", "partitions": 8}
        here, _, there = [await n.open_keyspace("state", **settings) for n in nodes]
        await serving(here, "a", "b", "c")

        cluster.cut("ab", "c")
        await serving(here, "a", "b")
        await serving(there, "c")
        await here.put("k1", 1, operation_id="here")
        await there.put("k2", 2, operation_id="there")
        await cluster.heal()
        await trio.sleep(10)

        for keyspace in (here, there):
            for key, value, name in (("k1", 1, "here"), ("k2", 2, "there")):
                (same,) = await keyspace.update_many([(key, "put", value)], operation_id=name)
                (other,) = await keyspace.update_many([(key, "put", 3)], operation_id=name)
                assert same == Outcome((value,), repeated=True)
                assert isinstance(other, OperationIdReused)


@pytest.mark.parametrize("merge", ["last_writer_wins", "max", "union"])
async def test_a_delete_of_a_key_that_only_the_other_side_has_is_not_undone(merge: str) -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b", "c")
        settings: Settings = {"mode": "memory", "partitions": 8, "merge": merge}
        here, _, there = [await n.open_keyspace("state", **settings) for n in nodes]
        await serving(here, "a", "b", "c")
        keys = [f"k{n}" for n in range(24)]
        await here.update_many([(key, "put", 1) for key in keys])
        assert {here.owner_of(key) for key in keys} == {"a", "b", "c"}

        cluster.cut("ab", "c")
        await serving(here, "a", "b")
        await serving(there, "c")
        for key in keys:
            await there.delete(key)
        await here.put("kept", 1)
        await cluster.heal()
        await trio.sleep(10)

        assert [key async for key, _ in here.scan()] == ["kept"]
        assert [key async for key, _ in there.scan()] == ["kept"]
