"""Processes whose schedulers are driven by hand: what they do, and what they use of trio."""

from __future__ import annotations

import inspect
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
import trio
from outcome import Error, Value
from trio._core import _run as scheduler
from trio._core._entry_queue import EntryQueue

from ringpop_sim.units import ms, s
from ringpop_sim.whole.stage.scheduling import Processes, TaskSlot, TrioProcess
from ringpop_sim.whole.stage.surroundings import installed
from ringpop_sim.whole.stage.threads import Threads
from ringpop_sim.world.trace import Trace
from ringpop_sim.world.world import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


class Stage:
    """Virtual time with processes, whose code sees it."""

    def __init__(self, seed: int) -> None:
        self.time = VirtualTime()
        self.trace = Trace(keep=False)
        self.processes = Processes(self.time, self.trace, seed)
        self.threads = Threads(self.processes)

    def start(self, main: Callable[[], Awaitable[object]], name: str = "p") -> TrioProcess:
        return TrioProcess(self.processes, name, lambda _: main())

    def run(self, for_us: int) -> None:
        self.time.run(self.time.now + for_us)


@pytest.fixture
def stage() -> Iterator[Stage]:
    yield from a_stage(1)


def a_stage(seed: int) -> Iterator[Stage]:
    stage = Stage(seed)
    with installed(stage.processes, stage.threads):
        yield stage
        stage.processes.close(lambda: None)


def test_trio_still_has_the_private_names_that_are_used() -> None:
    """A canary: another trio may do all of it otherwise, and nothing would say so."""
    assert trio.__version__.startswith("0.35.")
    source = inspect.getsource(scheduler.unrolled_run)
    assert "batch = list(runner.runq)\n" in source
    assert "runner.runq.clear()\n" in source
    assert "events = yield timeout\n" in source
    assert "timeout = runner.clock.deadline_to_sleep_time(deadline)\n" in source
    assert "CancelStatus(scope=self, parent=task._cancel_status)" in inspect.getsource(
        scheduler.CancelScope._might_change_registered_deadline
    ) + inspect.getsource(scheduler.CancelScope.__enter__)
    fields = {field.name for field in scheduler.Runner.__attrs_attrs__}
    assert {"runq", "deadlines", "entry_queue", "io_manager", "is_guest", "asyncgens"} <= fields
    assert "id(cancel_scope)" in inspect.getsource(scheduler.Deadlines.add)
    assert "wakeup_thread_and_signal_safe" in inspect.getsource(EntryQueue.run_sync_soon)


def test_a_program_runs_in_virtual_time_and_its_outcome_is_kept(stage: Stage) -> None:
    async def main() -> float:
        began = trio.current_time()
        await trio.sleep(3600)
        return trio.current_time() - began

    process = stage.start(main)
    stage.run(3599 * s)
    assert process.alive
    stage.run(2 * s)

    assert not process.alive
    assert isinstance(process.outcome, Value)
    assert process.outcome.value == pytest.approx(3600, abs=0.001)


def test_an_exception_is_the_outcome_of_a_process(stage: Stage) -> None:
    async def main() -> None:
        raise ValueError("a bug")

    process = stage.start(main)
    stage.run(s)

    assert isinstance(process.outcome, Error)
    assert str(process.outcome.error) == "a bug"


def test_a_paused_process_does_nothing_and_goes_on_later(stage: Stage) -> None:
    seen: list[int] = []

    async def main() -> None:
        while True:
            await trio.sleep(0.1)
            seen.append(stage.time.now)

    process = stage.start(main)
    stage.run(s)
    before = len(seen)
    assert before >= 9
    process.pause()
    stage.run(10 * s)
    assert len(seen) == before
    process.resume()
    stage.run(s)

    assert before + 8 <= len(seen) <= before + 12  # what was missed is not made up for


