"""Stale reads whose owner hangs: they are answered from the store, and say how old that is."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import PartitionUnavailable
from ringpop_py.base.values.requests import STALE_OWNER_S
from ringpop_py.state.durable import copies
from ringpop_py.state.durable.copies import Copies
from ringpop_py.state.stores.memory import StoreFault
from tests.state.durable.benches import until
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at
from tests.state.table.reading import value_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.state.durable.partition import PartitionCopy
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.state.keyspaces.clusters import Cluster

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

    def keys(self, count: int) -> list[str]:
        """So many that the owner serves, each in another partition."""
        mine = (key for n in range(10_000) if self.reader.owner_of(key := f"k{n}") == "owner")
        first = {self.reader.partition_of(key): key for key in mine}
        return list(first.values())[:count]

    def slow_reading(self, seconds: float, slow: int | None = None) -> list[int]:
        """Have each reading of a log take so long, or that of the partition *slow*.

        Return the numbers of those that have begun.
        """
        begun: list[int] = []
        make = self.copies._make_copy

        def make_slow(number: int) -> PartitionCopy:
            partition = make(number)
            copy = partition.read

            async def copy_slowly() -> None:
                begun.append(number)
                await copy()
                if slow in (None, number):
                    await trio.sleep(seconds)

            partition.read = copy_slowly  # type: ignore[method-assign]
            return partition

        self.copies._make_copy = make_slow
        return begun

    @property
    def copies(self) -> Copies:
        """Those of the reader."""
        found = self.reader._host.copies
        assert isinstance(found, Copies)
        return found

    @property
    def copies_count(self) -> int:
        """How many copies the reader has."""
        return len(self.copies)


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


async def test_its_age_counts_from_when_the_reading_began_and_not_from_when_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writes acknowledged during the reading may be missing."""
    monkeypatch.setattr(copies, "FRESH_S", 0.2)
    async with a_scene() as scene:
        key = scene.key()
        await scene.reader.put(key, 1)
        scene.hang()
        begun = scene.slow_reading(0.3)

        first = await scene.reader.get_stale([key])
        await trio.sleep(0.1)
        later = await scene.reader.get_stale([key])
        await trio.sleep(0.2)
        anew = await scene.reader.get_stale([key])

        assert first.values == later.values == anew.values == {key: 1}
        assert first.age_s == pytest.approx(0.3)
        assert later.age_s == pytest.approx(0.4)  # it is fresh: its reading ended just now
        assert anew.age_s == pytest.approx(0.3)
        assert begun == [scene.reader.partition_of(key)] * 2


async def test_a_copy_that_was_fresh_ages_while_the_owner_of_another_part_is_waited_for() -> None:
    """It was looked at first, and is that much older when the read returns."""
    async with a_scene() as scene:
        first, second = scene.keys(2)
        scene.hang()
        await scene.reader.get_stale([first])
        complete_at = trio.current_time()  # the reading took no time
        await trio.sleep(0.2)

        found = await scene.reader.get_stale([first, second])

        assert trio.current_time() >= complete_at + 0.2 + STALE_OWNER_S
        assert found.age_s == pytest.approx(trio.current_time() - complete_at)


async def test_a_copy_that_came_first_ages_until_all_parts_are_answered() -> None:
    async with a_scene() as scene:
        first, second = scene.keys(2)
        scene.hang()
        begun = scene.slow_reading(10, scene.reader.partition_of(second))

        async with trio.open_nursery() as nursery:

            async def resume() -> None:
                await until(lambda: len(begun) == 2)
                await trio.sleep(0.2)
                scene.cluster.resume("owner")

            nursery.start_soon(resume)
            found = await scene.reader.get_stale([first, second], timeout_s=8)

        assert found.age_s is not None
        assert found.age_s >= 0.2


async def test_a_stale_read_has_all_writes_acknowledged_earlier_than_its_age() -> None:
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
        # Each node notes how far its own journal has come, whether or not somebody reads.
        written = [each for each in scene.store.list("") if "/reached/" not in each]

        await scene.reader.get(key, stale=True)
        await scene.reader.page_packed(stale=True)

        assert [each for each in scene.store.list("") if "/reached/" not in each] == written
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

        found = scene.copies

        with pytest.raises(PartitionUnavailable, match="stopped"):
            await copies.Copies(found._make_copy, spawn, bool).read(
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
