"""Stale reads whose owner hangs: they are answered from the store, and say how old that is."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import PartitionUnavailable
from ringpop_py.config.settings import StateConfig
from ringpop_py.shares import copies
from ringpop_py.stores.memory import StoreFault
from ringpop_py.values.requests import STALE_OWNER_S
from tests.keyed.reading import value_in
from tests.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ringpop_py.keyspaces.keyspace import Keyspace
    from tests.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time


class Scene:
    """A cluster of "reader" and "owner", each as it has the keyspace "k"."""

    def __init__(self, cluster: Cluster, reader: Keyspace, owner: Keyspace) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.reader = reader
        self.owner = owner

    def hang(self) -> None:
        """Have the owner's process hang, as far as anybody can see."""
        self.cluster.hang("owner")

    def key(self) -> str:
        """One that the owner serves."""
        return key_at(self.reader, "owner")

    @property
    def copies_count(self) -> int:
        """How many copies the reader has."""
        found = self.reader._host.copies
        assert found is not None
        return len(found)


@asynccontextmanager
async def a_scene(*, partitions: int = 8, state: StateConfig | None = None) -> AsyncIterator[Scene]:
    async with a_cluster() as cluster:
        reader_node = await cluster.start("reader", state=state)
        owner_node = await cluster.start("owner", state=state)
        reader = await reader_node.open_keyspace("k", partitions=partitions)
        await all_online(reader, "reader", "owner")
        owner = await owner_node.keyspaces.get("k")
        yield Scene(cluster, reader, owner)


async def test_a_stale_read_is_answered_though_the_owner_hangs_and_another_read_is_not() -> None:
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, "kept")
        scene.hang()

        assert await scene.reader.get(key, stale=True) == "kept"
        assert await scene.reader.get_many([key, "none"], stale=True, timeout_s=2) == {key: "kept"}
        with pytest.raises(PartitionUnavailable):
            await scene.reader.get(key, timeout_s=0.2)  # before anybody has taken it over


async def test_it_says_how_old_it_is_where_the_store_has_answered() -> None:
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, 1)
        from_owner = await scene.reader.get_stale([key])
        scene.hang()

        begun_at = trio.current_time()
        from_store = await scene.reader.get_stale([key])
        await trio.sleep(0.4)
        later = await scene.reader.get_stale([key])

        assert from_owner == ({key: 1}, None)
        assert from_store.values == later.values == {key: 1}
        assert from_store.age_s is not None
        assert later.age_s is not None
        assert 0 <= from_store.age_s <= trio.current_time() - begun_at - 0.4
        assert later.age_s == pytest.approx(from_store.age_s + 0.4)


async def test_what_was_acknowledged_earlier_than_its_age_is_in_it() -> None:
    async with a_scene() as scene:
        key = scene.key()
        scene.hang()
        acknowledged: list[tuple[float, int]] = [(0.0, -1)]
        reads = []
        await scene.owner.put(key, -1)

        async def write() -> None:
            for number in range(100):
                await scene.owner.put(key, number)  # it reaches the store, if nobody else
                acknowledged.append((trio.current_time(), number))
                await trio.sleep(0.03)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(60):
                values, age_s = await scene.reader.get_stale([key])
                assert age_s is not None
                reads.append((trio.current_time() - age_s, values[key]))
                await trio.sleep(0.02)

        assert len({value for _, value in reads}) > 1
        for complete_at, value in reads:
            assert isinstance(value, int)
            assert value >= max(number for at, number in acknowledged if at < complete_at)


async def test_the_log_is_read_once_for_all_who_want_it_and_not_again_for_a_second() -> None:
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, 1)
        scene.hang()
        before = scene.store.calls["list"]

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(lambda: scene.reader.get(key, stale=True))
        lists_once = scene.store.calls["list"] - before
        begun_at = trio.current_time()
        for _ in range(20):
            await scene.reader.get(key, stale=True)

        assert 0 < lists_once <= 4  # checkpoints and slots, each twice
        assert scene.store.calls["list"] - before == lists_once
        assert trio.current_time() == begun_at


async def test_nothing_is_claimed_sealed_or_written_for_it() -> None:
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, 1)
        scene.hang()
        written = scene.store.list("")

        await scene.reader.get(key, stale=True)
        await scene.reader.page_packed(stale=True)

        assert scene.store.list("") == written
        await scene.owner.put(key, 2)  # it is the owner still


