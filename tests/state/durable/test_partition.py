"""`ringpop_py.state.durable.partition`: partitions that come and serve, with a store that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from ringpop_py.base.errors import (
    KeyspaceError,
    PartitionUnavailable,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.base.values.checksum import wrap
from ringpop_py.base.values.operations import Outcome
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.catalog.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.state.journal.records import Slot
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.placement.duties import ReleaseSaid
from ringpop_py.state.stores.memory import StoreFault
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.entries import MemoryEntries
from ringpop_py.state.table.keyed import KeyedState
from tests.state.durable.benches import (
    KEYS,
    DistantStore,
    a_bench,
    acquire,
    add,
    anybody,
    encode,
    follow,
    nobody,
    release,
    total,
    until,
)
from tests.state.table.reading import value_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


pytestmark = pytest.mark.virtual_time


# A store that fails.


async def test_a_new_owner_gives_up_if_the_store_is_in_trouble_for_long() -> None:
    async with a_bench() as bench:
        bench.store.inject(StoreFault.FAILS, verb="list", count=1_000)
        partition = bench.node("a").partition()

        with trio.fail_after(10), pytest.raises(StoreUnavailable):
            await acquire(partition, anybody)
        bench.store.heal()
        partition = bench.node("a").partition()
        await acquire(partition, anybody)

        assert partition.presence is Presence.OWNED
        assert await partition.write([add(1)]) == [Outcome((1,))]


# Reads.


async def test_of_a_store_that_takes_no_time_a_read_is_one_look_without_a_task() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        before = bench.store.calls["get"]

        assert await total(partition) == 1

        assert bench.store.calls["get"] - before == 1
        assert not bench.node("a").writer.working


# Releases.


async def test_a_handoff_loses_and_doubles_nothing_of_what_is_written_meanwhile() -> None:
    async with a_bench() as bench:
        source, target = await bench.online("a"), bench.node("b").partition()
        acknowledged: list[int] = []
        refused: list[int] = []

        async def write(number: int) -> None:
            try:
                await source.write([add(number)])
                acknowledged.append(number)
            except PartitionUnavailable:
                refused.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(write, number)
            await follow(target)
            for number in range(20, 40):
                nursery.start_soon(write, number)
            await release(source, "b")
            for number in range(40, 60):
                nursery.start_soon(write, number)
        await acquire(target, nobody)

        assert await total(target) == len(acknowledged)
        assert len(acknowledged) + len(refused) == 60
        await target.write([add(number) for number in refused])
        assert await total(target) == 60


async def test_writes_queued_before_a_release_are_done_and_later_ones_are_refused() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a", group_writes_max=1)
        ended: dict[int, str] = {}

        async def write(number: int) -> None:
            try:
                await partition.write([add(number)])
                ended[number] = "written"
            except PartitionUnavailable:
                ended[number] = "refused"

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(write, number)
            await trio.lowlevel.checkpoint()  # they are queued before it
            nursery.start_soon(release, partition, "b")
            await trio.lowlevel.checkpoint()
            nursery.start_soon(write, 5)

        assert ended == {**dict.fromkeys(range(5), "written"), 5: "refused"}
        with pytest.raises(PartitionUnavailable, match="is gone here"):
            await partition.write([add(6)])
        assert await release(partition, "c") is ReleaseSaid.NOT_MINE
        target = bench.node("b").partition()
        assert await acquire(target, nobody)
        assert await total(target) == 5


# Damage.


async def test_a_group_whose_body_is_no_state_is_damage() -> None:
    async with a_bench() as bench:
        await bench.online("a")
        key = bench.slot_key("a", 1)
        row = [[0, 1, "no body"]]
        record = wrap(encode_value("msgpack", ["group", row]), key)
        bench.store.put_if_absent(key, record)

        with pytest.raises(StateDamaged, match=key):
            await acquire(bench.node("b").partition(), anybody)


async def test_an_owner_that_meets_a_damaged_record_answers_no_read() -> None:
    async with a_bench() as bench:
        owner = await bench.online("a")
        key = bench.slot_key("a", 1)
        bench.store.put_if_absent(key, b"a seal, perhaps")

        with pytest.raises(StoreUnavailable):
            await total(owner)

        assert key in str(owner.trouble)


async def test_a_checkpoint_under_the_key_of_another_partition_is_noticed() -> None:
    async with a_bench() as bench:
        await bench.online("a")
        state = KeyedState(encode, Aggregations())
        of_another = Checkpoint("counts", 1, 1, Slot(1, 0), (), state.whole())
        key = KEYS.partition(0).checkpoint(Slot(1, 0))
        bench.store.put_if_absent(key, encode_checkpoint(of_another))

        with pytest.raises(StateDamaged, match=key):
            await bench.online("b")


# A state that fails.


class Disk:
    """What entries are written to."""

    def __init__(self, *, full: bool) -> None:
        self.full = full


class EntriesOn(MemoryEntries):
    """On a disk that may be full."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        if self._disk.full:
            message = "no space left"
            raise PartitionUnavailable(message)
        super().write(changed, deleted)