def test_no_code_of_a_killed_process_runs_not_even_to_clean_up(stage: Stage) -> None:
    ran: list[str] = []

    async def main() -> None:
        try:
            await trio.sleep(100)
        finally:
            ran.append("cleaned up")

    ended: list[int] = []
    process = stage.start(main)
    process.on_end[lambda: ended.append(stage.time.now)] = None
    stage.run(s)
    process.kill()
    stage.run(200 * s)

    assert ran == []
    assert ended == [s]
    assert process.outcome is None


def test_a_revived_process_goes_on_where_it_was(stage: Stage) -> None:
    ran: list[int] = []

    async def main() -> None:
        await trio.sleep(5)
        ran.append(stage.time.now)

    process = stage.start(main)
    stage.run(s)
    process.kill()
    stage.run(10 * s)
    process.revive()
    stage.run(s)

    assert len(ran) == 1
    assert 11 * s <= ran[0] < 11 * s + 10 * ms


def test_a_clock_that_runs_fast_wakes_sooner(stage: Stage) -> None:
    ran: list[int] = []

    async def main() -> None:
        await trio.sleep(10)
        ran.append(stage.time.now)

    process = stage.start(main)
    stage.run(s)
    process.drift(500_000)  # half as fast again: the 9 s that are left take 6
    stage.run(20 * s)

    assert 7 * s <= ran[0] < 7 * s + 10 * ms


@pytest.mark.parametrize("tasks", [2, 7])
def test_tasks_run_in_an_order_that_the_seed_draws(tasks: int) -> None:
    def order(seed: int) -> list[int]:
        found: list[int] = []

        async def main() -> None:
            event = trio.Event()

            async def waits(number: int) -> None:
                await event.wait()
                found.append(number)

            async with trio.open_nursery() as nursery:
                for number in range(tasks):
                    nursery.start_soon(waits, number)
                await trio.sleep(0.1)
                event.set()

        for stage in a_stage(seed):
            stage.start(main)
            stage.run(s)
        return found

    orders = [order(seed) for seed in range(20)]
    assert all(sorted(found) == list(range(tasks)) for found in orders)
    assert orders == [order(seed) for seed in range(20)]
    assert len({tuple(found) for found in orders}) > 1


def test_a_thread_blocks_and_the_loop_goes_on(stage: Stage) -> None:
    seen: list[object] = []

    async def main() -> None:
        queue: Any = stage.threads.SimpleQueue()

        def work() -> int:
            item: int = queue.get(timeout=5)
            return item * 2

        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                seen.append(await trio.to_thread.run_sync(work))

            nursery.start_soon(ask)
            await trio.sleep(1)
            seen.append("the loop went on")
            queue.put(21)

    stage.start(main)
    stage.run(2 * s)

    assert seen == ["the loop went on", 42]


def test_a_thread_that_waits_for_a_lock_gets_it(stage: Stage) -> None:
    seen: list[str] = []

    async def main() -> None:
        lock = stage.threads.Lock()
        queue: Any = stage.threads.SimpleQueue()

        def first() -> None:
            with lock:
                seen.append("first has it")
                with suppress(Empty):
                    queue.get(timeout=1.0)
                seen.append("first lets go")

        def second() -> None:
            with lock:
                seen.append("second has it")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, first)
            await trio.sleep(0.1)
            nursery.start_soon(trio.to_thread.run_sync, second)

    stage.start(main)
    stage.run(2 * s)

    assert seen == ["first has it", "first lets go", "second has it"]


def test_a_task_that_is_cancelled_leaves_its_slot(stage: Stage) -> None:
    slots: list[TaskSlot] = []

    async def main() -> None:
        slots.append(TaskSlot(process))
        with trio.move_on_after(1):
            await slots[0].wait()

    process = stage.start(main)
    stage.run(500 * ms)
    assert slots[0].is_taken
    stage.run(s)

    assert not slots[0].is_taken
    slots[0].wake()  # which does nothing
