"""`ringpop_py.shares.driver`: duties whose partition has gone before their tasks begin."""

from __future__ import annotations

import pytest
import trio

from ringpop_py.steward.duties import ReleaseSaid
from ringpop_py.steward.memory import MemorySteward
from tests.keyspaces import clusters, memory_clusters

pytestmark = pytest.mark.virtual_time


async def test_a_partition_that_is_lost_before_its_seal_begins_is_not_ours_to_release() -> None:
    async with clusters.a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        await clusters.all_online(keyspace, "a")
        driver = a.keyspaces.durable_host("counts").driver
        said: list[ReleaseSaid] = []

        async def release() -> None:
            driver.table.desire(["b"])
            said.append(await driver.release(0, keyspace.table[0].epoch, "b"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(release)
            while not driver.steward._sealing:
                await trio.lowlevel.checkpoint()
            driver._lost(driver.partitions[0], "b")

        assert said == [ReleaseSaid.NOT_MINE]
        assert not driver.failure


async def test_a_keyspace_that_is_dropped_before_it_offers_a_partition_has_not_failed() -> None:
    async with memory_clusters.a_cluster() as cluster:
        (a,) = await cluster.start("a")
        keyspace = await a.open_keyspace("state", mode="memory", partitions=8)
        await memory_clusters.serving(keyspace, "a")
        driver = a.keyspaces.here("state").host.driver
        await cluster.start("b")

        assert isinstance(driver.steward, MemorySteward)
        while not driver.steward._going:
            await trio.lowlevel.checkpoint()
        await driver.drop()
        await trio.sleep(1)

        assert not driver.failure
