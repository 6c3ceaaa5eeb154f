"""Locks on keys of a cluster's keyspace: at a node, and from both clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

from ringpop_py import (
    AsyncClient,
    AsyncKeyspaceClient,
    Client,
    ConditionFailed,
    Config,
    ConfigError,
    KeyspaceClient,
    LockHeld,
    LockLost,
    StaleTerm,
    open_local_keyspaces,
    open_ringpop,
)
from ringpop_py.state.locks.holding import Asking
from ringpop_py.state.locks.lock import async_locking, locking
from ringpop_py.state.locks.terms import LOCK, LOCK_NAME, UNLOCK
from ringpop_py.state.stores.memory import MemoryStore
from tests.client.loops import BACKENDS, run_on
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from trio.testing import MockClock

    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.locks.lock import Lock
    from tests.state.keyspaces.clusters import Cluster


async def two_nodes(cluster: Cluster) -> tuple[Keyspace, Keyspace]:
    one, other = await cluster.start("a"), await cluster.start("b")
    ours = await one.open_keyspace("k", partitions=4, hash_tags=True)
    await all_online(ours, "a", "b")
    return ours, await other.open_keyspace("k")


@pytest.mark.virtual_time
async def test_one_holder_at_a_time_whose_writes_end_with_the_lock() -> None:
    async with a_cluster() as cluster:
        ours, theirs = await two_nodes(cluster)
        holders: list[Lock] = []
        count = 0

        async def work(keyspace: Keyspace) -> None:
            nonlocal count
            for _ in range(3):
                async with keyspace.lock("{i}7") as lock:
                    holders.append(lock)
                    count += 1
                    assert count == 1, "two hold it"
                    seen = await keyspace.get("{i}7", 0)
                    await trio.sleep(0.1)
                    assert isinstance(seen, int)
                    await keyspace.put("{i}7", seen + 1, fence=lock)
                    await keyspace.transaction([("{i}8", "add", 1)], fence=lock)
                    count -= 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, ours)
            nursery.start_soon(work, theirs)
        assert [lock.term for lock in holders] == [1, 2, 3, 4, 5, 6]
        assert await ours.get_many(["{i}7", "{i}8"]) == {"{i}7": 6, "{i}8": 6}
        assert [key async for key, _ in ours.scan()] == ["{i}7", "{i}8"]
        for write in (
            ours.put("{i}7", 0, fence=holders[-1]),
            theirs.delete("{i}8", fence=holders[0]),
            ours.transaction([("{i}7", "delete", None)], fence=holders[-1]),
        ):
            with pytest.raises(StaleTerm, match="not held"):
                await write


@pytest.mark.virtual_time
async def test_a_lock_fences_keys_of_its_own_partition_only() -> None:
    async with a_cluster() as cluster:
        ours, theirs = await two_nodes(cluster)
        number = ours.partition_of("x")
        other = next(key for key in "abcdefgh" if ours.partition_of(key) != number)
        async with ours.lock("x") as lock:
            with pytest.raises(StaleTerm, match="or of another partition"):
                await ours.put(other, 1, fence=lock)
            with pytest.raises(LockHeld, match="in term 1"):
                async with theirs.lock("x", wait_s=0.5):
                    pass
            async with theirs.lock(other, wait_s=0):
                pass


@pytest.mark.virtual_time
async def test_the_lock_of_a_holder_that_dies_lapses_also_if_its_key_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + trio.current_time())
    async with a_cluster() as cluster:
        ours, _ = await two_nodes(cluster)
        key = key_at(ours, "b")
        dead = Asking(f"{LOCK_NAME}{key}", "dead")
        assert await ours.update(key, LOCK, 5_000, fence=dead) == 1
        began = trio.current_time()
        await cluster.stop("b")
        await all_online(ours, "a")
        with pytest.raises(LockHeld, match="in term 1"):
            async with ours.lock(key, wait_s=0):
                pass
        async with ours.lock(key) as lock:
            assert lock.term == 2
            assert 5 <= trio.current_time() - began < 7
            await ours.put(key, 1, fence=lock)
        with pytest.raises(ConditionFailed):
            await ours.update(key, UNLOCK, 5_000, fence=dead)


async def take_away(keyspace: Keyspace, lock: Lock) -> None:
    """Release *lock* in its holder's place."""
    await keyspace.update(lock.key, UNLOCK, 1, fence=lock._holding.asking)