async def test_a_scan_has_the_keys_of_all_partitions_and_keeps_few_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "COPIES_MAX", 3)
    async with a_scene(partitions=32) as scene:
        rows = [(f"k{number:03}", number) for number in range(200)]
        await scene.reader.update_many([(key, "put", value) for key, value in rows])
        scene.hang()

        assert [row async for row in scene.reader.scan(stale=True, timeout_s=2)] == rows
        assert scene.copies_count <= 3


async def test_a_copy_that_nobody_reads_is_forgotten() -> None:
    async with a_scene() as scene:
        scene.hang()
        await scene.reader.get(scene.key(), stale=True)
        assert scene.copies_count == 1

        await trio.sleep(2 * copies.KEPT_S)

        assert scene.copies_count == 0


async def test_a_copy_begins_with_a_checkpoint_where_slots_are_gone() -> None:
    async with a_scene(partitions=2, state=StateConfig(checkpoint_slots_max=5)) as scene:
        key = scene.key()
        for number in range(30):
            await scene.reader.put(key, number)
        while len(scene.store.list("")) > 20:  # claims, definitions and few slots
            await trio.sleep(0.1)
        await scene.reader.put(key, "after")
        scene.hang()

        assert await scene.reader.get(key, stale=True, timeout_s=2) == "after"


async def test_an_owner_that_is_only_slow_answers_where_the_store_does_not() -> None:
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, 1)
        scene.hang()
        scene.store.inject(StoreFault.FAILS, verb="list", count=1_000)

        async with trio.open_nursery() as nursery:

            async def resume() -> None:
                await trio.sleep(2 * STALE_OWNER_S)
                scene.cluster.resume("owner")

            nursery.start_soon(resume)
            found = await scene.reader.get_stale([key], timeout_s=20)

        assert found == ({key: 1}, None)


async def test_a_damaged_log_is_not_taken_for_an_empty_one() -> None:
    async with a_scene(partitions=2) as scene:
        key = scene.key()
        await scene.reader.put(key, "kept")
        scene.hang()
        slot = next(k for k in scene.store.list("") if "/j/" in k and k.endswith("/0000000001"))
        scene.store.delete([slot])
        scene.store.put_if_absent(slot, b"something else")

        with pytest.raises(
            PartitionUnavailable, match=r"; nor can the store .*cannot be read: .*damaged"
        ):
            await scene.reader.get(key, stale=True, timeout_s=2)


async def test_where_neither_answers_the_error_tells_of_both() -> None:
    async with a_scene() as scene:
        scene.hang()
        scene.store.inject(StoreFault.FAILS, verb="list", count=1_000)

        with pytest.raises(PartitionUnavailable, match=r"no owner answered.*; nor can the store"):
            await scene.reader.get(scene.key(), stale=True, timeout_s=20)


async def test_a_reader_that_gives_up_does_not_end_the_reading_of_others() -> None:
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, 1)
        scene.hang()
        found = []

        async def impatient() -> None:
            with trio.move_on_after(STALE_OWNER_S + 0.001):
                await scene.reader.get(key, stale=True)

        async def patient() -> None:
            found.append(await scene.reader.get(key, stale=True, timeout_s=2))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient)
            nursery.start_soon(patient)

        assert found == [1]


async def test_a_reading_that_was_stopped_is_not_begun_again_by_those_who_wait_for_it() -> None:
    async with a_scene() as scene, trio.open_nursery() as nursery:
        begun: list[object] = []

        def spawn(function: Callable[..., Awaitable[object]], *arguments: object) -> None:
            begun.append(function)
            assert len(begun) < 10, "it is begun again and again"

            async def stopped() -> None:
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await function(*arguments)

            nursery.start_soon(stopped)

        found = scene.reader._host.copies
        assert found is not None

        with pytest.raises(PartitionUnavailable, match="stopped"):
            await copies.Copies(found._make_partition, spawn, bool).read(
                0, lambda state: value_in(state, "k")
            )


async def test_where_a_keyspace_was_never_assigned_the_store_answers_the_first_read() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("alone")
        keyspace = await node.open_keyspace("k", partitions=4, min_cluster_size=2)

        values, age_s = await keyspace.get_stale(["x", "y", "z"])

        assert values == {}
        assert age_s is not None


async def test_in_memory_there_is_no_store_to_read_from() -> None:
    async with a_cluster() as cluster:
        reader_node = await cluster.start("reader")
        await cluster.start("owner")
        reader = await reader_node.open_keyspace("k", partitions=8, mode="memory")
        await all_online(reader, "reader", "owner")
        key = key_at(reader, "owner")
        cluster.hang("owner")

        with pytest.raises(PartitionUnavailable):
            await reader.get(key, stale=True, timeout_s=2)
