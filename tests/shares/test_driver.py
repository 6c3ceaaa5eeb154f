"""`ringpop_py.shares.driver`: duties whose partition has gone before their tasks begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.errors import PartitionUnavailable
from ringpop_py.shares.durable_driver import ReleaseRequest
from ringpop_py.steward.duties import ReleaseSaid
from ringpop_py.steward.memory import MemorySteward
from tests.keyspaces import clusters, memory_clusters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.virtual_time


async def test_a_partition_that_is_lost_before_its_seal_begins_is_not_ours_to_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters.a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        await clusters.all_online(keyspace, "a")
        driver = a.keyspaces.durable_host("counts").driver
        spawn = driver._spawn

        def spawn_once_it_is_lost(
            function: Callable[..., Awaitable[object]], *arguments: object
        ) -> None:
            driver.lost(driver.partitions[0], "b")
            spawn(function, *arguments)

        monkeypatch.setattr(driver, "_spawn", spawn_once_it_is_lost)
        driver.table.desire(["b"])
        request = ReleaseRequest(
            "counts", keyspace.generation, 0, keyspace.table[0].epoch, "b", "a former journal"
        )
        said = await driver.release(request)
        monkeypatch.undo()

        assert said is ReleaseSaid.NOT_MINE
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


async def test_a_share_that_has_failed_serves_nothing_while_it_gives_its_partitions_up() -> None:
    async with memory_clusters.a_cluster() as cluster:
        (a,) = await cluster.start("a")
        keyspace = await a.open_keyspace("state", mode="memory", partitions=1)
        await memory_clusters.serving(keyspace, "a")
        host = a.keyspaces.here("state").host
        assert await host.read([(0, ["key"])]) == [[None]]

        host.driver.fail("a bug")

        (result,) = await host.read([(0, ["key"])])
        assert isinstance(result, PartitionUnavailable)
        assert host.driver.online()  # it is here until others have it
