"""`backups.verify`: whether all that a store holds can be read, and what cannot."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ringpop_py.base.values.checksum import wrap
from ringpop_py.state.backups.epochs import checkpoint_now
from ringpop_py.state.backups.verify import OTHERS, Verified, verify
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.jobs.messages import StageHead
from ringpop_py.state.jobs.store import JobStore, now_us
from ringpop_py.state.placement.keys import Placing, partition_of
from ringpop_py.state.rows.stagefile import Chunk, encode_stage
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.clusters import a_cluster
from tests.state.keyspaces.test_damage import (
    KEYS,
    PARTITIONS,
    a_store,
    checkpoint,
    checkpoints_of,
    filled,
    slot_of_first,
    slots_of,
    without,
)

pytestmark = pytest.mark.virtual_time


def of_keyspace(store: MemoryStore) -> Verified:
    (found,) = verify(store, "k")
    assert found.partitions == PARTITIONS
    return found


def flipped(value: bytes) -> bytes:
    middle = len(value) // 2
    return value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :]


async def everything() -> MemoryStore:
    """A store with an object of each kind."""
    store = await a_store(checkpoints_count=2, trims=True, noted=True)
    async with a_cluster(store) as cluster:
        node = await cluster.start("b")
        await node.open_keyspace("gone", partitions=1)
        await node.keyspaces.drop("gone")
        await node.open_keyspace("k")
        await checkpoint_now(node.keyspaces.durable_host("k"))
        await checkpoint(node)
        jobs = JobStore(store, node.keyspaces.durable_host("k").keys, Placing(PARTITIONS))
        key = next(key for key in KEYS if partition_of(key, PARTITIONS) == 0)
        file = encode_stage("put", [Chunk(0, pa.array([key]), pa.array([b"\x01"]))])
        jobs.stage(StageHead("k", 1, "j", "1", 0, now_us() // 1_000), file)
        await cluster.stop("b")
    return store


async def test_a_store_that_is_sound_is_found_sound_and_nothing_is_put() -> None:
    store = await everything()
    before = {key: store.get(key) for key in store.list("")}

    found = verify(store)

    assert [(each.name, each.damaged, each.partitions_damaged) for each in found] == [
        (OTHERS, {}, {}),
        ("gone", {}, {}),
        ("k", {}, {}),
    ]
    assert sum(each.objects for each in found) == len(before)
    assert sum(each.size_bytes for each in found) == sum(len(v or b"") for v in before.values())
    assert {key: store.get(key) for key in store.list("")} == before


async def test_a_flipped_bit_in_any_object_is_found_with_its_key() -> None:
    store = await everything()
    kinds = set()
    for key in store.list(""):
        value = store.get(key)
        if not value:  # a mark without content has nothing that could be damaged
            continue
        with without(store, key, flipped(value)):
            damaged = [each.damaged for each in verify(store)]
        kinds.add("/".join(part for part in key.split("/") if part.isalpha()))
        (texts,) = filter(None, damaged)
        assert list(texts) == [key]
        assert key in texts[key]
    assert len(kinds) >= 10, kinds


async def test_what_was_put_under_another_key_is_found() -> None:
    store = await a_store(checkpoints_count=1)
    first, second = checkpoints_of(store, 0)[0], checkpoints_of(store, 1)[0]

    with without(store, first, store.get(second)):
        found = of_keyspace(store)

    assert "another slot or partition" in found.damaged[first]
    assert list(found.partitions_damaged) == [0]


async def test_a_record_that_cannot_be_read_damages_the_partitions_that_need_it() -> None:
    store = await a_store(checkpoints_count=1, first=1)
    key = slot_of_first(store)

    with without(store, key, flipped(store.get(key) or b"")):
        found = of_keyspace(store)

    assert (list(found.damaged), list(found.partitions_damaged)) == ([key], [0])


@pytest.mark.parametrize("noted", [False, True])
async def test_a_checkpoint_that_is_gone_damages_its_partition(noted: bool) -> None:  # noqa: FBT001
    store = await a_store(checkpoints_count=1, trims=True, noted=noted)
    key = checkpoints_of(store, 2)[0]

    with without(store, key):
        found = of_keyspace(store)

    assert found.damaged == {}
    assert list(found.partitions_damaged) == [2]
    assert f"{key} is gone" in found.partitions_damaged[2]


async def test_slots_and_claims_that_are_gone_are_missed_if_a_node_has_noted_them() -> None:
    store = await a_store(noted=True)
    middle, last = slots_of(store)[20], slots_of(store)[-1]
    claim = KeyspaceKeys("default", "k", 1).partition(3).claim(1)
    gone = {}

    for key in (middle, last, claim):
        with without(store, key):
            gone[key] = of_keyspace(store).partitions_damaged

    assert list(gone[middle]) == list(gone[last]) == list(range(PARTITIONS))
    assert list(gone[claim]) == [3]
    for key, damaged in gone.items():
        assert all(f"{key} is gone" in text for text in damaged.values())


async def test_a_definition_that_is_gone_or_damaged_is_named() -> None:
    store = await a_store()
    key = KeyspaceKeys("default", "k", 1).definition

    with without(store, key):
        (lost,) = verify(store, "k")
    with without(store, key, wrap(b"\x01", key)):
        (strange,) = verify(store, "k")

    assert (list(lost.damaged), lost.partitions) == ([key], None)
    assert f"{key} is gone" in lost.damaged[key]
    assert (list(strange.damaged), strange.partitions) == ([key], None)


async def test_another_keyspace_is_left_alone_if_one_is_named() -> None:
    store = await a_store()
    async with a_cluster(store) as cluster:
        node = await cluster.start("b")
        await filled(node)
        await node.open_keyspace("other", partitions=1)
        await cluster.stop("b")
    told: list[str] = []

    assert [each.name for each in verify(store, "other", told.append)] == ["other"]
    assert verify(store, "absent") == verify(MemoryStore()) == []
    assert told[-1] == "the partitions of other, generation 1"
