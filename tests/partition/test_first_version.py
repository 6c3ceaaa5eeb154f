"""`ringpop_py.partition.first_version`: partitions that had a log each are taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.errors import PartitionUnavailable, StateDamaged, StoreUnavailable
from ringpop_py.journal import codec
from ringpop_py.journal.effects import Acquired, NotAcquired
from ringpop_py.journal.records import Claim
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.partition.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.partition.fence import FENCE, fence, take_whole
from ringpop_py.partition.first_version import Upgrader
from ringpop_py.partition.logstore import LogStore
from ringpop_py.partition.tasks import Worker
from ringpop_py.slotlog import effects as log_is
from ringpop_py.slotlog.records import decode_record
from ringpop_py.slotlog.slotlog import SlotLog
from ringpop_py.slotlog.slots import Seal, Slot
from ringpop_py.stores.layout import slot_in
from ringpop_py.stores.memory import MemoryStore, StoreFault
from tests.keyed.reading import value_in
from tests.partition.benches import (
    KEYS,
    StoreWithARival,
    a_bench,
    add,
    anybody,
    encode,
    nobody,
    put_checkpoint,
    total,
)

if TYPE_CHECKING:
    from ringpop_py.values.operations import Write

pytestmark = pytest.mark.virtual_time

PARTS = KEYS.partition(0)


class FirstNode:
    """A node of the first version, with one partition."""

    def __init__(self, name: str, store: MemoryStore) -> None:
        self.logs = LogStore(PARTS, Worker(store, 1))
        self.state = KeyedState(encode, Aggregations())
        self.log = SlotLog(name, self.state, self.logs.make_nonce)

    def run(self, effects: list[log_is.Effect]) -> list[log_is.Effect]:
        """Carry out *effects* and what follows from them; the facts."""
        facts: list[log_is.Effect] = []
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, log_is.Request):
                effects += self.log.answered(effect.id, self.logs.perform_now(effect))
            elif isinstance(effect, log_is.Damaged):
                raise self.logs.error_of(effect)
            else:
                facts.append(effect)
        return facts

    def acquire(self, *, take: bool = False) -> log_is.Effect:
        (fact, *_) = self.run(self.log.acquire(lambda *_: take))
        return fact

    def write(self, write: Write) -> log_is.Effect:
        body, _ = self.state.stage([write])
        (fact,) = self.run(self.log.commit(body))
        return fact

    def release(self, to: str = "") -> None:
        (fact,) = self.run(self.log.release(to))
        assert isinstance(fact, log_is.Released)

    def checkpoint(self) -> None:
        slot = self.log.position
        file = encode_checkpoint(Checkpoint("counts", 1, 0, slot, (), self.state.whole()))
        self.logs.hold_checkpoint(slot, file)
        (fact, *_) = self.run(self.log.checkpoint(slot))
        assert isinstance(fact, log_is.Checkpointed)


def a_log(store: MemoryStore, *, checkpoint: bool = True) -> FirstNode:
    """A node of the first version that serves the partition, whose total is 4."""
    former = FirstNode("former", store)
    former.acquire()
    former.write(add(0))
    node = FirstNode("old", store)
    assert node.acquire(take=True) == log_is.Acquired(2)
    node.write(add(1))
    if checkpoint:
        node.checkpoint()
    node.write(add(2))
    assert isinstance(node.write(add(3)), log_is.Committed)
    return node


def claims_in(store: MemoryStore) -> list[str]:
    return [key for key in store.list(PARTS.slots) if key.endswith("/0000000000")]


# Taking over.


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("released", [False, True])
async def test_a_partition_of_the_first_version_is_taken_over_with_all_that_it_has(
    *, checkpoint: bool, released: bool
) -> None:
    async with a_bench() as bench:
        old = a_log(bench.store, checkpoint=checkpoint)
        end = old.log.next_slot
        if released:
            old.release("a")
        partition = bench.node("a").partition()

        fact = await partition.acquire(nobody if released else anybody)

        assert fact == Acquired(0, 3)
        assert await total(partition) == 4
        key = PARTS.claim(3)
        claim = codec.decode_claim(bench.store.get(key) or b"", key)
        assert claim == Claim("a", bench.node("a").writer.journal.name, 1, end)
        # What it replaces is gone. The claims and the seals stay, for late puts.
        assert [slot_in(each) for each in bench.store.list(PARTS.checkpoints)] == [end]
        left = [slot_in(each) for each in bench.store.list(PARTS.slots)]
        assert left == [Slot(1, 0), Slot(1, 2), Slot(2, 0), end, None, Slot(3, 0)]
        assert PARTS.mark(end) in bench.store.list(PARTS.slots)


async def test_what_was_taken_over_goes_on_with_writes_checkpoints_and_moves() -> None:
    async with a_bench() as bench:
        a_log(bench.store)
        first = await bench.online("a")
        await first.write([add(4)])
        second = await bench.online("b")
        await second.write([add(5)])
        assert await put_checkpoint(second)
        third = await bench.online("c")

        assert await total(third) == 6
        assert third.epoch == 5


async def test_ids_that_took_effect_in_the_first_version_do_not_do_so_again() -> None:
    async with a_bench() as bench:
        a_log(bench.store)
        partition = await bench.online("a")

        (outcome,) = await partition.write([add(3)])

        assert getattr(outcome, "repeated", False)
        assert await total(partition) == 4


async def test_an_owner_of_the_first_version_that_lives_is_not_replaced() -> None:
    async with a_bench() as bench:
        old = a_log(bench.store)
        before = bench.store.list("")
        partition = bench.node("a").partition()

        fact = await partition.acquire(nobody)

        assert isinstance(fact, NotAcquired)
        assert (fact.holder.owner, fact.epoch) == ("old", 2)
        assert bench.store.list("") == before
        assert isinstance(old.write(add(4)), log_is.Committed)


async def test_who_waited_for_such_an_owner_takes_over_once_it_has_released() -> None:
    async with a_bench() as bench:
        old = a_log(bench.store)
        partition = bench.node("a").partition()
        await partition.follow()
        await partition.acquire(nobody)
        old.write(add(4))
        old.release("a")

        await partition.acquire(nobody)

        assert await total(partition) == 5


async def test_a_copy_of_such_a_partition_is_refused_with_what_to_wait_for() -> None:
    async with a_bench() as bench:
        a_log(bench.store)

        with pytest.raises(PartitionUnavailable, match="form of the first version until it is"):
            await bench.node("a").partition().copy()


@pytest.mark.parametrize("fault", [StoreFault.FAILS, StoreFault.LOSES_REPLY])
@pytest.mark.parametrize("step", ["seal", "checkpoint", "mark"])
async def test_a_store_that_fails_meanwhile_ends_the_try_and_the_next_one_finishes_it(
    step: str, fault: StoreFault
) -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        end = a_log(store).log.next_slot
        partition = bench.node("a").partition()
        keys = {
            "seal": PARTS.slot(end),
            "checkpoint": PARTS.checkpoint(end),
            "mark": PARTS.mark(end),
        }

        store.before[keys[step]] = lambda: store.inject(fault)
        with pytest.raises(StoreUnavailable):
            await partition.acquire(anybody)
        partition.leave()
        claims = claims_in(store)
        await partition.acquire(anybody)

        assert len(claims) == 2
        assert await total(partition) == 4
        assert partition.epoch == 3


async def test_a_log_that_is_damaged_is_told_of_and_helps_when_it_is_repaired() -> None:
    async with a_bench() as bench:
        a_log(bench.store)
        key = PARTS.slot(Slot(2, 2))
        whole = bench.store.get(key) or b""
        bench.store.delete([key])
        bench.store.put_if_absent(key, whole[:-3])
        partition = bench.node("a").partition()

        with pytest.raises(StateDamaged, match=key):
            await partition.acquire(anybody)
        partition.leave()
        claims = claims_in(bench.store)
        bench.store.delete([key])
        bench.store.put_if_absent(key, whole)
        await partition.acquire(anybody)

        assert len(claims) == 2
        assert await total(partition) == 4


# At the same time.


@pytest.mark.parametrize("tries", range(4))  # tasks run in any order
async def test_of_two_nodes_that_take_over_at_the_same_time_one_owns_it(tries: int) -> None:
    async with a_bench() as bench:
        a_log(bench.store).release("")
        partitions = [bench.node(name).partition() for name in "ab"]
        facts: list[object] = []

        async def acquire(number: int) -> None:
            facts.append(await partitions[number].acquire(nobody))

        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(acquire, number)

        assert sorted(type(fact).__name__ for fact in facts) == ["Acquired", "NotAcquired"]
        assert len(claims_in(bench.store)) == 3
        (owner,) = [partition for partition in partitions if partition.epoch]
        await owner.write([add(10 + tries)])
        assert await total(owner) == 5


@pytest.mark.parametrize("may_take", [anybody, nobody])
async def test_who_was_slower_with_the_claim_finds_what_the_other_one_has_written(
    may_take: object,
) -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        a_log(store).release("")
        other = KeyedState(encode, Aggregations())
        key = PARTS.claim(3)

        def faster() -> None:
            end = Upgrader("b", KEYS, Worker(store, 1)).read_now(0, other, anybody)
            assert isinstance(end, Slot)
            store.put_if_absent(key, codec.encode_claim(Claim("b", "b-journal", 1, end), key))

        store.before[key] = faster
        partition = bench.node("a").partition()
        fact = await partition.acquire(anybody if may_take is anybody else nobody)

        assert value_in(other, "k") == 4
        assert codec.decode_claim(store.get(key) or b"", key).owner == "b"
        if may_take is anybody:
            assert fact == Acquired(0, 4)
            assert await total(partition) == 4
        else:
            assert isinstance(fact, NotAcquired)
            assert fact.holder.owner == "b"


async def test_what_its_owner_commits_while_it_is_taken_over_is_not_lost() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        old = a_log(store)
        committed: list[object] = []
        seal = PARTS.slot(old.log.next_slot)

        store.before[seal] = lambda: committed.append(old.write(add(4)))
        partition = await bench.online("a")

        assert [type(fact) for fact in committed] == [log_is.Committed]
        assert await total(partition) == 5


async def test_what_its_owner_commits_after_the_seal_is_not_acknowledged() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        old = a_log(store)
        ended: list[object] = []

        store.before[PARTS.claim(3)] = lambda: ended.append(old.write(add(4)))
        partition = await bench.online("a")

        # It did not take effect. But there is a checkpoint at the slot: the owner cannot know.
        assert ended == [log_is.Fenced("a", commit_open=True)]
        assert await total(partition) == 4


@pytest.mark.parametrize("times", [1, 2])
async def test_a_node_of_the_first_version_that_is_faster_is_taken_over_as_well(
    times: int,
) -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        a_log(store)

        def claim(left: int, epoch: int) -> None:
            node = FirstNode(f"old {left}", store)
            assert node.acquire(take=True) == log_is.Acquired(epoch)
            assert isinstance(node.write(add(epoch, source="late")), log_is.Committed)
            if left > 1:
                store.before[PARTS.claim(epoch + 1)] = lambda: claim(left - 1, epoch + 1)

        store.before[PARTS.claim(3)] = lambda: claim(times, 3)
        partition = await bench.online("a")

        assert partition.epoch == 3 + times
        assert await total(partition) == 4 + times


# The first version, afterwards.


async def test_a_node_of_the_first_version_is_refused_and_told_to_be_upgraded() -> None:
    async with a_bench() as bench:
        old = a_log(bench.store)
        partition = await bench.online("a")
        await partition.write([add(4)])
        late = FirstNode("late", bench.store)
        before = bench.store.list("")

        with pytest.raises(StateDamaged, match=f"{PARTS.claim(3)}.*newer.*upgrade this node"):
            late.acquire(take=True)

        assert bench.store.list("") == before
        assert isinstance(old.write(add(5)), log_is.Fenced)
        assert await total(partition) == 5


async def test_a_checkpoint_of_the_former_owner_that_comes_late_does_no_harm() -> None:
    store = StoreWithARival()
    async with a_bench(store) as bench:
        old = a_log(store)
        slot = old.log.position
        file = encode_checkpoint(Checkpoint("counts", 1, 0, slot, (), old.state.whole()))
        old.logs.hold_checkpoint(slot, file)
        request, *_ = old.log.checkpoint(slot)
        first = await bench.online("a")
        await first.write([add(4)])

        old.run([request])
        second = await bench.online("b")

        assert await total(second) == 5


# Ending it.


async def test_the_fence_ends_a_partition_of_the_first_version_for_its_owner() -> None:
    store = MemoryStore()
    old = a_log(store)

    fence(store, KEYS, 0)
    fence(store, KEYS, 0)

    key = claims_in(store)[-1]
    assert getattr(decode_record(store.get(key) or b"", key), "owner", "") == FENCE
    assert isinstance(old.write(add(4)), log_is.Fenced)


async def test_what_is_taken_whole_of_the_first_version_has_everything() -> None:
    store = StoreWithARival()
    a_log(store)
    late = FirstNode("late", store)

    def claim() -> None:
        late.acquire(take=True)
        late.write(add(1, source="late"))

    store.before[PARTS.claim(3)] = claim
    state = KeyedState(encode, Aggregations())
    take_whole(store, KEYS, 0, state)

    assert value_in(state, "k") == 5
    key = PARTS.claim(4)
    assert codec.decode_claim(store.get(key) or b"", key).owner == FENCE


@pytest.mark.parametrize(
    ("place", "instead"),
    [*((place, b"\xc1\x02 damaged") for place in range(6)), (4, None)],
)
def test_a_log_with_a_damaged_or_lost_record_is_ended_though_it_cannot_be_read(
    place: int, instead: bytes | None
) -> None:
    store = MemoryStore()
    old = a_log(store, checkpoint=False)
    key = store.list(PARTS.slots)[place]
    store.delete([key])
    if instead is not None:
        store.put_if_absent(key, instead)

    with pytest.raises(StateDamaged, match=key):
        take_whole(store, KEYS, 0, KeyedState(encode, Aggregations()))
    fence(store, KEYS, 0)

    assert isinstance(old.write(add(9)), log_is.Fenced)
    seals = [slot_in(each) for each in store.list(PARTS.slots)]
    last = max(slot for slot in seals if slot is not None and slot.epoch == 2)
    found = decode_record(store.get(PARTS.slot(last)) or b"", PARTS.slot(last))
    assert isinstance(found, Seal)
