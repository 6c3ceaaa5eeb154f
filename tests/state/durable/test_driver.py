"""`state.shares.driver`: what comes or goes while others ask for it, or its tasks begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import PartitionUnavailable, StoreUnavailable
from ringpop_py.state.durable.driver import ReleaseRequest
from ringpop_py.state.journal.codec import encode_claim, encode_record
from ringpop_py.state.journal.records import Claim, Seal
from ringpop_py.state.memory.steward import MemorySteward
from ringpop_py.state.placement.duties import ReleaseSaid
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.durable.benches import until
from tests.state.keyspaces import clusters, memory_clusters

if TYPE_CHECKING:
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


class SlowToClaim(MemoryStore):
    """Each claim takes effect, and while `deaf` no claimer hears of it."""

    deaf = True

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """As any store's."""
        was_put = super().put_if_absent(key, value)
        if self.deaf and "/claims/" in key:
            raise StoreUnavailable(key)
        return was_put


def request_for(keyspace: Keyspace, journal: str) -> ReleaseRequest:
    """As "b" asks for partition 0, whose claim of epoch 1 it has read."""
    return ReleaseRequest("counts", keyspace.generation, 0, 1, "b", journal)


async def test_a_node_does_not_deny_an_unwanted_partition_before_its_claim_is_done() -> None:
    """A node that hears "not mine" seals the journal, and with it all partitions here."""
    store = SlowToClaim()
    async with clusters.a_cluster(store) as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        host = a.keyspaces.durable_host("counts")
        driver, writer = host.driver, host.writer
        await until(lambda: store.get(host.keys.partition(0).claim(1)) is not None)
        driver.table.desire(["b"])
        journal = writer.journal.name

        assert driver.steward.releases.answer(0, 1, "b") is ReleaseSaid.NOT_MINE
        said = await driver.release(request_for(keyspace, journal))
        of_another = await driver.release(request_for(keyspace, "a former journal"))
        store.deaf = False

        assert said is ReleaseSaid.NOT_YET
        assert of_another is ReleaseSaid.NOT_MINE


async def test_a_node_whose_share_has_failed_denies_the_partition_that_it_claims() -> None:
    """It would never release it: others have to seal its journal."""
    store = SlowToClaim()
    async with clusters.a_cluster(store) as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        host = a.keyspaces.durable_host("counts")
        await until(lambda: store.get(host.keys.partition(0).claim(1)) is not None)

        host.driver.fail("a bug")
        assert not host.machine.is_settled(0, host.writer.journal.name)
        said = await host.driver.release(request_for(keyspace, host.writer.journal.name))
        store.deaf = False

        assert said is ReleaseSaid.NOT_MINE


async def test_a_node_that_claims_a_partition_again_does_not_deny_it() -> None:
    store = SlowToClaim()
    store.deaf = False
    async with clusters.a_cluster(store) as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        await clusters.all_online(keyspace, "a")
        host = a.keyspaces.durable_host("counts")
        driver, journal = host.driver, host.writer.journal.name
        key = host.keys.journal(journal).slot(1)
        driver.table.desire(["b"])
        store.put_if_absent(key, encode_record(Seal("z"), key))
        store.deaf = True

        # The release meets the seal, and waits for the claim after it.
        async with trio.open_nursery() as nursery:
            said: list[ReleaseSaid] = []

            async def ask() -> None:
                said.append(await driver.release(request_for(keyspace, journal)))

            nursery.start_soon(ask)
            await until(lambda: host.writer.journal.reclaims(0))
            again = await driver.release(request_for(keyspace, journal))
            store.deaf = False

        assert again is ReleaseSaid.NOT_YET
        assert said == [ReleaseSaid.RELEASED]


async def test_a_partition_that_is_lost_before_it_is_released_is_not_ours_to_release() -> None:
    async with clusters.a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        await clusters.all_online(keyspace, "a")
        host = a.keyspaces.durable_host("counts")
        key = host.keys.journal(host.writer.journal.name).slot(1)
        claim = host.keys.partition(0).claim(2)
        cluster.store.put_if_absent(key, encode_record(Seal("b"), key))
        won = Claim("b", "a journal of b", 1, None)
        cluster.store.put_if_absent(claim, encode_claim(won, claim))
        host.driver.table.desire(["b"])

        said = await host.driver.release(request_for(keyspace, "a former journal"))

        assert said is ReleaseSaid.NOT_MINE
        assert not host.driver.failure


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
