"""Something in a store was damaged or lost: its partition stops and says so, the others go on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.errors import StateDamaged
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.ringpop import Ringpop
    from ringpop_py.state.keyspace import Keyspace

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


async def a_store() -> MemoryStore:
    """A store whose node was killed after it wrote all `KEYS`."""
    store, left = MemoryStore(), MemoryStore()
    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        await filled(node)
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
