"""Something in a store was damaged or lost: its partition stops and says so, the others go on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.admin.answers import here_of
from ringpop_py.backups.epochs import checkpoint_now
from ringpop_py.backups.restore import bring_back, restore
from ringpop_py.errors import StateDamaged
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.partition.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.partition.logstore import LogStore
from ringpop_py.partition.tasks import Worker
from ringpop_py.slotlog.effects import Request
from ringpop_py.slotlog.slotlog import SlotLog
from ringpop_py.slotlog.slots import Slot
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.stores.memory import MemoryStore
from ringpop_py.values.packed import make_packer
from tests.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ringpop_py.keyspaces.keyspace import Keyspace
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.slotlog.effects import Effect

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


async def checkpoint(node: Ringpop) -> None:
    host = node.keyspaces.durable_host("k")
    for partition in host.driver.online():
        assert await host.checkpointer.write(partition) is not None
        while partition.log.checkpointing:
            await trio.sleep(0.01)


async def a_store(*, checkpoints_count: int = 0) -> MemoryStore:
    """A store whose node was killed after it wrote all `KEYS`, then so many checkpoints."""
    store, left = MemoryStore(), MemoryStore()
    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        keyspace = await filled(node)
        for count in range(checkpoints_count):
            if count:
                await keyspace.update_many([(key, "add", 0) for key in KEYS])
            await checkpoint(node)
        for key in store.list(""):
            left.put_if_absent(key, store.get(key) or b"")
    return left


def keys_of(store: MemoryStore, what: str, partition: int = 0) -> list[str]:
    return [key for key in store.list("") if f"/p/{partition:05}/{what}/" in key]


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
    store = await a_store()
    (key, *_) = (k for k in keys_of(store, "s") if PACKED in (store.get(k) or b""))
    value = store.get(key) or b""
    flipped = value.replace(PACKED, (VALUE - 1).to_bytes(4, "big"))

    async with a_cluster(store) as cluster:
        with without(store, key, flipped):
            keyspace = await opened(await cluster.start("b"))
            await one_partition_stops(keyspace, key)
        await all_online(keyspace, "b")

        assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)


@pytest.mark.parametrize(
    ("checkpoints_count", "prefix", "place"),
    [(1, "ck", 0), (2, "ck", 0), (0, "s", 2)],  # a whole checkpoint; one before changes; a record
)
async def test_what_is_gone_is_told_of_and_helps_when_it_is_put_back(
    checkpoints_count: int, prefix: str, place: int
) -> None:
    store = await a_store(checkpoints_count=checkpoints_count)
    key = keys_of(store, prefix)[place]

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
        await cluster.stop("a")
    store.delete([keys_of(store, "ck")[0]])

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
        with without(store, keys_of(store, "ck")[0]):
            b = await cluster.start("b")
            await trio.sleep(20)
            there = await b.open_keyspace("k")

            assert await there.get_many(KEYS) == dict.fromkeys(KEYS, VALUE)
            assert keyspace.table[0].owner == "a"


async def test_damage_is_told_to_operators_with_its_partition_and_key() -> None:
    store = await a_store(checkpoints_count=1)
    key = keys_of(store, "ck")[0]

    async with a_cluster(store) as cluster:
        with without(store, key):
            node = await cluster.start("b")
            await opened(node)
            await trio.sleep(1)
            here = here_of(node, node.keyspaces.durable_host("k"))
        await all_online(await opened(node), "b")
        after = here_of(node, node.keyspaces.durable_host("k"))

    assert here["damaged"] == [0]
    assert key in str(here["troubles"])
    assert (after["damaged"], after["troubles"]) == ([], [])


class Between(MemoryStore):
    """Does something right after the first of the lists that show what a log has."""

    then: Callable[[], None] | None = None

    def list(self, prefix: str) -> list[str]:
        found = super().list(prefix)
        if self.then is not None:
            then, self.then = self.then, None
            then()
        return found


async def test_a_checkpoint_that_comes_while_a_log_is_listed_takes_no_second_list() -> None:
    """So it would if checkpoints were listed first: its mark would be there, and it would not."""
    store, keys = Between(), KeyspaceKeys("default", "k", 1).partition(0)
    owner = SlotLog("a", a_state(), lambda: "a")
    logs = LogStore(store, keys, Worker(store, 1))
    carry_out(logs, owner, owner.acquire(lambda _: True))
    carry_out(logs, owner, owner.commit([{"k": b"1"}, [], {"s": [1]}, {}]))
    file = encode_checkpoint(Checkpoint("k", 1, 0, owner.position, (), a_state().whole()))
    logs.hold_checkpoint(owner.position, file)
    store.then = lambda: carry_out(logs, owner, owner.checkpoint(owner.position))
    store.calls.clear()
    reader = SlotLog("b", a_state(), lambda: "b")

    carry_out(logs, reader, reader.follow())

    assert reader._replay.base == reader.position == Slot(1, 1)
    assert store.calls["list"] == 2


def a_state() -> KeyedState:
    return KeyedState(make_packer(), Aggregations())


def carry_out(logs: LogStore, log: SlotLog, effects: Iterable[Effect]) -> None:
    queue = list(effects)
    while queue:
        effect = queue.pop(0)
        if isinstance(effect, Request):
            queue += log.answered(effect.id, logs.perform_now(effect))
