"""Processes: programs of trio whose schedulers are driven by hand, in virtual time.

`trio.lowlevel.start_guest_run` lets a host loop drive trio, but only one in each thread, and with a
thread for input and output. What it drives is a generator, and that is driven here directly: each
step runs a few of the tasks that can run, and says for how long the process would sleep.

Private names of trio 0.35 are used, which `tests/sim/whole/stage/test_scheduling.py` pins.
"""

from __future__ import annotations

import gc
import random
import sys
import warnings
from collections import deque
from contextlib import contextmanager
from contextvars import copy_context
from heapq import heappush
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import greenlet
import sniffio
import trio
from outcome import Error
from trio._core import _run as scheduler
from trio._core._entry_queue import EntryQueue
from trio._core._instrumentation import Instruments
from trio._core._ki import KIManager

from ringpop_sim.units import s
from ringpop_sim.world.process import PPM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from outcome import Outcome

    from ringpop_sim.world.trace import Trace
    from ringpop_sim.world.world import VirtualTime

STEP_US_MAX: Final = 200
"""The most that a step takes, if more tasks can run after it."""
TASKS_MAX: Final = 3
"""The most tasks of a step: between two steps other processes run, and this one may be killed."""
SLEEP_S_MAX: Final = 86_400
"""Trio's own limit: a scheduler that would sleep for so long has nothing to wait for but others."""
CLOSES_MAX: Final = 20
NO_EVENTS: Final[Any] = ()
STEPPED, RESUMED, ARRIVED, STORED = range(10, 14)
"""The kinds of events in the digest, beside those of `ringpop_sim.world.trace`."""
_number: Final = attrgetter("_counter")
_context: Final = scheduler.GLOBAL_RUN_CONTEXT


class _Ordered(dict[Any, None]):
    """A set that is iterated in the order of insertion."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)

    def remove(self, item: object) -> None:
        del self[item]


class OrderedCancelStatus(scheduler.CancelStatus):
    """Cancels in the order in which tasks and scopes have come, not in that of addresses."""

    def __attrs_post_init__(self) -> None:
        self._children: Any = _Ordered()
        self._tasks: Any = _Ordered()
        super().__attrs_post_init__()

    @property
    def children(self) -> Any:
        return tuple(self._children)

    @property
    def tasks(self) -> Any:
        return tuple(self._tasks)


class _OrderedDeadlines(scheduler.Deadlines):
    """Of equal deadlines the first that was set comes first, not the one with a lower address."""

    def __init__(self) -> None:
        super().__init__()
        self._added = 0

    def add(self, deadline: float, cancel_scope: trio.CancelScope) -> None:
        self._added += 1
        heappush(self._heap, (deadline, self._added, cancel_scope))
        self._active += 1


class _DrawnQueue(deque[Any]):
    """The tasks that can run: it gives the scheduler a few at a time, in an order that is drawn.

    Trio's promise stays: of the tasks that can run, each runs once before one that is woken later.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._due: list[Any] = []
        self._given: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        if not self._due:
            self._due = list(super().__iter__())
            if len(self._due) > 1:
                # First an order that is always the same: an `Event` wakes a set of tasks.
                self._due.sort(key=_number)
                self._rng.shuffle(self._due)
        count = self._rng.randint(1, TASKS_MAX) if len(self._due) > 1 else 1
        self._given, self._due = self._due[:count], self._due[count:]
        return iter(self._given)

    def clear(self) -> None:
        """Remove the tasks that were given."""
        left = [task for task in super().__iter__() if task not in self._given]
        super().clear()
        self.extend(left)


class ProcessClock(trio.abc.Clock):
    """The monotonic clock of one process, which may drift."""

    def __init__(self, world: Processes, shown_us: int) -> None:
        self._world = world
        self._shown_us = shown_us
        self._since = world.now
        self._ppm = 0

    @property
    def now_us(self) -> int:
        """What it shows."""
        passed = self._world.now - self._since
        return self._shown_us + passed + passed * self._ppm // PPM

    def drift(self, ppm: int) -> None:
        """Run fast by *ppm* millionths from now on."""
        self._shown_us, self._since, self._ppm = self.now_us, self._world.now, ppm

    def world_us(self, sleep_s: float) -> int:
        """Return how many microseconds of the world pass in *sleep_s* of the clock; at least 1.

        Rounded up: a process that wakes a moment too early would wake at this instant for ever.
        """
        return max(1, ceil(sleep_s * s * PPM / (PPM + self._ppm)))

    def start_clock(self) -> None:
        """Do nothing: it runs."""

    def current_time(self) -> float:
        return self.now_us / s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


class _NoFiles:
    """What trio has for input and output: nothing, as what arrives wakes tasks directly."""

    def __init__(self, process: TrioProcess) -> None:
        self._process = process

    def process_events(self, events: object) -> None:
        """Do nothing."""

    def force_wakeup(self) -> None:
        self._process.wake()

    def close(self) -> None:
        """Do nothing."""

    def statistics(self) -> None:
        """Return nothing."""


