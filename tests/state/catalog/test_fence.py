"""`state.catalog.fence`: a dropped keyspace has ended, also for nodes that do not hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import (
    KeyspaceError,
    KeyspaceUnknown,
    PartitionUnavailable,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.base.values.checksum import HEAD
from ringpop_py.base.values.operations import Outcome
from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.catalog.fence import FENCE, fence, take_whole
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.journal import codec
from ringpop_py.state.journal.records import Claim, Entry, Group, Mark, Seal
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from tests.state.durable.benches import KEYS, StoreWithARival, a_bench, add, put_checkpoint
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at
from tests.state.table.reading import value_in

if TYPE_CHECKING:
    from ringpop_py.state.keyspaces.keyspace import Keyspace

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


async def test_a_keyspace_created_after_an_interrupted_drop_has_the_name_to_itself() -> None:
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


# One partition.


def last_claim(store: MemoryStore, number: int = 0) -> Claim:
    key = store.list(KEYS.partition(number).claims)[-1]
    return codec.decode_claim(store.get(key) or b"", key)


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_fence_is_the_last_claim_and_is_put_once(*, claimed: bool) -> None:
    async with a_bench() as bench:
        if claimed:
            await bench.online("a")

        fence(bench.store, KEYS, 0)
        keys = bench.store.list("")
        fence(bench.store, KEYS, 0)

        assert last_claim(bench.store).owner == FENCE
        assert bench.store.list("") == keys


async def test_an_owner_acknowledges_nothing_in_a_partition_that_was_fenced() -> None:
    async with a_bench() as bench:
        partition, other = await bench.online("a", 0), await bench.online("a", 1)
        await partition.write([add(1)])

        fence(bench.store, KEYS, 0)

        with pytest.raises(PartitionUnavailable):
            await partition.write([add(2)])
        # The other one shares its journal, which is over, and is claimed again in the next one.
        assert await other.write([add(1)]) == [Outcome((1,))]
        assert other.epoch == 2


async def test_a_partition_that_was_claimed_again_meanwhile_is_fenced_in_its_new_journal() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        journal = bench.node("a").writer.journal

        def claim_again() -> None:
            """Act as an owner that has met the seal."""
            key = KEYS.partition(0).claim(2)
            claim = Claim("a", "new", 1)
            store.put_if_absent(key, codec.encode_claim(claim, key))

        store.before[KEYS.partition(0).claim(2)] = claim_again
        fence(store, KEYS, 0)

        assert last_claim(store).owner == FENCE
        assert len(store.list(KEYS.partition(0).claims)) == 3
        for name in (journal.name, "new"):
            key = KEYS.journal(name).slot(1 if name == "new" else 2)
            assert codec.decode_record(store.get(key) or b"", key) == Seal(FENCE)


async def test_a_fence_is_put_behind_what_its_owner_has_committed_meanwhile() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        await bench.online("a")
        first, second = bench.slot_key("a", 1), bench.slot_key("a", 2)
        group = codec.encode_record(Group((Entry(0, 1, [{}, [], {}, {}]),)), first)

        store.before[first] = lambda: store.put_if_absent(first, group)
        fence(store, KEYS, 0)

        assert store.get(first) == group
        assert codec.decode_record(store.get(second) or b"", second) == Seal(FENCE)


async def test_a_seal_below_a_mark_is_no_end_of_a_journal() -> None:
    """It is a lie of a node that was overtaken: its owner goes on behind it."""
    async with a_bench() as bench:
        partition = await bench.online("a")
        for number in range(5):
            await partition.write([add(number)])
        assert await put_checkpoint(partition)
        await bench.node("a").writer.trim()
        lie, end = bench.slot_key("a", 2), bench.slot_key("a", 6)
        assert bench.store.put_if_absent(lie, codec.encode_record(Seal("b"), lie))

        fence(bench.store, KEYS, 0)

        assert bench.slots_of("a") == [lie, end]
        assert codec.decode_record(bench.store.get(end) or b"", end) == Seal(FENCE)
        with pytest.raises(PartitionUnavailable):
            await partition.write([add(5)])


async def test_a_fence_that_was_overtaken_by_a_mark_is_put_again_behind_it() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        partition = await bench.online("a")
        first, second = bench.slot_key("a", 1), bench.slot_key("a", 2)
        mark = KEYS.journal(bench.node("a").writer.journal.name).mark(2)

        def go_on() -> None:
            """As an owner that writes, covers what it wrote, and deletes it."""
            store.put_if_absent(mark, codec.encode_mark(Mark({}), mark))

        store.before[first] = go_on
        fence(store, KEYS, 0)

        assert codec.decode_record(store.get(second) or b"", second) == Seal(FENCE)
        assert last_claim(store).owner == FENCE
        assert partition.epoch == 1  # it has not met the seal yet


async def test_a_claim_that_cannot_be_read_may_be_of_any_node_so_all_journals_are_ended() -> None:
    async with a_bench() as bench:
        first, second = await bench.online("a", 0), await bench.online("b", 1)
        await second.write([add(1)])
        await first.write([add(1)])
        key = KEYS.partition(0).claim(1)
        bench.store.delete([key])
        bench.store.put_if_absent(key, HEAD + b" damaged")

        fence(bench.store, KEYS, 0)

        with pytest.raises(PartitionUnavailable):
            await first.write([add(2)])
        assert await second.write([add(2)]) == [Outcome((2,))]
        assert second.epoch == 2


def test_a_store_in_trouble_fences_nothing() -> None:
    store = MemoryStore()
    store.inject(StoreFault.FULL)

    with pytest.raises(StoreUnavailable):
        fence(store, KEYS, 0)

    assert store.list("") == []


async def test_a_partition_that_is_taken_whole_has_everything_and_is_ended() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        for number in range(3):
            await partition.write([add(number)])
        assert await put_checkpoint(partition)
        await partition.write([add(3)])
        state = KeyedState(make_packer(), Aggregations())

        take_whole(bench.store, KEYS, 0, state)

        assert value_in(state, "k") == 4
        assert last_claim(bench.store).owner == FENCE
        with pytest.raises(PartitionUnavailable):
            await partition.write([add(4)])


async def test_a_partition_that_two_have_ended_at_the_same_time_is_taken_whole() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        state = KeyedState(make_packer(), Aggregations())

        store.before[bench.slot_key("a", 2)] = lambda: fence(store, KEYS, 0)
        fence(store, KEYS, 0)
        take_whole(store, KEYS, 0, state)

        assert len(bench.slots_of("a")) == 3  # one group, and the seals of both
        assert value_in(state, "k") == 1


@pytest.mark.parametrize(
    ("place", "instead"),
    [
        *((place, HEAD + b" damaged") for place in ("claim", 0, 2, 3)),
        *((place, None) for place in ("claim", 0, 2)),
    ],
)
async def test_a_partition_with_damage_or_a_loss_is_ended_though_it_cannot_be_read(
    place: str | int, instead: bytes | None
) -> None:
    async with a_bench() as bench:
        first = await bench.online("a")
        await first.write([add(0)])
        partition = await bench.online("b")
        for number in range(1, 5):
            await partition.write([add(number)])
        key = KEYS.partition(0).claim(1) if place == "claim" else bench.slots_of("b")[int(place)]
        bench.store.delete([key])
        if instead is not None:
            bench.store.put_if_absent(key, instead)

        with pytest.raises(StateDamaged, match=key):
            take_whole(bench.store, KEYS, 0, KeyedState(make_packer(), Aggregations()))
        fence(bench.store, KEYS, 0)

        assert last_claim(bench.store).owner == FENCE
        with pytest.raises(PartitionUnavailable):
            await partition.write([add(9)])
