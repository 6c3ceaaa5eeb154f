"""`ringpop_py.state.backups.restore`: from checkpoints of the whole, and after a drop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceConflict,
    KeyspaceError,
    KeyspaceUnknown,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.state.backups.epochs import checkpoint_now
from ringpop_py.state.backups.restore import bring_back, restore
from ringpop_py.state.catalog.assignments import record
from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.journal.records import ORIGIN
from ringpop_py.state.placement.assignment import Assignment
from ringpop_py.state.shares.rescale_events import Gained
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from tests.state.backups.hosts import host_of, listed_at
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time

FIRST = {f"k{n}": n for n in range(40)}


async def filled(node: Ringpop) -> Keyspace:
    keyspace = await node.open_keyspace("counts", partitions=8)
    await keyspace.update_many([(key, "put", value) for key, value in FIRST.items()])
    return keyspace


async def test_a_checkpoint_outlives_all_nodes_and_any_number_of_others_restores_it() -> None:
    """V13, V14."""
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        a, _ = await cluster.start("a"), await cluster.start("b")
        keyspace = await filled(a)
        await checkpoint_now(host_of(a))
        await keyspace.put("k1", "later")

    async with a_cluster(store) as cluster:
        nodes = [await cluster.start(name) for name in ("x", "y", "z")]
        await restore(nodes[1].keyspaces, "counts", into="copy")
        copy = await nodes[0].open_keyspace("copy")
        await all_online(copy, "x", "y", "z")

        assert await copy.get_many(FIRST) == FIRST
        assert await (await nodes[2].open_keyspace("counts")).get("k1") == "later"


async def test_a_keyspace_is_restored_in_place_for_all_nodes() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await filled(a)
        await all_online(keyspace, "a", "b")
        await checkpoint_now(host_of(a))
        await keyspace.update_many([(key, "put", "later") for key in [*FIRST, "new"]])

        entry = await restore(b.keyspaces, "counts")
        await trio.sleep(0.1)  # a hears of it

        assert (entry.generation, entry.origin[:21]) == (2, "restored from epoch-1")
        for node in (a, b):
            assert await (await node.open_keyspace("counts")).get_many([*FIRST, "new"]) == FIRST
        with pytest.raises(KeyspaceError):
            await keyspace.put("k1", 1, timeout_s=3)


async def test_an_owner_that_is_cut_off_acknowledges_nothing_after_a_restoration() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await filled(a)
        await all_online(keyspace, "a", "b")
        there = await b.open_keyspace("counts")
        key = key_at(keyspace, "b")
        await checkpoint_now(host_of(a))
        cluster.isolate("b")
        await there.put(key, "the last one")

        await restore(a.keyspaces, "counts")

        with pytest.raises(KeyspaceError):
            await there.put(key, "too late", timeout_s=3)


async def test_writes_from_before_the_checkpoint_do_not_take_effect_again() -> None:
    """R12."""
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=8)
        change = [("k", "add", 5)]
        await keyspace.update_many(change, operation_id="once", offsets={"topic": 7})
        await checkpoint_now(host_of(a))

        await restore(a.keyspaces, "counts")
        restored = await a.open_keyspace("counts")

        assert await restored.update("k", "add", 5, operation_id="once") == 5
        events = restored.rescale_events()
        gained = {e.partition: e for e in [await anext(events)] if isinstance(e, Gained)}
        while restored.partition_of("k") not in gained:
            event = await anext(events)
            gained |= {event.partition: event} if isinstance(event, Gained) else {}
        assert gained[restored.partition_of("k")].offsets == {"topic": 7}


async def test_the_state_goes_on_from_there_through_checkpoints_of_its_own() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        a = await cluster.start("a")
        await filled(a)
        await checkpoint_now(host_of(a))
        await restore(a.keyspaces, "counts")
        restored = await a.open_keyspace("counts")
        await restored.put("k1", "after")
        for partition in host_of(a).driver.online():
            assert await host_of(a).checkpointer.write(partition) is not None

    async with a_cluster(store) as cluster:
        again = await (await cluster.start("b")).open_keyspace("counts")

        assert await again.get_many(FIRST) == FIRST | {"k1": "after"}
        first = KeyspaceKeys("default", "counts", 2).partition(again.partition_of("k1"))
        assert store.get(first.checkpoint(ORIGIN)) is None


async def test_numbers_of_checkpoints_go_on_through_generations() -> None:
    """V12."""
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await filled(a)
        await checkpoint_now(host_of(a))
        await restore(a.keyspaces, "counts", 1)
        await (await a.open_keyspace("counts")).put("k1", "after")
        await checkpoint_now(host_of(a))

        listed = listed_at(a)
        await restore(a.keyspaces, "counts", 1)
        first = await (await a.open_keyspace("counts")).get("k1")
        await restore(a.keyspaces, "counts", "latest")

        assert [(m.number, m.generation) for m in listed] == [(1, 1), (2, 2)]
        assert first == 1
        assert await (await a.open_keyspace("counts")).get("k1") == "after"


async def test_a_drop_can_be_undone() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await filled(a)
        await keyspace.update("k", "add", 5, operation_id="once")
        await a.keyspaces.drop("counts")

        entry = await bring_back(b.keyspaces, "counts")
        await trio.sleep(0.1)  # a hears of it

        back = await a.open_keyspace("counts")
        assert entry.generation == 2
        assert await back.get_many(FIRST) == FIRST
        assert await back.update("k", "add", 5, operation_id="once") == 5


async def test_a_restoration_in_place_can_be_undone() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await filled(a)
        await checkpoint_now(host_of(a))
        await keyspace.put("k1", "later")
        await restore(a.keyspaces, "counts")

        await bring_back(a.keyspaces, "counts", 1)

        assert await (await a.open_keyspace("counts")).get("k1") == "later"
        with pytest.raises(KeyspaceConflict, match=r"not dropped; to undo a restore, .*: 2"):
            await bring_back(a.keyspaces, "counts")
        with pytest.raises(KeyspaceUnknown, match="generation 9"):
            await bring_back(a.keyspaces, "counts", 9)


async def test_a_checkpoint_that_lacks_a_file_changes_nothing() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await filled(a)
        await checkpoint_now(host_of(a))
        cluster.store.delete([KeyspaceKeys("default", "counts", 1).epoch_file(1, 5)])

        with pytest.raises(StateDamaged, match="is gone"):
            await restore(a.keyspaces, "counts")

        await keyspace.put("k1", "still there")
        assert cluster.store.list(KeyspaceKeys("default", "counts", 2).root) == []


@pytest.mark.parametrize("skipped", range(0, 24, 6))
async def test_one_that_fails_halfway_is_done_by_the_next_call(skipped: int) -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await filled(a)
        await checkpoint_now(host_of(a))
        catalog, _ = a.keyspaces.durable("counts")
        catalog.store = FailingStore(cluster.store, skipped)
        with suppress(StoreUnavailable):
            await restore(a.keyspaces, "counts")
        catalog.store = cluster.store

        await restore(a.keyspaces, "counts")

        assert await (await a.open_keyspace("counts")).get_many(FIRST) == FIRST


@pytest.mark.parametrize("attempt", range(3))
async def test_of_two_at_once_one_is_what_there_is_afterwards(attempt: int) -> None:
    """V11: two nodes that act at the same time do no harm."""
    async with a_cluster() as cluster:
        nodes = [await cluster.start("a"), await cluster.start("b")]
        keyspace = await filled(nodes[0])
        await all_online(keyspace, "a", "b")
        await checkpoint_now(host_of(nodes[0]))
        outcomes: list[object] = []

        async def one(node: Ringpop, after_steps_count: int) -> None:
            for _ in range(after_steps_count):
                await trio.lowlevel.checkpoint()
            try:
                outcomes.append((await restore(node.keyspaces, "counts")).generation)
            except KeyspaceConflict as error:
                outcomes.append(type(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, nodes[0], 0)
            nursery.start_soon(one, nodes[1], attempt * 20)
        await trio.sleep(0.1)

        assert 3 in outcomes
        restored = await nodes[0].open_keyspace("counts")
        assert await restored.get_many(FIRST) == FIRST


async def test_a_restore_that_was_given_up_halfway_is_not_brought_back() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        definition = (await filled(a)).definition
        await a.keyspaces.drop("counts")
        catalog = Catalog(cluster.store, "default")
        half = catalog.reserve(definition, "restored by somebody")
        catalog.delete_incomplete(half)
        catalog.complete(half)

        await bring_back(a.keyspaces, "counts")

        assert await (await a.open_keyspace("counts")).get_many(FIRST) == FIRST


async def test_partitions_stay_where_somebody_had_them_put() -> None:
    async with a_cluster() as cluster:
        a, _ = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace(
            "counts", partitions=4, strategy="average", automatic=False
        )
        await all_online(keyspace, "a", "b")
        before = Assignment(2, ("a", "a", "a", "b"))
        record(cluster.store, host_of(a).keys, before)
        await checkpoint_now(host_of(a))

        await restore(a.keyspaces, "counts")
        restored = await a.open_keyspace("counts")
        await all_online(restored, "a", "b")

        assert restored.table.owners() == before.owners


async def test_nobody_creates_a_keyspace_while_it_is_restored() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await filled(a)
        definition = keyspace.definition
        await a.keyspaces.drop("counts")
        Catalog(cluster.store, "default").reserve(definition, "restored by somebody")

        with pytest.raises(KeyspaceConflict, match="is being restored by somebody"):
            await a.open_keyspace("counts", partitions=8)
        await a.keyspaces.drop("counts")

        assert await (await a.open_keyspace("counts", partitions=8)).get("k1") is None


async def test_it_makes_no_keyspace_of_the_cluster() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await filled(a)
        await checkpoint_now(host_of(a))

        with pytest.raises(ConfigError, match="the cluster's own keyspaces, not '~copy'"):
            await restore(a.keyspaces, "counts", into="~copy")
        assert [each.name for each in a.keyspaces.all()] == ["counts"]


async def test_it_replaces_no_other_keyspace() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await filled(a)
        other = await a.open_keyspace("other", partitions=4)
        await checkpoint_now(host_of(a))

        with pytest.raises(KeyspaceConflict, match="exists"):
            await restore(a.keyspaces, "counts", into="other")

        await other.put("k", 1)


async def test_a_missing_checkpoint_cannot_be_restored() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await filled(a)

        with pytest.raises(KeyspaceUnknown, match="no complete checkpoint"):
            await restore(a.keyspaces, "counts")
        with pytest.raises(KeyspaceUnknown, match="no checkpoint epoch-3"):
            await restore(a.keyspaces, "counts", 3)
        with pytest.raises(ConfigError, match="latest"):
            await restore(a.keyspaces, "counts", 0)


class FailingStore:
    """A store of which one put fails, after so many."""

    quick = in_memory = True
    value_bytes_max = None

    def __init__(self, store: MemoryStore, puts_before: int) -> None:
        self._store = store
        self._left = puts_before
        self.get, self.list, self.delete = store.get, store.list, store.delete
        self.close = store.close

    def put_if_absent(self, key: str, value: bytes) -> bool:
        self._left -= 1
        if self._left == -1:
            self._store.inject(StoreFault.FAILS)
        return self._store.put_if_absent(key, value)
