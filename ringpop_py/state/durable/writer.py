"""Carries out, on trio, the steps of the journal of one keyspace at this node.

Callers queue jobs, and one task does one step after the other. While a group is on its way, the
next one gathers. Other requests of `Machine`, such as claims after a fence, run beside it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from ringpop_py.base.errors import OutcomeUnknown, PartitionUnavailable
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.state.durable.settle import pause_before, settle
from ringpop_py.state.journal import effects as fx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.net.transport.deadlines import Timed, Wheel
    from ringpop_py.state.catalog.journalstore import JournalStore
    from ringpop_py.state.journal.records import Slot
    from ringpop_py.state.partition.desk import Desk, Job
    from ringpop_py.state.partition.machine import Machine
    from ringpop_py.state.partition.record import LocalPartition, Perform
    from ringpop_py.state.tasks import Spawn


class _Waiting:
    """A task that waits for *job*, perhaps with a deadline: a cancel scope would cost more.

    See `Timed`.
    """

    __slots__ = ("_desk", "_job", "_task", "bucket")

    def __init__(self, job: Job, desk: Desk, task: trio.lowlevel.Task) -> None:
        self.bucket: dict[Timed, None] | None = None
        self._job = job
        self._desk = desk
        self._task = task
        job.wake = self.wake

    def wake(self) -> None:
        """Have the task go on: its job has ended."""
        self._job.wake = None  # otherwise the two would hold each other
        if self.bucket is not None:
            del self.bucket[self]
            self.bucket = None
        trio.lowlevel.reschedule(self._task)

    def expire(self) -> None:
        """See `Timed`."""
        self._give_up()
        trio.lowlevel.reschedule(self._task)

    def abandon(self, _: object) -> trio.lowlevel.Abort:
        """Give the job up, as the task is cancelled."""
        if self.bucket is not None:
            del self.bucket[self]
            self.bucket = None
        self._give_up()
        return trio.lowlevel.Abort.SUCCEEDED

    def _give_up(self) -> None:
        self._job.wake = None
        self._desk.forget(self._job)


class Writer:
    """See the module.

    Args:
        store: only for the requests of commits and reads: its failures fail them.
        beside: for all other requests, which run beside them.
        spawn: runs a function in a task of its own.
        wheel: for the deadlines of callers.

    Attributes:
        carry_out: does what the machine has left to do; set by the driver of the partitions.
        working: whether the task does steps; otherwise it waits, or has not begun.
        readers_count: how many readers have looked on their own in this turn of the loop.
    """

    def __init__(
        self,
        machine: Machine[Any],
        store: JournalStore,
        beside: JournalStore,
        spawn: Spawn,
        wheel: Wheel,
    ) -> None:
        self.machine = machine
        self.journal = machine.journal
        self.desk = machine.desk
        self.store = store
        self.beside = beside
        self.carry_out: Callable[[Iterable[Any]], None]
        self.working = False
        self.readers_count = 0
        self._idle: trio.lowlevel.Task | None = None
        self._spawn = spawn
        self._wheel = wheel

    def begin_work(self) -> None:
        """Have the task do steps. Raises PartitionUnavailable if the share has ended."""
        if not self.working:
            task, self._idle = self._idle, None
            if task is not None:
                trio.lowlevel.reschedule(task)
            else:
                self._spawn(self._work)  # it may raise, and then nothing works
            self.working = True

    async def wait(self, job: Job, deadline: float = inf) -> None:
        """Return when *job* is done, by the task at work; raise its error if it failed.

        Raises:
            OutcomeUnknown: if *deadline* passes; a write may still take effect.
        """
        if job.ended:
            await trio.lowlevel.checkpoint()  # a job without waiting still lets other tasks run
        else:
            waiting = _Waiting(job, self.desk, trio.lowlevel.current_task())
            if deadline != inf:
                self._wheel.add(waiting, deadline)
            await trio.lowlevel.wait_task_rescheduled(waiting.abandon)
            if not job.ended:
                trouble = self.store.trouble
                why = "" if trouble is None else f": {trouble}"
                raise OutcomeUnknown(f"the deadline passed while this node served the request{why}")
        if job.error is not None:
            raise job.error

    async def _work(self) -> None:
        """Do the queued jobs, in steps; then wait for `begin_work`."""
        machine, desk, store = self.machine, self.desk, self.store
        try:
            while True:
                while (request := desk.begin()) or machine.tasks or machine.ended:
                    while request is not None:
                        if isinstance(request, fx.PutSlot) and not request.attempt:
                            reply = await store.perform(request)  # the usual one, on a short way
                        else:
                            reply = await self._perform(store, request)
                        request = machine.step_answered(request, reply, store.trouble)
                    if machine.tasks or machine.ended:
                        self.carry_out(())
                self.working, self._idle = False, trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._no_longer_idle)
        except BaseException:
            # The node ends, or has a bug. Whether this step takes effect is unknown, so no further
            # step can be done.
            if self.working:
                machine.stop()
            raise
        finally:
            self.working = False

    def _no_longer_idle(self, _: object) -> trio.lowlevel.Abort:
        self._idle = None
        return trio.lowlevel.Abort.SUCCEEDED

    def is_whole(self) -> bool:
        """Return whether all states here are whole, if that is known without waiting.

        They are if the next slot is absent; otherwise a job finds out why it is not.
        """
        idle = self.store.quick and not self.working and self.desk.trouble is None
        journal = self.journal
        return idle and self.store.is_absent_now(journal.name, journal.next_slot)

    async def _perform(self, store: JournalStore, request: fx.Request) -> fx.Reply:
        await pause_before(request)
        if store.quick and isinstance(request, fx.GetSlot) and not request.attempt:
            return store.perform_now(request)
        return await store.perform(request)

    # Beside the steps.

    def ask(self, asked: Perform) -> None:
        """Make a request that `Machine` wants."""
        with suppress(PartitionUnavailable):  # the share has ended
            self._spawn(self._ask, asked)

    async def _ask(self, asked: Perform) -> None:
        request, part = asked
        await pause_before(request)
        store = self.beside if part is None else part.store
        reply = await store.perform(request)
        self.carry_out(self.machine.answered(asked, reply, now_us(), store.trouble))

    def give_up(self, partition: LocalPartition) -> None:
        """Give *partition* up, whose state cannot go on here."""
        self.carry_out(self.machine.give_up(partition, now_us()))

    async def checkpoint(
        self, number: int, slot: Slot, file: bytes, builds_on: Sequence[Slot]
    ) -> bool:
        """Put *file*, the state at *slot*, into the store, and delete the older ones.

        Everything else goes on meanwhile. Return whether the checkpoint is durable; see
        `Journal.checkpoint`.
        """
        self.beside.hold_checkpoint(number, slot, file)
        effects = self.journal.checkpoint(number, slot, builds_on)
        facts = await settle(self.journal, effects, partial(self._perform, self.beside))
        return any(isinstance(fact, fx.Checkpointed) for fact in facts)

    async def trim(self) -> fx.Trimmed:
        """Delete what checkpoints cover."""
        perform = partial(self._perform, self.beside)
        (fact,) = await settle(self.journal, self.journal.trim(), perform)
        assert isinstance(fact, fx.Trimmed)
        return fact
