"""`ringpop_py.state.durable.host`: what comes and goes, and what does not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import StoreFull
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.state.catalog.fence import FENCE, fence
from ringpop_py.state.durable.driver import STRANGER_S
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.placement.table import PartitionStatus, TableRow
from ringpop_py.state.stores.memory import MemoryStore
from tests.logged import events_in
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.state.durable.partition import Partition

pytestmark = pytest.mark.virtual_time


class StoreWithARival(MemoryStore):
    """Just after a claim, when its owner asks whether the keyspace goes on, something happens."""

    def __init__(self) -> None:
        super().__init__()
        self.rival: Callable[[], None] | None = None

    def get(self, key: str) -> bytes | None:
        """As any store's."""
        if self.rival is not None and key.endswith("/dropped"):
            rival, self.rival = self.rival, None
            rival()
        return super().get(key)


async def test_a_claiming_node_that_hears_of_a_later_claim_does_not_insist_on_its_own() -> None:
    store = StoreWithARival()
    async with a_cluster(store) as cluster:
        a = await cluster.start("a")
        (await cluster.start("b")).drain()
        await trio.sleep(5)

        def claim() -> None:
            host = a.keyspaces.durable_host("counts")
            fence(store, host.keys, 0)
            host.driver.merge([TableRow(0, owner="b", epoch=2, status=PartitionStatus.ONLINE)])

        store.rival = claim
        keyspace = await a.open_keyspace("counts", partitions=1)
        await trio.sleep(10)

        partitions = a.keyspaces.durable_host("counts").driver.partitions
        assert store.rival is None
        assert keyspace.table.owners() == ("a",)
        assert partitions[0].epoch == keyspace.table[0].epoch == 3


class FullStore(MemoryStore):
    """It has room for what is new of its own, but not for slots of journals that exist."""

    def __init__(self) -> None:
        super().__init__()
        self.full: str | None = None
        self.refused_count = 0

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """As any store's."""
        if self.full is not None and key.startswith(self.full):
            self.refused_count += 1
            raise StoreFull(key)
        return super().put_if_absent(key, value)


async def test_an_owner_whose_store_has_no_room_for_a_release_is_asked_again_and_not_sealed() -> (
    None
):
    store = FullStore()
    async with a_cluster(store) as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await keyspace.put("k", 1)
        host = a.keyspaces.durable_host("counts")
        journal = host.writer.journal.name

        store.full = host.keys.journal(journal).root
        await cluster.start("b")
        await trio.sleep(5)
        refused_count, store.full = store.refused_count, None
        await all_online(keyspace, "a", "b")

        assert refused_count > 1  # b has asked for them
        assert host.writer.journal.name == journal
        assert host.driver.seals_met == 0


async def test_two_clusters_of_one_name_on_one_store_are_told_of_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    async with a_cluster(store) as one, a_cluster(store) as other:
        a, b = await one.start("a"), await other.start("b")
        keyspace = await a.open_keyspace("visits", partitions=1)
        await keyspace.put("k", 1)
        there = await b.open_keyspace("visits", partitions=1)
        await there.put("k", 2)  # b does not know a, and takes over what nobody seems to serve
        await keyspace.put("k", 3)  # a finds out, and takes it back
        await trio.sleep(STRANGER_S + 1)

    shared = events_in(caplog, "store-shared")

    assert "b" in {event.fields["taken_by"] for event in shared}
    assert "is not a member of this cluster" in str(shared[0])


def lose(host: DurableHost, partition: Partition, to: str) -> None:
    """As if *to* had won the claim of a partition after a fence."""
    host.machine._lost(partition, to, now_us())
    host.writer.carry_out(())


async def test_a_node_that_drops_a_keyspace_and_one_that_joins_later_are_not_strangers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("visits", partitions=4)
        host = a.keyspaces.durable_host("visits")
        await keyspace.put("k", 1)
        lose(host, host.driver.partitions[0], "b")  # as if from the other side of a cut
        await trio.sleep(STRANGER_S / 2)
        await cluster.start("b")
        await trio.sleep(STRANGER_S)
        for partition in host.driver.online():
            lose(host, partition, FENCE)
        await trio.sleep(STRANGER_S + 1)

    assert events_in(caplog, "partition-lost")
    assert events_in(caplog, "store-shared") == []


async def test_a_bug_in_what_runs_beside_the_driver_leaves_the_partitions_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began: Counter[str] = Counter()
    duties = DurableHost._duties

    def with_bugs(host: DurableHost) -> dict[str, Callable[[], Awaitable[None]]]:
        def failing(what: str, run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            async def once() -> None:
                began[what] += 1
                if began[what] == 1:
                    raise ZeroDivisionError(what)
                await run()

            return once

        return {what: failing(what, run) for what, run in duties(host).items()}

    monkeypatch.setattr(DurableHost, "_duties", with_bugs)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a")
        await trio.sleep(5)

        assert len(began) == 4
        assert set(began.values()) == {2}
        await keyspace.put("k", 1)
        assert await keyspace.get("k") == 1
