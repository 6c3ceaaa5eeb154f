"""`state.durable.writer`: what one journal does for all partitions, and what is trimmed."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from ringpop_py.base.errors import OutcomeUnknown, PartitionUnavailable, StoreFull, StoreUnavailable
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.desk import WriteJob
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from tests.state.durable.benches import (
    KEYS,
    DistantStore,
    a_bench,
    acquire,
    add,
    anybody,
    nobody,
    put_checkpoint,
    release,
    total,
)
from tests.state.table.reading import value_in

if TYPE_CHECKING:
    from ringpop_py.state.durable.partition import Partition

pytestmark = pytest.mark.virtual_time


# Claims, and who may ask whom.


async def test_an_epoch_is_settled_here_once_nothing_of_it_is_on_its_way() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        writer = bench.node("a").writer
        journal = writer.journal.name

        held = writer.machine.is_settled(0, journal)
        await release(partition, "b")

        assert not held
        assert writer.machine.is_settled(0, journal)
        assert writer.machine.is_settled(0, "another journal")
        assert writer.machine.is_settled(7, journal)


# Work.


async def test_readers_that_come_together_share_a_look_though_the_store_is_quick() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        before = bench.store.calls["get"]
        found: list[object] = []

        async def read() -> None:
            found.append(await total(partition))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(read)

        assert found == [1] * 50
        assert bench.store.calls["get"] - before <= 3


async def test_a_caller_that_hangs_up_leaves_the_others_their_answers() -> None:
    async with a_bench(DistantStore()) as bench:
        partition = await bench.online("a")
        bench.store.inject(StoreFault.FAILS, count=3)
        outcomes: list[object] = []

        async def write(sequence: int, scope: trio.CancelScope) -> None:
            with scope:
                outcomes.extend(await partition.write([add(sequence)]))

        hangs_up, stays = trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, 1, hangs_up)
            nursery.start_soon(write, 2, stays)
            await trio.testing.wait_all_tasks_blocked()
            hangs_up.cancel()

        assert len(outcomes) == 1
        assert await total(partition) == 2  # what was begun takes effect nevertheless


class Broken(DistantStore):
    """Its next put meets a bug."""

    broken = False

    def put_if_absent(self, key: str, value: bytes) -> bool:
        if self.broken:
            message = "a bug"
            raise ZeroDivisionError(message)
        return super().put_if_absent(key, value)


async def test_a_bug_ends_all_jobs_and_all_partitions_of_the_share() -> None:
    ended: list[str] = []
    partitions: list[Partition] = []

    async def use(partition: Partition, sequence: int) -> None:
        try:
            await partition.write([add(sequence)])
            ended.append("written")
        except (OutcomeUnknown, PartitionUnavailable) as error:
            ended.append(type(error).__name__)

    store = Broken()
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with a_bench(store) as bench:
            partitions += [await bench.online("a", n, group_writes_max=1) for n in range(2)]
            store.broken = True
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    for sequence in range(4):
                        nursery.start_soon(use, partitions[sequence % 2], sequence)

    assert sorted(ended) == ["OutcomeUnknown", *["PartitionUnavailable"] * 3]
    assert [partition.presence for partition in partitions] == [Presence.GONE] * 2


async def test_a_failed_look_of_the_store_names_no_owner() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        bench.store.inject(StoreFault.FAILS, verb="get", count=2)

        with pytest.raises(StoreUnavailable):
            await total(partition)

        assert isinstance(partition.trouble, StoreUnavailable)
        assert await total(partition) is not None
        assert partition.trouble is None


async def test_readers_of_a_store_that_fails_hear_at_once_while_a_group_is_on_its_way() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        desk = bench.node("a").writer.desk
        bench.store.inject(StoreFault.FAILS, count=1_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partition.write, [add(1)])
            await trio.sleep(1)

            for _ in range(50):
                with pytest.raises(StoreUnavailable):
                    await total(partition)
            assert desk.empty
            bench.store.heal()

        assert await total(partition) == 1


class SilentStore(DistantStore):
    """Its puts take as long as somebody wants, each in a thread."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()

    def put_if_absent(self, key: str, value: bytes) -> bool:
        self.answers.wait(10)
        return super().put_if_absent(key, value)


