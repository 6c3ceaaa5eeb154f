"""Something in a store was damaged or lost: its partition stops and says so, the others go on."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import trio

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.checksum import unwrap
from ringpop_py.base.values.declared import encode
from ringpop_py.edge.admin.answers import here_of
from ringpop_py.edge.web.metrics import NodeMetrics
from ringpop_py.state.backups.epochs import checkpoint_now
from ringpop_py.state.backups.restore import bring_back, restore
from ringpop_py.state.catalog.assignments import record
from ringpop_py.state.catalog.checkpoints import decode_checkpoint
from ringpop_py.state.durable.checkpointer import TRIM_S
from ringpop_py.state.jobs.messages import AttemptManifest, Decision, FinishRequest, StageHead
from ringpop_py.state.jobs.plan import JobPlan
from ringpop_py.state.jobs.record import JobRecord
from ringpop_py.state.jobs.store import now_us
from ringpop_py.state.journal.codec import decode_record
from ringpop_py.state.journal.records import Group
from ringpop_py.state.placement.assignment import Assignment
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.rows.stagefile import Chunk, encode_stage, index_of
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time

PARTITIONS = 4
VALUE = 1_000_000_007
PACKED = VALUE.to_bytes(4, "big")
KEYS = [f"k{n}" for n in range(40)]


@contextmanager
def without(store: MemoryStore, key: str, instead: bytes | None = None) -> Iterator[None]:
    """Within the block *key* is gone, or holds something else; afterwards it is put back."""
    value = store.get(key)
    assert value is not None
    store.delete([key])
    if instead is not None:
        store.put_if_absent(key, instead)
    yield
    store.delete([key])
    store.put_if_absent(key, value)


async def filled(node: Ringpop) -> Keyspace:
    keyspace = await node.open_keyspace("k", partitions=PARTITIONS, checkpoint_interval_s=1_000_000)
    await all_online(keyspace, node.name)
    for key in KEYS:
        await keyspace.put(key, VALUE)
    return keyspace


async def checkpoint(node: Ringpop, *, first: int = 0) -> None:
    host = node.keyspaces.durable_host("k")
    for partition in host.driver.online()[first:]:
        assert await host.checkpointer.write(partition) is not None
        while host.writer.journal.checkpointing(partition.number):
            await trio.sleep(0.01)


async def a_store(
    *, checkpoints_count: int = 0, first: int = 0, trims: bool = False, noted: bool = False
) -> MemoryStore:
    """A store whose node was killed after it wrote all `KEYS`, then so many checkpoints.

    Args:
        first: the first partition with checkpoints.
        trims: whether it has deleted what they cover.
        noted: whether it had the time to note how far its journal has come.
    """
    store, left = MemoryStore(), MemoryStore()
    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        keyspace = await filled(node)
        for count in range(checkpoints_count):
            if count:
                await keyspace.update_many([(key, "add", 0) for key in KEYS])
            await checkpoint(node, first=first)
        if trims:
            await node.keyspaces.durable_host("k").writer.trim()
        if noted:
            await trio.sleep(2 * TRIM_S)
        for key in store.list(""):
            left.put_if_absent(key, store.get(key) or b"")
    return left


def checkpoints_of(store: MemoryStore, partition: int = 0) -> list[str]:
    return [key for key in store.list("") if f"/p/{partition:05}/ck/" in key]


def slots_of(store: MemoryStore) -> list[str]:
    return [key for key in store.list("") if "/j/" in key and "/mark/" not in key]


def slot_of_first(store: MemoryStore) -> str:
    """The first slot with an entry of partition 0."""
    for key in slots_of(store):
        record = decode_record(store.get(key) or b"", key)
        if isinstance(record, Group) and record.entry_of(0) is not None:
            return key
    raise AssertionError("there is none")


async def opened(node: Ringpop) -> Keyspace:
    keyspace = await node.open_keyspace("k")
    while keyspace.table.statuses()["online"] < PARTITIONS - 1:
        await trio.sleep(0.01)
    return keyspace


async def one_partition_stops(keyspace: Keyspace, names: str) -> None:
    """Assert that the first partition is refused and says why, and that all others are served."""
    for key in KEYS:
        if keyspace.partition_of(key):
            assert await keyspace.get(key) == VALUE
        else:
            with pytest.raises(StateDamaged, match=names):
                await keyspace.get(key)
            with pytest.raises(StateDamaged, match=names):
                await keyspace.put(key, 1)


async def test_a_flipped_bit_in_a_record_is_never_served_and_is_told_with_its_key() -> None:
    store = await a_store(checkpoints_count=1, first=1)
    key = slot_of_first(store)
    value = store.get(key) or b""
    flipped = value.replace(PACKED, (VALUE - 1).to_bytes(4, "big"))

    async with a_cluster(store) as cluster:
        with without(store, key, flipped):
            keyspace = await opened(await cluster.start("b"))
            await one_partition_stops(keyspace, key)
        await all_online(keyspace, "b")

        assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)


@pytest.mark.parametrize("checkpoints_count", [1, 2])  # a whole one; one before changes
async def test_a_checkpoint_that_is_gone_is_told_of_and_helps_when_it_is_put_back(
    checkpoints_count: int,
) -> None:
    store = await a_store(checkpoints_count=checkpoints_count, trims=True)
    await one_partition_stops_without(checkpoints_of(store)[0], store)


async def test_a_record_that_all_partitions_need_stops_them_all_until_it_is_put_back() -> None:
    store = await a_store()
    key = slots_of(store)[len(KEYS) // 2]

    async with a_cluster(store) as cluster:
        with without(store, key):
            keyspace = await (await cluster.start("b")).open_keyspace("k")
            for each in KEYS:
                with pytest.raises(StateDamaged, match=key):
                    await keyspace.get(each)
        await all_online(keyspace, "b")

        assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)


@pytest.mark.parametrize("lost", ["the last slot", "some last slots", "the whole journal"])
async def test_the_end_of_a_journal_that_is_gone_is_told_of_until_it_is_put_back(
    lost: str,
) -> None:
    store = await a_store(noted=True)
    slots = slots_of(store)
    gone = slots[{"the last slot": -1, "some last slots": -9, "the whole journal": 0}[lost] :]

    async with a_cluster(store) as cluster:
        with ExitStack() as losses:
            for key in gone:
                losses.enter_context(without(store, key))
            keyspace = await (await cluster.start("b")).open_keyspace("k")
            for each in KEYS:
                with pytest.raises(StateDamaged, match=f"{gone[0]} is gone: slots up to"):
                    await keyspace.get(each)
        await all_online(keyspace, "b")

        assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)
        assert [key for key in slots_of(store) if key not in slots], "it was ended only then"


async def test_a_first_claim_that_is_gone_is_told_of_until_it_is_put_back() -> None:
    store = await a_store(noted=True)
    (claim,) = (key for key in store.list("") if "/p/00000/claims/" in key)

    await one_partition_stops_without(claim, store)


async def test_the_loss_of_the_end_of_a_journal_can_be_accepted() -> None:
    store = await a_store(noted=True)
    *others, last = slots_of(store)
    store.delete([last, *(key for key in store.list("") if "/reached/" in key)])

    async with a_cluster(store) as cluster:
        keyspace = await (await cluster.start("b")).open_keyspace("k")
        found = await keyspace.get_many(KEYS)

    assert others
    assert len(found) == len(KEYS) - 1


@pytest.mark.parametrize("checkpoints_count", [0, 1])
async def test_without_a_loss_what_was_noted_stops_nobody(checkpoints_count: int) -> None:
    store = await a_store(checkpoints_count=checkpoints_count, trims=True, noted=True)

    for name in ("b", "c"):
        async with a_cluster(store) as cluster:
            keyspace = await (await cluster.start(name)).open_keyspace("k")
            assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)
            await trio.sleep(2 * TRIM_S)


async def one_partition_stops_without(key: str, store: MemoryStore) -> None:
    async with a_cluster(store) as cluster:
        with without(store, key):
            keyspace = await opened(await cluster.start("b"))
            await one_partition_stops(keyspace, key)
        await all_online(keyspace, "b")

        assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)


async def test_a_damaged_keyspace_is_restored_in_place_from_a_checkpoint_of_the_whole() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        await filled(node)
        await checkpoint_now(node.keyspaces.durable_host("k"))
        await checkpoint(node)
        await node.keyspaces.durable_host("k").writer.trim()
        await cluster.stop("a")
    store.delete([checkpoints_of(store)[0]])

    async with a_cluster(store) as cluster:
        node = await cluster.start("b")
        await opened(node)
        with pytest.raises(StateDamaged):
            await bring_back_of_damaged(node)
        await restore(node.keyspaces, "k")
        restored = await node.open_keyspace("k")

        assert await restored.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)


async def bring_back_of_damaged(node: Ringpop) -> None:
    """What needs the state as it is now, and not as a checkpoint of the whole has it."""
    await node.keyspaces.drop("k")
    await bring_back(node.keyspaces, "k")


async def test_a_partition_that_is_served_stays_so_though_nobody_else_can_read_its_log() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        a = await cluster.start("a")
        keyspace = await filled(a)
        await checkpoint(a)
        await a.keyspaces.durable_host("k").writer.trim()
        with without(store, checkpoints_of(store)[0]):
            b = await cluster.start("b")
            await trio.sleep(20)
            there = await b.open_keyspace("k")

            assert await there.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)
            assert keyspace.table[0].owner == "a"


async def test_damage_is_told_at_once_though_the_table_names_an_owner_that_is_gone() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        b = await cluster.start("b")
        a = await cluster.start("a")
        keyspace = await a.open_keyspace(
            "k", partitions=PARTITIONS, checkpoint_interval_s=1_000_000
        )
        there = await b.open_keyspace("k")
        await all_online(keyspace, "a", "b")
        key = key_at(keyspace, "a")
        for number in range(5):
            await keyspace.put(key, number)
        name = a.keyspaces.durable_host("k").writer.journal.name
        slot = next(each for each in slots_of(store) if name in each)
        with without(store, slot, b"damaged"):
            cluster.hang("a")
            while there.table[there.partition_of(key)].desired != "b":
                await trio.sleep(0.1)
            await trio.sleep(10)

            began_at = trio.current_time()
            with pytest.raises(StateDamaged, match=slot):
                await there.get(key, timeout_s=30)
            assert trio.current_time() - began_at < 1


async def test_damage_is_told_to_operators_with_its_partition_and_key() -> None:
    store = await a_store(checkpoints_count=1, trims=True)
    key = checkpoints_of(store)[0]

    async with a_cluster(store) as cluster:
        with without(store, key):
            node = await cluster.start("b")
            await opened(node)
            await trio.sleep(1)
            here = here_of(node, node.keyspaces.durable_host("k"))
            figures = NodeMetrics(node).exposed("")[0]
        await all_online(await opened(node), "b")
        after = here_of(node, node.keyspaces.durable_host("k"))

    assert here["damaged"] == [0]
    assert b'ringpop_partitions_damaged{keyspace="k"} 1.0' in figures
    assert key in str(here["troubles"])
    assert (after["damaged"], after["troubles"]) == ([], [])


# All objects.


def _readers(key: str) -> Callable[[bytes], object]:
    if "/ck/" in key or ("/checkpoints/epoch-" in key):
        return decode_checkpoint
    if "/staged/" in key and not key.endswith("/manifest"):
        return index_of
    return partial(unwrap, key=key)


async def test_every_object_in_a_store_has_a_checksum_that_notices_each_flipped_bit() -> None:
    rng = Random(5)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        await filled(node)
        await checkpoint(node)
        await checkpoint_now(node.keyspaces.durable_host("k"))
        jobs = node.keyspaces.durable_host("k").jobs.store
        record(cluster.store, jobs.keys, Assignment(1, (node.name,) * PARTITIONS))
        now_ms = now_us() // 1_000
        chunk = Chunk(partition_of("k1", PARTITIONS), pa.array(["k1"]), pa.array([b"\x05"]))
        file = encode_stage("put", [chunk])
        jobs.stage(StageHead("k", 1, "j", "t", 0, now_ms), file)
        manifest = encode(AttemptManifest((), now_ms))
        jobs.finish(FinishRequest("k", 1, "j", "t", manifest))
        jobs.commit_or_abort("j", Decision(("t",), "token"))
        jobs.put_applied(JobRecord("j", plan=JobPlan(Decision(("t",), "token"), (), {}, 0)))
        store = cluster.store
        kinds = {re.sub(r"[0-9a-f]{24}|\d+", "N", key) for key in store.list("") if store.get(key)}

        assert len(kinds) >= 11, sorted(kinds)
        for key in store.list(""):
            value, read = store.get(key), _readers(key)
            if not value:
                continue  # that the key is there says all
            read(value)
            for bit in rng.sample(range(8 * len(value)), min(200, 8 * len(value))):
                flipped = bytearray(value)
                flipped[bit // 8] ^= 1 << bit % 8
                with pytest.raises((StateDamaged, BodyError)):
                    read(bytes(flipped))


async def test_a_flipped_bit_in_a_definition_is_told_by_its_key_and_maps_no_key_elsewhere() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        await filled(await cluster.start("a"))
    (key,) = [key for key in store.list("") if key.endswith("/definition")]
    value = store.get(key) or b""
    at = value.index(b"partitions") + len(b"partitions")
    damaged = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]

    async with a_cluster(store) as cluster:
        with without(store, key, damaged):
            node = await cluster.start("a")
            with pytest.raises(StateDamaged, match=f"{key} cannot be read.*checksum"):
                await node.open_keyspace("k")
        assert await (await node.open_keyspace("k")).get(KEYS[0]) == VALUE
