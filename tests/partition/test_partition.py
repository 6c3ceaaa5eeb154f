"""`ringpop_py.partition.partition`: one log driven, with a store that fails in every way."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from ringpop_py.config.settings import StateConfig
from ringpop_py.errors import (
    ConditionFailed,
    OutcomeUnknown,
    PartitionUnavailable,
    StateDamaged,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.entries import MemoryEntries
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.partition.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.partition.logstore import LogStore
from ringpop_py.partition.partition import Partition, Presence
from ringpop_py.partition.tasks import Worker
from ringpop_py.slotlog.effects import Acquired, NotAcquired
from ringpop_py.slotlog.records import encode_record
from ringpop_py.slotlog.slots import Seal, Slot
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.stores.memory import MemoryStore, StoreFault
from ringpop_py.values.operations import Change, Outcome, Value, Write
from ringpop_py.values.packed import encode_value
from tests.keyed.reading import value_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from ringpop_py.slotlog.slots import Claim

pytestmark = pytest.mark.virtual_time

KEYS = KeyspaceKeys("test", "counts", 1).partition(0)


def encode(value: Value) -> bytes:
    return encode_value("msgpack", value)


class Bench:
    """Partitions of several nodes over one store."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.store = MemoryStore()
        self.lost: list[tuple[str, str]] = []
        self._nursery = nursery

    def partition(
        self, node: str, entries: MemoryEntries | None = None, /, **settings: int
    ) -> Partition:
        def lost(_: Partition, to: str) -> None:
            self.lost.append((node, to))

        state = KeyedState(encode, Aggregations(), entries=entries)
        return Partition(
            0,
            node_name=node,
            state=state,
            store=LogStore(self.store, KEYS, Worker(self.store, 1)),
            config=StateConfig(**settings),
            spawn=self._spawn,
            lost=lost,
        )

    def _spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        self._nursery.start_soon(function, *arguments)

    async def online(self, node: str, **settings: int) -> Partition:
        partition = self.partition(node, **settings)
        assert isinstance(await partition.acquire(anybody), Acquired)
        return partition

    def slots_count(self) -> int:
        return len(self.store.list(KEYS.slots))


@asynccontextmanager
async def a_bench() -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        yield Bench(nursery)
        nursery.cancel_scope.cancel()


def anybody(_: Claim) -> bool:
    return True


def nobody(_: Claim) -> bool:
    return False


def add(sequence: int, key: str = "k", source: str = "s") -> Write:
    return Write(source, sequence, (Change(key, "add", 1),))


async def total(partition: Partition, key: str = "k") -> object:
    return await partition.read(lambda state: value_in(state, key))


async def test_writes_that_wait_for_a_commit_go_together_with_the_next() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        before = bench.slots_count()

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(partition.write, [add(number)])

        assert await total(partition) == 100
        assert bench.slots_count() - before <= 2


async def test_a_group_is_bounded() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a", group_writes_max=10)
        before = bench.slots_count()

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(partition.write, [add(number)])

        assert bench.slots_count() - before >= 10
        assert await total(partition) == 100


async def test_more_writes_than_may_wait_are_refused_and_not_begun() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a", queue_writes_max=3)
        refused = []

        async def write(number: int) -> None:
            try:
                await partition.write([add(number)])
            except PartitionUnavailable:
                refused.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(write, number)

        assert refused
        assert await total(partition) == 10 - len(refused)


async def test_an_answer_of_the_store_that_got_lost_doubles_nothing() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        bench.store.inject(StoreFault.LOSES_REPLY, count=3)

        (outcome,) = await partition.write([add(1)])

        assert outcome == Outcome((1,))
        assert await total(partition) == 1


