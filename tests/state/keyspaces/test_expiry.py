"""Keys that expire in a cluster, though nobody writes: where they are, and once they have moved."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import ConfigError
from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import BadOperation
from ringpop_py.node.signals.clocks import Clocks
from ringpop_py.state.stores.memory import StoreFault
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.placement.definition import Mode

pytestmark = pytest.mark.virtual_time
HOUR_S = 3_600


@pytest.fixture(autouse=True)
def _wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + trio.current_time())


def wrong_s(off_s: float) -> float:
    return time.time() + off_s


async def gone(keyspace: Keyspace, key: str) -> float:
    """Wait until *key* is gone; return when that was."""
    while await keyspace.get(key) is not None:
        await trio.sleep(0.01)
    return trio.current_time()


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_keys_expire_within_a_second_though_nobody_writes(mode: Mode) -> None:
    async with a_cluster() as cluster:
        a, _ = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("k", partitions=8, mode=mode)
        await all_online(keyspace, "a", "b")
        began = trio.current_time()
        for number in range(20):
            await keyspace.put(f"k{number}", number, expires_in=30)
        await keyspace.put("stays", 1)
        assert 29 < (await keyspace.ttl("k0") or 0) <= 30
        assert await keyspace.ttl("stays") is None
        assert await keyspace.ttl("unknown") == 0
        await trio.sleep_until(began + 29.9)
        assert len([key async for key, _ in keyspace.scan()]) == 21
        for number in range(20):
            await gone(keyspace, f"k{number}")
        assert trio.current_time() < began + 32
        assert [key async for key, _ in keyspace.scan()] == ["stays"]


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_an_instant_goes_with_its_partition(mode: Mode) -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await cluster.start("b")
        keyspace = await a.open_keyspace("k", partitions=8, mode=mode)
        await all_online(keyspace, "a", "b")
        key = key_at(keyspace, "b")
        began = trio.current_time()
        await keyspace.put(key, 1, expires_in=60)
        await keyspace.update(key, "add", 1)
        await cluster.stop("b")
        await all_online(keyspace, "a")
        await trio.sleep_until(began + 59)
        assert await keyspace.get(key) == 2
        assert await gone(keyspace, key) < began + 62


async def test_a_store_that_is_down_over_the_instant_delays_it() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a", state=StateConfig(timeout_s=2))
        keyspace = await a.open_keyspace("k", partitions=2)
        await all_online(keyspace, "a")
        began = trio.current_time()
        await keyspace.put("x", 1, expires_in=5)
        cluster.store.inject(StoreFault.FAILS, count=1_000)
        await trio.sleep_until(began + 20)
        cluster.store.heal()
        assert await keyspace.get("x", stale=True) == 1
        assert await gone(keyspace, "x") < began + 40


async def test_a_full_store_is_not_asked_all_the_time() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("k", partitions=2)
        await all_online(keyspace, "a")
        await keyspace.put("x", 1, expires_in=5)
        cluster.store.inject(StoreFault.FULL, count=1_000)
        await trio.sleep(10)
        before = cluster.store.calls["put_if_absent"]
        await trio.sleep(10)
        assert cluster.store.calls["put_if_absent"] - before < 30
        cluster.store.heal()
        await gone(keyspace, "x")


async def test_one_wrong_clock_neither_hurries_nor_sets_instants_early() -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "abc"]
        keyspace = await nodes[0].open_keyspace("k", partitions=8)
        await all_online(keyspace, *"abc")
        for node, off_s in zip(nodes, (HOUR_S, -HOUR_S, 0), strict=True):
            node.reporter.clocks.wall_s = partial(wrong_s, off_s)
        began = trio.current_time()
        keys = [key_at(keyspace, name) for name in "abc"]
        for key in keys:
            await keyspace.put(key, 1, expires_in=60)
        await trio.sleep_until(began + 59)
        assert len(await keyspace.get_many(keys)) == 3
        # The owner whose clock is right expires its key in time; a wrong one at most later.
        assert await gone(keyspace, keys[2]) < began + 62


def test_a_clock_is_guarded_by_the_median_of_others() -> None:
    async def main() -> None:
        clocks = Clocks()
        own = int(time.time() * 1_000)
        clocks.wall_s = lambda: own / 1_000
        assert clocks.set_ms() == clocks.due_ms() == own
        for number in range(100):  # of which those told last count
            clocks.told(f"p{number}", own + 5_000)
        assert (clocks.due_ms(), abs(clocks.set_ms() - own - 5_000) < 500) == (own, True)

    trio.run(main)


def test_of_two_clocks_one_that_is_wrong_brings_nothing_forward() -> None:
    async def main() -> None:
        clocks, right = Clocks(), int(time.time() * 1_000)
        clocks.told("peer", right)
        for off_ms in (-HOUR_S * 1_000, HOUR_S * 1_000):
            clocks.wall_s = partial(float, (right + off_ms) / 1_000)
            assert clocks.set_ms() >= right
            assert clocks.due_ms() < right + 500

    trio.run(main)


async def test_both_ends_of_a_connection_learn_the_time_of_the_other() -> None:
    async with a_cluster() as cluster:
        a, b = [await cluster.start(name) for name in "ab"]

        for node in (a, b):
            while not node.reporter.clocks._ahead_ms:
                await trio.sleep(0.01)

        assert len(list(a.channel.links)) == 1
        said = [abs(node.reporter.clocks.set_ms() - time.time() * 1_000) for node in (a, b)]
        assert max(said) < 5_000


async def test_rules_that_join_copies_refuse_instants() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("k", partitions=2, mode="memory", merge="max")
        await all_online(keyspace, "a")
        with pytest.raises(BadOperation, match="merged by 'max'"):
            await keyspace.put("x", 1, expires_in=5)
        await keyspace.put("x", 1)


async def test_wrong_options_are_told() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("k", partitions=2)
        await all_online(keyspace, "a")
        with pytest.raises(ConfigError, match="above 0"):
            await keyspace.put("x", 1, expires_in=0)
        with pytest.raises(BadOperation, match="in the past"):
            await keyspace.put("x", 1, expires_at=1_000)
        with pytest.raises(TypeError, match="no option 'expires'; it has expires_at, expires_in"):
            await keyspace.put("x", 1, expires=5)  # type: ignore[call-arg]
