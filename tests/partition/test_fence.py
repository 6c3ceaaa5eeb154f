"""`ringpop_py.partition.fence`: what was dropped is over, also for those who do not hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.errors import (
    KeyspaceError,
    KeyspaceUnknown,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.partition.fence import FENCE, fence
from ringpop_py.slotlog.records import decode_record
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.stores.memory import MemoryStore, StoreFault
from ringpop_py.values.packed import make_packer
from tests.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


async def acknowledged(keyspace: Keyspace, key: str) -> bool:
    try:
        await keyspace.put(key, "late", timeout_s=3)
    except KeyspaceError:
        return False
    return True


async def test_an_owner_that_is_cut_off_acknowledges_nothing_after_a_drop() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        there = await b.open_keyspace("counts")
        key = key_at(keyspace, "b")
        cluster.isolate("b")
        assert await acknowledged(there, key)

        await a.keyspaces.drop("counts")

        assert not await acknowledged(there, key)
        with pytest.raises(KeyspaceUnknown):
            b.keyspaces.here("counts")


async def test_nobody_takes_a_partition_of_what_was_dropped_back() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        there = await b.open_keyspace("counts")
        cluster.isolate("b")

        await a.keyspaces.drop("counts")
        await trio.sleep(30)  # b gives a up, and would take over all that a had

        assert not any([await acknowledged(there, f"k{n}") for n in range(16)])


async def test_a_drop_that_was_interrupted_is_finished_by_the_next_one() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a")
        cluster.isolate("a")
        cluster.store.inject(StoreFault.FAILS, verb="list", count=4)
        with pytest.raises(StoreUnavailable):
            await a.keyspaces.drop("counts")
        cluster.store.heal()

        await a.keyspaces.drop("counts")

        assert cluster.store.get(KeyspaceKeys("default", "counts", 1).fenced) is not None
        with pytest.raises(KeyspaceUnknown):
            await a.keyspaces.drop("counts")


async def test_what_is_created_after_an_interrupted_drop_has_the_name_to_itself() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        there = await b.open_keyspace("counts")
        key = key_at(keyspace, "b")
        cluster.isolate("b")
        cluster.store.put_if_absent(KeyspaceKeys("default", "counts", 1).dropped, b"")

        new = await a.open_keyspace("counts", partitions=8)

        assert not await acknowledged(there, key)
        assert await new.get(key) is None


def test_a_fence_is_the_last_claim() -> None:
    store, keys = MemoryStore(), KeyspaceKeys("default", "counts", 1).partition(0)

    fence(store, keys)
    fence(store, keys)

    key = store.list(keys.slots)[-1]
    last = decode_record(store.get(key) or b"", key)
    assert getattr(last, "owner", "") == FENCE


def test_a_store_in_trouble_fences_nothing() -> None:
    store, keys = MemoryStore(), KeyspaceKeys("default", "counts", 1).partition(0)
    store.inject(StoreFault.FULL)

    with pytest.raises(StoreUnavailable):
        fence(store, keys)


@pytest.mark.parametrize(
    ("place", "instead"),
    [*((place, b"\xc1\x02 damaged") for place in range(5)), (0, None), (2, None)],
)
async def test_a_log_with_a_damaged_or_lost_record_is_ended_though_it_cannot_be_read(
    place: int, instead: bytes | None
) -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1)
        for n in range(4):
            await keyspace.put("k", n)
        keys, store = KeyspaceKeys("default", "counts", 1).partition(0), cluster.store
        key = store.list(keys.slots)[place]
        store.delete([key])
        if instead is not None:
            store.put_if_absent(key, instead)

        with pytest.raises(StateDamaged, match=key):
            fence(store, keys, KeyedState(make_packer(), Aggregations()))
        fence(store, keys)

        assert not await acknowledged(keyspace, "k")
