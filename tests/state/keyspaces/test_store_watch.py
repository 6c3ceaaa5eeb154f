"""A node whose store fails it alone, for writes or altogether: others take over, and it says so."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import KeyspaceError, StoreFull, StoreRefused, StoreUnavailable
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from tests.logged import events_in
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.virtual_time


class Mount(MemoryStore):
    """The store *there* as one machine sees it, which may be read-only for it, or cut off."""

    def __init__(self, there: MemoryStore) -> None:
        super().__init__()
        self.there = there
        self.is_read_only = False
        self.is_cut = False

    def put_if_absent(self, key: str, value: bytes) -> bool:
        if self.is_read_only:
            raise StoreRefused(f"{key}: Read-only file system")
        return self._reached().put_if_absent(key, value)

    def get(self, key: str) -> bytes | None:
        return self._reached().get(key)

    def list(self, prefix: str) -> list[str]:
        return self._reached().list(prefix)

    def _reached(self) -> MemoryStore:
        if self.is_cut:
            raise StoreUnavailable("the store does not answer")
        return self.there

    def delete(self, keys: Sequence[str]) -> None:
        if not self.is_read_only:
            self.there.delete(keys)


async def test_writes_are_refused_at_once_with_the_reason_and_reads_go_on() -> None:
    async with a_cluster() as cluster:
        mount = Mount(cluster.store)
        keyspace = await (await cluster.start("a", store=mount)).open_keyspace("k", partitions=2)
        await keyspace.put("x", 1)
        mount.is_read_only = True
        began = trio.current_time()

        with pytest.raises(StoreRefused, match="Read-only file system") as caught:
            await keyspace.put("x", 2)

        assert caught.value.took_effect == "no"
        assert await keyspace.get("x") == 1
        assert trio.current_time() - began < 0.1
        mount.is_read_only = False
        await keyspace.put("x", 3)
        assert await keyspace.get("x") == 3


async def test_a_drain_ends_and_other_members_serve_what_it_had() -> None:
    async with a_cluster() as cluster:
        mount = Mount(cluster.store)
        a = await cluster.start("a", store=mount)
        keyspace = await a.open_keyspace("k", partitions=8)
        b = await cluster.start("b")
        there = await b.open_keyspace("k")
        await all_online(keyspace, "a", "b")
        for number in range(40):
            await keyspace.put(f"k{number}", number)
        key = key_at(keyspace, "a")
        mount.is_read_only = True
        with pytest.raises(StoreRefused):
            await keyspace.put(key, 7)

        a.drain()

        with trio.fail_after(30):
            await all_online(there, "b")
        assert await there.get_many(f"k{n}" for n in range(40)) == {f"k{n}": n for n in range(40)}
        await there.put(key, 8)
        assert await keyspace.get(key) == 8


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("is_read_only", "the store refuses its writes: "),
        ("is_cut", "the store answers b, but not this member: "),
    ],
)
async def test_other_members_take_over_by_themselves_until_the_store_works_here_again(
    caplog: pytest.LogCaptureFixture, trouble: str, why: str
) -> None:
    caplog.set_level(logging.INFO, logger="ringpop")
    async with a_cluster() as cluster:
        mount = Mount(cluster.store)
        a = await cluster.start("a", store=mount)
        keyspace = await a.open_keyspace("k", partitions=8)
        await cluster.start("b")
        await all_online(keyspace, "a", "b")
        key = key_at(keyspace, "a")
        await keyspace.put(key, 1)
        setattr(mount, trouble, True)
        with pytest.raises(KeyspaceError):
            await keyspace.put(key, 2, timeout_s=1)

        with trio.fail_after(10):
            await all_online(keyspace, "b")
        await keyspace.put(key, 3)  # through the member whose store works
        setattr(mount, trouble, False)
        with trio.fail_after(20):
            await all_online(keyspace, "a", "b")

        assert await keyspace.get(key) == 3
        [event] = events_in(caplog, "store-fails-here")
        assert why in str(event)
        assert len(events_in(caplog, "store-works-here")) == 1


async def test_nothing_moves_while_no_member_reaches_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        mounts = [Mount(cluster.store), Mount(cluster.store)]
        nodes = [await cluster.start(n, store=m) for n, m in zip("ab", mounts, strict=True)]
        keyspace = await nodes[0].open_keyspace("k", partitions=8)
        await all_online(keyspace, "a", "b")
        keys = [key_at(keyspace, name) for name in "ab"]
        for mount in mounts:
            mount.is_cut = True
        for key in keys:
            with pytest.raises(KeyspaceError):
                await keyspace.put(key, 2, timeout_s=1)
        await trio.sleep(30)

        assert [keyspace.owner_of(key) for key in keys] == ["a", "b"]
        assert not events_in(caplog, "store-fails-here")


@pytest.mark.parametrize("drains", [False, True])
async def test_a_node_does_not_claim_again_the_partitions_that_it_is_fenced_from(
    *, drains: bool
) -> None:
    async with a_cluster() as cluster:
        mount = Mount(cluster.store)
        a = await cluster.start("a", store=mount)
        keyspace = await a.open_keyspace("k", partitions=64)
        b, _ = await cluster.start("b"), await cluster.start("c")
        there = await b.open_keyspace("k")
        await all_online(keyspace, "a", "b", "c")
        key = key_at(keyspace, "a")
        mount.is_read_only = True

        async def read_on() -> None:  # so it learns of the fence while others still take over
            while True:
                with suppress(KeyspaceError):
                    await keyspace.get_many((f"k{n}" for n in range(200)), timeout_s=0.1)
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_on)
            if drains:
                a.drain()
            with pytest.raises(StoreRefused):
                await keyspace.put(key, 2)
            with trio.fail_after(60):
                await all_online(there, "b", "c")
            nursery.cancel_scope.cancel()
        await there.put(key, 3)
        assert await keyspace.get(key) == 3


async def test_without_another_member_it_keeps_its_partitions_and_serves_reads() -> None:
    async with a_cluster() as cluster:
        mounts = [Mount(cluster.store), Mount(cluster.store)]
        nodes = [await cluster.start(n, store=m) for n, m in zip("ab", mounts, strict=True)]
        keyspace = await nodes[0].open_keyspace("k", partitions=8)
        await all_online(keyspace, "a", "b")
        keys = [key_at(keyspace, name) for name in "ab"]
        await keyspace.update_many([(key, "put", 1) for key in keys])
        for mount in mounts:
            mount.is_read_only = True
        for key in keys:
            with pytest.raises(StoreRefused):
                await keyspace.put(key, 2)
        await trio.sleep(60)

        assert await keyspace.get_many(keys) == dict.fromkeys(keys, 1)
        for mount in mounts:
            mount.is_read_only = False
        with trio.fail_after(60):
            await all_online(keyspace, "a", "b")
        await keyspace.update_many([(key, "put", 3) for key in keys])
        assert await keyspace.get_many(keys) == dict.fromkeys(keys, 3)


async def test_a_store_that_is_full_moves_nothing_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="ringpop")
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("k", partitions=8)
        await cluster.start("b")
        await all_online(keyspace, "a", "b")
        key = key_at(keyspace, "a")
        cluster.store.inject(StoreFault.FULL)
        with pytest.raises(StoreFull):
            await keyspace.put(key, 2)
        await trio.sleep(10)

        assert keyspace.owner_of(key) == "a"
        [event] = events_in(caplog, "store-full")
        assert str(event).startswith("the store has no room for writes of keyspace 'k': ")
        await keyspace.put(key, 3)
        await trio.sleep(2)
        assert len(events_in(caplog, "store-full")) == len(events_in(caplog, "store-has-room")) == 1