async def test_a_new_owner_without_space_for_the_entries_fails_and_can_try_again() -> None:
    async with a_bench() as bench:
        first = await bench.online("a")
        for number in range(5):
            await first.write([add(number)])
        disk = Disk(full=True)
        for _ in range(2):
            second = bench.node("b").partition(0, EntriesOn(disk))
            with pytest.raises(PartitionUnavailable, match="no space"):
                await acquire(second, anybody)
            assert second.presence is Presence.PENDING
        assert await total(first) == 5
        disk.full = False
        second = bench.node("b").partition(0, EntriesOn(disk))
        await acquire(second, anybody)

        assert await total(second) == 5


# Callers without a task of their own.


async def result_of(begin: Callable[..., object], asked: object, **options: bool) -> object:
    """The result that *begin* returns, or that comes later."""
    results: list[object] = []
    now = begin(asked, results.append, **options)
    if now is not None:
        return now
    await until(lambda: bool(results))
    (result,) = results
    return result


async def test_a_caller_without_a_task_gets_the_same_results_as_one_with_a_task() -> None:
    async with a_bench(DistantStore()) as bench:
        partition = await bench.online("a")

        assert await result_of(partition.begin_write, [add(1), add(2)]) == [
            Outcome((1,)),
            Outcome((2,)),
        ]
        assert await result_of(partition.begin_read, len, stale=False) == 1
        assert partition.begin_read(len, fail, stale=True) == 1
        await release(partition, "b")
        for refused in (
            partition.begin_write([add(3)], fail),
            partition.begin_read(len, fail, stale=False),
        ):
            assert isinstance(refused, PartitionUnavailable)


def fail(_: object) -> None:
    pytest.fail("the result was there")


async def test_a_request_that_no_task_will_do_is_refused_and_not_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_bench() as bench:
        partition, writer = await bench.online("a"), bench.node("a").writer
        await until(lambda: not writer.working)

        def ended(*_: object) -> None:
            raise PartitionUnavailable("the share has ended")

        with monkeypatch.context() as patch:
            patch.setattr(writer, "_spawn", ended)
            patch.setattr(writer.store, "quick", False)
            for refused in (
                partition.begin_write([add(1)], fail),
                partition.begin_read(len, fail, stale=False),
            ):
                assert isinstance(refused, PartitionUnavailable)
            for ask in (partition.write([add(1)]), partition.read(len)):
                with pytest.raises(PartitionUnavailable):
                    await ask

        assert writer.desk.empty
        assert await partition.read(len) == 0


async def test_a_reader_that_fails_harms_no_other() -> None:
    async with a_bench(DistantStore()) as bench:
        partition = await bench.online("a")
        results: list[object] = []
        for look in (len, lambda _: 1 / 0, len):
            assert partition.begin_read(look, results.append, stale=False) is None

        await until(lambda: len(results) == 3)

        assert (results[0], type(results[1]), results[2]) == (0, ZeroDivisionError, 0)


async def test_nothing_is_read_from_a_state_that_has_failed() -> None:
    async with a_bench(DistantStore()) as bench:
        disk = Disk(full=False)
        partition = await bench.node("a").online(0, EntriesOn(disk))
        disk.full = True
        results: list[object] = []

        partition.begin_write([add(1)], results.append)
        partition.begin_read(len, results.append, stale=False)  # it rides with the commit
        await until(lambda: len(results) == 2)

        assert results[0] == [Outcome((1,))]
        assert isinstance(results[1], PartitionUnavailable)


# Copies.


async def test_a_copy_has_what_was_acknowledged_and_puts_nothing() -> None:
    async with a_bench() as bench:
        owner = await bench.online("a")
        await owner.write([add(1)])
        bench.store.calls.clear()
        copy = bench.node("b").copy()

        await copy.read()
        await owner.write([add(2)])
        first = value_in(copy.state, "k")
        await copy.read()

        assert first == 1
        assert value_in(copy.state, "k") == 2
        assert bench.store.calls["put_if_absent"] == 1  # the second write


async def test_requests_that_wait_for_a_partition_whose_state_has_failed_are_refused() -> None:
    async with a_bench(DistantStore()) as bench:
        disk = Disk(full=False)
        partition = await bench.node("a", group_writes_max=1).online(0, EntriesOn(disk))
        disk.full = True
        ended: list[str] = []

        async def use(what: str) -> None:
            try:
                if what == "write":
                    await partition.write([add(len(ended))])
                else:
                    await total(partition)
                ended.append(what)
            except KeyspaceError as error:
                ended.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            for what in ("write", "write", "read"):
                nursery.start_soon(use, what)

        # One of the writes was in the first group, and nothing is answered from the old state.
        assert sorted(ended) == ["PartitionUnavailable", "PartitionUnavailable", "write"]