async def test_readers_that_have_gone_leave_nothing_though_the_store_is_silent() -> None:
    store = SilentStore()
    async with a_bench(store) as bench:
        partition = await bench.online("a")
        desk = bench.node("a").writer.desk
        store.answers.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partition.write, [add(1)])
            await trio.testing.wait_all_tasks_blocked()

            for _ in range(50):
                with trio.move_on_after(0):
                    await total(partition)
            assert desk.empty
            store.answers.set()

        assert await total(partition) == 1


async def test_at_its_deadline_a_write_is_waited_for_no_longer_and_may_take_effect_later() -> None:
    store = SilentStore()
    async with a_bench(store) as bench:
        partition = await bench.online("a")
        store.answers.clear()
        began_at = trio.current_time()

        with pytest.raises(OutcomeUnknown, match="the deadline passed"):
            await partition.write([add(1)], began_at + 2)
        assert 2 <= trio.current_time() - began_at < 2.1

        store.answers.set()
        assert await total(partition) == 1


async def test_a_request_that_is_done_leaves_nothing_that_only_a_collector_finds() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        gc.collect()
        gc.disable()
        try:
            for number in range(1, 21):
                await partition.write([add(number)], trio.current_time() + 2)
            found = [each for each in gc.get_objects() if isinstance(each, WriteJob)]
            jobs = [each for each in found if each.partition is partition]  # not of other tests
        finally:
            gc.enable()

        assert len(jobs) <= 1  # that of the last group


async def test_at_its_deadline_a_read_is_forgotten() -> None:
    store = SilentStore()
    async with a_bench(store) as bench:
        partition = await bench.online("a")
        store.answers.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partition.write, [add(1)])
            await trio.testing.wait_all_tasks_blocked()

            with pytest.raises(OutcomeUnknown, match="the deadline passed"):
                await partition.read(lambda state: state.packed(["k"]), trio.current_time() + 2)
            assert bench.node("a").writer.desk.empty
            store.answers.set()


class WithoutCheckpoints(MemoryStore):
    """As one that takes no large objects."""

    def put_if_absent(self, key: str, value: bytes) -> bool:
        if "/ck/" in key:
            raise StoreFull(key)
        return super().put_if_absent(key, value)


async def test_a_failure_beside_the_commits_does_not_trouble_them() -> None:
    async with a_bench(WithoutCheckpoints()) as bench:
        partition = await bench.online("a")
        writer = bench.node("a").writer

        assert not await put_checkpoint(partition)

        assert isinstance(writer.beside.trouble, StoreFull)
        assert writer.store.trouble is None
        assert partition.trouble is None


async def test_a_partition_that_was_released_is_emptied_though_its_number_is_held_again() -> None:
    async with a_bench() as bench:
        former = await bench.online("a")
        await former.write([add(1)])
        await release(former, "b")
        again = await bench.online("a")

        assert len(former.state) == 0
        assert await total(again) == 1


async def test_a_copy_that_could_not_be_made_can_be_made_later_though_its_number_is_held() -> None:
    async with a_bench() as bench:
        await (await bench.online("a")).write([add(1)])
        copy = bench.node("a").copy()
        bench.store.inject(StoreFault.FAILS, verb="list", count=100)
        with pytest.raises(StoreUnavailable):
            await copy.read()
        copy.forget()
        bench.store.heal()

        await copy.read()

        assert value_in(copy.state, "k") == 1


async def test_a_partition_whose_entries_cannot_be_read_is_given_up_and_released() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        node = bench.node("a")

        node.writer.give_up(partition)
        while 0 in node.writer.journal.held:
            await trio.sleep(0.01)

        assert node.told == [("lost", 0, "")]
        assert partition.presence is Presence.GONE
        recovery = bench.node("b").partition()
        assert await acquire(recovery, nobody)
        assert await total(recovery) == 1


class SealedAndGone(MemoryStore):
    """It fails from the first put into slot 2 on, which takes place."""

    gone = False

    def put_if_absent(self, key: str, value: bytes) -> bool:
        put = super().put_if_absent(key, value)
        self.gone = key.endswith(KEYS.journal("").slot(2)[-5:])
        return put

    def get(self, key: str) -> bytes | None:
        if self.gone:
            raise StoreUnavailable(key)
        return super().get(key)


async def test_a_seal_is_told_though_the_try_fails_after_it() -> None:
    async with a_bench(SealedAndGone()) as bench:
        await (await bench.online("a")).write([add(1)])
        name = bench.node("a").writer.journal.name

        with pytest.raises(StoreUnavailable):
            await acquire(bench.node("b").partition(), anybody)

        assert [(seal.journal, seal.slot) for seal in bench.node("b").seals] == [(name, 2)]
