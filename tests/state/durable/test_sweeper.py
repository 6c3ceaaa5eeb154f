"""`ringpop_py.state.durable.sweeper`: journals of nodes that have ended do not stay for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.state.catalog.high_water import ReachedBook
from ringpop_py.state.catalog.journalstore import JournalStore
from ringpop_py.state.durable import sweeper as module
from ringpop_py.state.durable.sweeper import Sweeper
from ringpop_py.state.journal import codec
from ringpop_py.state.journal.records import Seal
from ringpop_py.state.stores.memory import StoreFault
from ringpop_py.state.tasks import Worker
from tests.logged import events_in
from tests.state.durable.benches import (
    KEYS,
    Bench,
    a_bench,
    acquire,
    add,
    nobody,
    put_checkpoint,
    release,
    total,
)

if TYPE_CHECKING:
    from ringpop_py.state.stores.store import Store

pytestmark = pytest.mark.virtual_time


def sweeper_of(bench: Bench, node: str) -> Sweeper:
    worker = Worker(bench.store, 1)
    logs = JournalStore(KEYS, worker)
    reached = ReachedBook(bench.store, KEYS)
    return Sweeper(KEYS, worker, bench.node(node).writer, logs, reached)


def slots_in(store: Store, name: str) -> list[int]:
    slots, _ = KEYS.journal(name).numbers(store.list(KEYS.journal(name).root))
    return slots


async def test_the_journal_of_its_own_writer_is_left_to_that() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        assert await put_checkpoint(partition)

        await sweeper_of(bench, "a").sweep()
        mine = len(bench.slots_of("a"))
        await sweeper_of(bench, "b").sweep()

        assert mine == 1
        assert bench.slots_of("a") == []  # another node may do it at any time
        assert await total(partition) == 1
        await release(partition, "b")
        target = bench.node("b").partition()
        await acquire(target, nobody)
        assert await total(target) == 1


async def test_a_former_journal_of_its_own_node_is_swept_after_a_fence() -> None:
    async with a_bench() as bench:
        partition = await bench.online("a")
        await partition.write([add(1)])
        former = bench.node("a").writer.journal.name
        key = bench.slot_key("a", 2)
        bench.store.put_if_absent(key, codec.encode_record(Seal("z"), key))
        await partition.write([add(2)])
        assert await put_checkpoint(partition)

        await sweeper_of(bench, "a").sweep()

        assert slots_in(bench.store, former) == [2]  # the seal
        assert await total(partition) == 2


async def test_a_store_that_fails_ends_a_sweep_and_the_next_one_goes_on() -> None:
    async with a_bench() as bench:
        former = await bench.online("a")
        await former.write([add(1)])
        name = bench.node("a").writer.journal.name
        assert await put_checkpoint(await bench.online("b"))
        sweeper = sweeper_of(bench, "b")

        bench.store.inject(StoreFault.FAILS, verb="list")
        with pytest.raises(StoreUnavailable):
            await sweeper.sweep()
        bench.store.inject(StoreFault.FAILS, verb="put_if_absent")
        await sweeper.sweep()
        left = slots_in(bench.store, name)
        await sweeper.sweep()

        assert left == [1, 2]
        assert slots_in(bench.store, name) == [2]


async def test_a_journal_trimmed_up_to_its_seal_is_not_looked_at_again() -> None:
    async with a_bench() as bench:
        for number in range(10):
            partition = await bench.online(f"n{number}")
            await partition.write([add(number)])
            assert await put_checkpoint(partition)
        sweeper = sweeper_of(bench, "n9")
        calls = bench.store.calls
        await sweeper.sweep()
        await sweeper.sweep()

        before = calls["list"], calls["get"]
        await sweeper.sweep()

        assert (calls["list"], calls["get"]) == (before[0] + 1, before[1])


async def test_a_node_sweeps_only_in_its_turn_and_logs_trouble_without_ending(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 1.0)
    async with a_bench() as bench:
        await bench.online("a")
        sweeper = sweeper_of(bench, "b")
        ours = False

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sweeper.run, lambda: ours)
            before = bench.store.calls["list"]
            await trio.sleep(5)
            idle = bench.store.calls["list"] - before
            ours = True
            bench.store.inject(StoreFault.FAILS, verb="list")
            await trio.sleep(5)
            nursery.cancel_scope.cancel()

        assert idle == 0
        assert bench.store.calls["list"] - before >= 3
        assert len(events_in(caplog, "journals-not-swept")) == 1