class TaskSlot:
    """A place where one task of a process waits to be woken from outside."""

    __slots__ = ("_process", "_task")

    def __init__(self, process: TrioProcess) -> None:
        self._process = process
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> Any:
        """Return or raise the outcome with which `wake` is called."""
        self._task = trio.lowlevel.current_task()
        return await trio.lowlevel.wait_task_rescheduled(self._abandon)

    def wake(self, outcome: Outcome[Any] | None = None) -> None:
        """Have the task that waits here, if there is one, go on with *outcome*."""
        task, self._task = self._task, None
        if task is None or not self._process.alive:
            return
        if outcome is None:
            self._process.runner.reschedule(task)
        else:
            self._process.runner.reschedule(task, outcome)

    @property
    def is_taken(self) -> bool:
        """Whether a task waits here."""
        return self._task is not None

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class _Wakeup:
    """What wakes the task that runs what threads have left (`trio.lowlevel.TrioToken`)."""

    def __init__(self, process: TrioProcess) -> None:
        self._slot = TaskSlot(process)
        self._is_set = False

    def wakeup_on_signals(self) -> None:
        """Do nothing: no signal is sent."""

    def close(self) -> None:
        """Do nothing."""

    async def wait_woken(self) -> None:
        if not self._is_set:
            await self._slot.wait()
        self._is_set = False
        await trio.lowlevel.checkpoint()

    def wakeup_thread_and_signal_safe(self) -> None:
        self._is_set = True
        self._slot.wake()


class Processes:
    """All processes of one world.

    Attributes:
        current: the process whose code runs now; None while the world's own does.
        hub: the greenlet of the world and of all schedulers; threads have their own.
        failed: called with each process that an exception has ended, and that exception.
    """

    def __init__(self, time: VirtualTime, trace: Trace, seed: int) -> None:
        self.trace = trace
        self.seed = seed
        self.push = time.push
        self.current: TrioProcess | None = None
        self.hub = greenlet.getcurrent()
        self.failed: Callable[[TrioProcess, BaseException], None] = lambda *_: None
        self._time = time
        self._all: list[TrioProcess] = []

    @property
    def now(self) -> int:
        """The instant, in microseconds."""
        return self._time.now

    def add(self, process: TrioProcess) -> int:
        """Add *process*, which starts; return its place in the order of all starts, from 1 on."""
        self._all.append(process)
        return len(self._all)

    def after(self, delay_us: int, action: Callable[[Any], None], argument: object = None) -> None:
        """Schedule the call of *action* in *delay_us*."""
        self.push(self.now + delay_us, action, argument)

    def close(self, forget: Callable[[], None]) -> None:
        """Free everything: what is left of the processes reaches nothing any more.

        *forget* drops what others hold of them.
        """
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of trio and Python: nothing has come to its end
                while self._all:  # without a variable, which would keep the last one
                    self._all.pop().discard()
                forget()
                gc.collect()
        finally:
            sys.unraisablehook = hook
            _context.__dict__.clear()