async def test_while_the_store_fails_new_writes_are_refused_and_the_old_one_goes_on() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        bench.store.inject(StoreFault.FAILS, count=6)
        outcomes: list[Any] = []

        async def write() -> None:
            outcomes.extend(await partition.write([add(1)]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(StoreUnavailable):
                await partition.write([add(2)])

        assert outcomes == [Outcome((1,))]
        assert await total(partition) == 1


async def test_a_full_store_refuses_a_write_that_then_did_not_take_effect() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        bench.store.inject(StoreFault.FULL)

        with pytest.raises(StoreFull):
            await partition.write([add(1)])

        assert await total(partition) is not None
        assert await partition.write([add(1)]) == [Outcome((1,))]


async def test_an_owner_that_was_replaced_finds_out_with_its_next_write() -> None:
    async with a_bench() as bench:
        old = await bench.online("a")
        await old.write([add(1)])
        new = await bench.online("b")

        with pytest.raises(PartitionUnavailable, match="taken over by b"):
            await old.write([add(2)])

        assert bench.lost == [("a", "b")]
        assert old.presence is Presence.LOST
        assert await total(new) == 1


async def test_an_owner_that_was_replaced_finds_out_with_its_next_read_unless_stale_will_do() -> (
    None
):
    async with a_bench() as bench:
        old = await bench.online("a")
        await old.write([add(1)])
        new = await bench.online("b")
        await new.write([add(2)])

        stale = await old.read(lambda state: value_in(state, "k"), stale=True)
        with pytest.raises(PartitionUnavailable):
            await total(old)

        assert stale == 1


async def test_an_owner_that_lives_is_not_replaced() -> None:
    async with a_bench() as bench:
        await bench.online("a")
        other = bench.partition("b")

        fact = await other.acquire(nobody)

        assert isinstance(fact, NotAcquired)
        assert fact.holder.owner == "a"
        assert other.presence is Presence.COMING


async def test_a_handoff_loses_and_doubles_nothing_of_what_is_written_meanwhile() -> None:
    async with a_bench() as bench:
        source, target = await bench.online("a"), bench.partition("b")
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
            await target.follow()
            for number in range(20, 40):
                nursery.start_soon(write, number)
            await source.release("b")
            for number in range(40, 60):
                nursery.start_soon(write, number)
        await target.acquire(nobody)

        assert await total(target) == len(acknowledged)
        assert len(acknowledged) + len(refused) == 60
        await target.write([add(number) for number in refused])
        assert await total(target) == 60


async def test_what_waits_when_a_partition_is_released_is_told() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a", group_writes_max=1)
        ended = []

        async def write(number: int) -> None:
            try:
                await partition.write([add(number)])
                ended.append("written")
            except PartitionUnavailable:
                ended.append("refused")

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(write, number)
            nursery.start_soon(partition.release, "b")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(write, 5)

        assert len(ended) == 6
        with pytest.raises(PartitionUnavailable):
            await partition.release("c")


async def test_a_refused_write_is_answered_by_what_is_true_now() -> None:
    """A condition is not decided upon by an owner that was replaced."""
    async with a_bench() as bench:
        old = await bench.online("a")
        await old.write([add(1)])
        new = await bench.online("b")
        await new.write([Write("t", 1, (Change("k", "delete"),))])
        put = Write("t", 2, (Change("k", "put_if_absent", 7),))

        with pytest.raises(PartitionUnavailable):
            await old.write([put])

        assert await new.write([put]) == [Outcome((7,))]
        (outcome,) = await new.write([Write("t", 3, put.changes)])
        assert isinstance(outcome, ConditionFailed)


async def test_a_damaged_record_keeps_a_partition_from_coming_and_is_told_of() -> None:
    async with a_bench() as bench:
        first = await bench.online("a")
        await first.write([add(1)])
        key = bench.store.list(KEYS.slots)[-1]
        whole = bench.store.get(key)
        assert whole is not None
        bench.store.delete([key])
        bench.store.put_if_absent(key, whole[:-3])
        second = bench.partition("b")

        with pytest.raises(StateDamaged, match=key):
            await second.acquire(anybody)
        second.leave()
        trouble = second.trouble
        bench.store.delete([key])
        bench.store.put_if_absent(key, whole)
        await second.acquire(anybody)

        assert key in str(trouble)
        assert second.trouble is None
        assert await total(second) == 1


async def test_an_owner_that_meets_a_damaged_record_answers_no_read() -> None:
    async with a_bench() as bench:
        owner = await bench.online("a")
        key = KEYS.slot(owner.log.next_slot)
        bench.store.put_if_absent(key, b"a seal, perhaps")

        with pytest.raises(StoreUnavailable, match=key):
            await total(owner)


async def test_a_checkpoint_under_the_key_of_another_partition_is_noticed() -> None:
    async with a_bench() as bench:
        state = KeyedState(encode, Aggregations())
        of_another = Checkpoint("counts", 1, 1, Slot(1, 0), (), state.whole())
        key = KEYS.checkpoint(Slot(1, 0))
        bench.store.put_if_absent(key, encode_checkpoint(of_another))

        with pytest.raises(StateDamaged, match=key):
            await bench.online("a")


@pytest.mark.parametrize("verb", ["get", "list", "put_if_absent"])
async def test_a_store_that_fails_for_a_while_only_delays_who_acquires(verb: str) -> None:
    async with a_bench() as bench:
        first = await bench.online("a")
        await first.write([add(1)])
        bench.store.inject(StoreFault.FAILS, verb=verb, count=5)

        second = await bench.online("b")

        assert await total(second) == 1


async def test_who_was_fenced_and_cannot_know_of_a_write_says_that_it_may_have_taken_effect() -> (
    None
):
    """A seal where others have deleted what was there, as the checkpoint beyond it shows."""
    async with a_bench() as bench:
        partition = await bench.online("a")
        slot = partition.log.next_slot
        key = KEYS.slot(slot)
        bench.store.put_if_absent(key, encode_record(Seal("b", "other"), key))
        bench.store.put_if_absent(KEYS.checkpoint(slot), b"of a later owner")

        with pytest.raises(OutcomeUnknown):
            await partition.write([add(1)])

        assert bench.lost == [("a", "b")]


class FullEntries(MemoryEntries):
    """On a disk that is full."""

    def write(self, _changed: Mapping[str, bytes], _deleted: Sequence[str]) -> None:
        message = "no space left"
        raise PartitionUnavailable(message)


async def test_who_cannot_take_in_what_the_log_has_fails_to_acquire_and_can_try_again() -> None:
    async with a_bench() as bench:
        first = await bench.online("a")
        for number in range(5):
            await first.write([add(number)])
        second = bench.partition("b", FullEntries())

        for _ in range(2):
            with pytest.raises(PartitionUnavailable, match="no space"):
                await second.acquire(anybody)
            second.leave()

        assert await total(first) == 5


async def test_who_acquires_gives_up_when_the_store_is_in_trouble_for_long() -> None:
    async with a_bench() as bench:
        bench.store.inject(StoreFault.FAILS, verb="list", count=1_000)
        partition = bench.partition("a")

        with trio.fail_after(10), pytest.raises(StoreUnavailable):
            await partition.acquire(anybody)
        partition.leave()
        bench.store.heal()
        await partition.acquire(anybody)

        assert partition.presence is Presence.ONLINE
        assert await partition.write([add(1)]) == [Outcome((1,))]