@pytest.mark.virtual_time
async def test_the_block_is_cancelled_when_the_lock_is_lost() -> None:
    async with open_local_keyspaces(MemoryStore()) as local:
        keyspace = await local.open_keyspace("k", partitions=2)
        locks = []

        async def lose() -> None:
            async with keyspace.lock("x", ttl_s=4) as lock:
                locks.append(lock)
                lock.check()
                await take_away(keyspace, lock)
                await trio.sleep_forever()

        async def fail() -> None:
            async with keyspace.lock("x") as lock:
                assert lock.term == 2
                raise KeyError("mine")

        with pytest.raises(LockLost, match=r"the lock on 'x', term 1: .*nobody's"):
            await lose()
        assert locks[0].lost.is_set()
        with pytest.raises(LockLost):
            locks[0].check()
        with pytest.raises(KeyError, match="mine"):
            await fail()
        async with keyspace.lock("x", wait_s=0):
            pass


@pytest.mark.virtual_time
async def test_copies_that_are_merged_have_no_locks() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        in_memory = await node.open_keyspace("m", partitions=2, mode="memory")
        await all_online(in_memory, "a")
        with pytest.raises(ConfigError, match="key 'x' cannot be locked: only keys of durable"):
            async with in_memory.lock("x"):
                pass
    async with open_local_keyspaces() as local:
        alone = await local.open_keyspace("k", partitions=2)
        async with alone.lock("x") as lock:
            await alone.put("x", 1, fence=lock)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_clients_hold_locks(backend: str) -> None:
    async with open_ringpop(Config(store="memory:"), store=MemoryStore()) as node:
        keyspace = await node.open_keyspace("k", partitions=2)

        async def hold() -> None:
            async with (
                AsyncClient(node.address) as client,
                AsyncKeyspaceClient(client, "k") as theirs,
                theirs.lock("x", ttl_s=1) as lock,
            ):
                until = lock._holding.lost_at
                await theirs.put("x", lock.term, fence=lock)
                with anyio.fail_after(20):
                    while lock._holding.lost_at == until:
                        await anyio.sleep(0.01)
                with pytest.raises(LockHeld):
                    async with theirs.lock("x", wait_s=0):
                        pass

        await run_on(backend, hold)

        def hold_in_thread() -> None:
            with Client(node.address) as client, KeyspaceClient(client, "k") as theirs:
                with theirs.lock("x", ttl_s=1) as lock:
                    theirs.put("x", lock.term, fence=lock)
                    with pytest.raises(LockHeld), theirs.lock("x", wait_s=0):
                        pass
                with pytest.raises(StaleTerm):
                    theirs.put("x", 0, fence=lock)
                with theirs.lock("x", ttl_s=1) as lock:
                    trio.from_thread.run(take_away, keyspace, lock)
                    assert lock.lost.wait(20)

        with pytest.raises(LockLost, match="term 3"):
            await trio.to_thread.run_sync(hold_in_thread)
        assert await keyspace.get("x") == 2


def test_a_block_that_ends_after_its_lock_has_lapsed_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a pause of the process, when the thread that renews has not run yet."""
    steps, late_s = list[str](), 0.0
    clock = time.monotonic

    def update(**step: Any) -> int:  # noqa: ANN401
        steps.append(step["operation"])
        return 1

    monkeypatch.setattr(time, "monotonic", lambda: clock() + late_s)
    with pytest.raises(LockLost, match="not renewed in 30 s"), locking(update, "k", 30.0, None):
        late_s = 31.0
    assert steps[0] == "lock"
    assert steps[-1] == "unlock"
    with locking(update, "k", 30.0, None):
        pass


async def test_the_same_in_a_task(autojump_clock: MockClock) -> None:
    async def update(**_step: Any) -> int:  # noqa: ANN401
        return 1

    with pytest.raises(LockLost, match="not renewed in 30 s"):
        async with async_locking(update, "k", 30.0, None):
            autojump_clock.jump(31.0)
