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