class TrioProcess:
    """One process, from its start to its end, which runs *main* under a scheduler of its own.

    Attributes:
        serial: its place in the order of all starts; the first is 1.
        alive: whether it has not ended; a paused one is alive.
        threads: its threads.
        outcome: what *main* has returned or raised; None before that, and after a kill.
        slow_us: how late it does everything.
        wall_us: how much its wall clock is off.
        on_end: called when it ends, in whatever way, as an operating system closes what is open;
            each with what is called if the process is revived.
    """

    def __init__(
        self, world: Processes, name: str, main: Callable[[TrioProcess], Awaitable[object]]
    ) -> None:
        self.world = world
        self.name = name
        self.serial = world.add(self)
        self.rng = random.Random(f"process {world.seed} {self.serial}")
        self.alive, self.paused = True, False
        self.outcome: Outcome[object] | None = None
        self.slow_us = 0
        self.wall_us = 0
        self.on_end: dict[Callable[[], None], Callable[[], None] | None] = {}
        self.clock = ProcessClock(world, self.rng.randrange(100 * s, 100_000 * s))
        self._wakes_at: int | None = None
        self.threads = GreenThreads(self)
        self.runner = scheduler.Runner(
            clock=self.clock,
            instruments=Instruments(()),
            io_manager=_NoFiles(self),  # type: ignore[arg-type]
            system_context=copy_context(),
            ki_manager=KIManager(),
            strict_exception_groups=True,
            runq=_DrawnQueue(self.rng),
            deadlines=_OrderedDeadlines(),
            entry_queue=EntryQueue(wakeup=_Wakeup(self)),  # type: ignore[arg-type]
            is_guest=True,
            guest_tick_scheduled=True,
        )
        self.runner.asyncgens.prev_hooks = sys.get_asyncgen_hooks()
        self._loop = scheduler.unrolled_run(self.runner, main, (self,))
        with self.entered():
            next(self._loop)
        self.wake()

    def __repr__(self) -> str:
        life = "ended" if not self.alive else "paused" if self.paused else "runs"
        return f"<process {self.serial}, {self.name}: {life}>"

    # Steps.

    def wake(self, delay_us: int = 0) -> None:
        """Run the process in *delay_us*, if it does not run sooner."""
        at = self.world.now + delay_us + self.slow_us
        if self._wakes_at is None or at < self._wakes_at:
            self._wakes_at = at
            self.world.push(at, self._step, at)

    def _step(self, at: int) -> None:
        if at != self._wakes_at or not self.alive:
            return  # it has run sooner
        self._wakes_at = None
        if self.paused:
            return  # `resume` wakes it
        world, runner = self.world, self.runner
        world.trace.event(world.now, STEPPED, self.serial, len(runner.runq))
        runner.guest_tick_scheduled = True
        with self.entered():
            try:
                sleep_s = self._loop.send(NO_EVENTS)
            except StopIteration:
                self._end(runner.main_task_outcome)
                return
            except trio.TrioInternalError as error:
                self._end(Error(error))
                return
        if sleep_s <= 0:
            self.wake(self.rng.randint(0, STEP_US_MAX))
        else:
            runner.guest_tick_scheduled = False
            if sleep_s < SLEEP_S_MAX:
                self.wake(self.clock.world_us(sleep_s))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run the code of the block as code of this process; it may not wait."""
        world = self.world
        before, library = world.current, sniffio.thread_local.name
        outer = {**_context.__dict__}  # of a process that starts this one
        _context.runner, world.current = self.runner, self
        sniffio.thread_local.name = "trio"
        try:
            yield
        finally:
            world.current, sniffio.thread_local.name = before, library
            _context.__dict__.clear()
            _context.__dict__.update(outer)

    # What is done to it.

    def pause(self) -> None:
        """Stop it as SIGSTOP does."""
        self.paused = True

    def resume(self) -> None:
        """Continue it as SIGCONT does."""
        if self.paused:
            self.paused = False
            self._go_on()

    def _go_on(self) -> None:
        self.threads.go_on()
        self.wake()

    def kill(self) -> None:
        """End it as SIGKILL does: none of its code runs any more."""
        if self.alive:
            self._end(None)

    def drift(self, ppm: int) -> None:
        """Have its clocks run fast by *ppm* millionths from now on."""
        self.clock.drift(ppm)
        self.wake()  # it has slept for its time by the former speed

    def _end(self, outcome: Outcome[object] | None) -> None:
        self.alive = False
        self.outcome = outcome
        if isinstance(outcome, Error):
            self.world.failed(self, outcome.error)
        for call in list(self.on_end):
            call()

    def revive(self) -> None:
        """Continue it after a kill, as a machine does that is restored from a snapshot."""
        self.alive, self.paused = True, False
        for revive in list(self.on_end.values()):
            if revive is not None:
                revive()
        self._wakes_at = None
        self._go_on()

    def discard(self) -> None:
        """Free what it holds; it is not simulated any longer."""
        self.alive = False
        for task in list(self.runner.tasks):
            for nursery in task.child_nurseries:
                nursery._children.clear()
            _close(task.coro.close)
        _close(self._loop.close)
        self.threads.discard()
        self.on_end.clear()


class GreenThreads:
    """The threads of *process*: greenlets, of which one runs until it blocks.

    Attributes:
        start_us_max: how late a thread begins at most.
    """

    def __init__(self, process: TrioProcess) -> None:
        self._process = process
        self.start_us_max = STEP_US_MAX
        self._all: dict[greenlet.greenlet, None] = {}
        self._deferred: list[tuple[greenlet.greenlet, Any]] = []

    def start(self, function: Callable[[], object]) -> None:
        """Run *function*, which may block in `ringpop_sim.whole.stage.threads`."""
        process = self._process
        thread = greenlet.greenlet(lambda _: function(), process.world.hub)
        self._all[thread] = None
        self.resume(thread, None, process.rng.randint(0, self.start_us_max))

    def resume(self, thread: greenlet.greenlet, value: object, delay_us: int) -> None:
        """Have *thread*, which has blocked, go on with *value* in *delay_us*."""
        process = self._process
        process.world.after(delay_us + process.slow_us, self._run, (thread, value))

    def _run(self, what: tuple[greenlet.greenlet, Any]) -> None:
        process = self._process
        if process.paused or not process.alive:
            self._deferred.append(what)
            return
        thread, value = what
        world = process.world
        world.trace.event(world.now, RESUMED, process.serial, 0)
        world.current = process
        try:
            thread.switch(value)
        finally:
            world.current = None
        if thread.dead:
            del self._all[thread]

    def go_on(self) -> None:
        """Run what could not run: the process goes on."""
        deferred, self._deferred = self._deferred, []
        for what in deferred:
            self._process.world.after(0, self._run, what)

    def discard(self) -> None:
        """Free what the threads hold."""
        for thread in list(self._all):
            while not thread.dead:  # it may catch what ends it, and block once more
                _close(thread.throw)


def _close(close: Callable[[], object]) -> None:
    """Call *close* until it succeeds: a coroutine that ends may await once more."""
    for _ in range(CLOSES_MAX):
        try:
            close()
        except BaseException:  # noqa: BLE001, S112 - without a scheduler anything may be raised
            continue
        return
