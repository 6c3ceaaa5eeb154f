"""Writes the journal of one keyspace at one node: drives it, and the desk of its partitions.

Callers queue jobs, and one worker task does one step after the other. While a group is on its way,
the next one gathers. Claims after a fence, checkpoints and trimming run beside the worker.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ringpop_py.errors import KeyspaceError, PartitionUnavailable, StoreFull, StoreRefused
from ringpop_py.journal import effects as fx
from ringpop_py.journal.desk import Desk, Job, Presence, ReleaseJob, Served
from ringpop_py.journal.journal import Journal
from ringpop_py.partition.settle import REPEAT_S_MAX, attempt_of, pause_before, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.config.settings import StateConfig
    from ringpop_py.journal.asker import Effects
    from ringpop_py.journal.records import Slot
    from ringpop_py.partition.journalstore import JournalStore
    from ringpop_py.partition.tasks import Spawn


class Written(Served, Protocol):
    """A partition as its writer sees it."""

    def reset(self) -> None:
        """Drop the state."""

    def leave(self) -> None:
        """Give the partition up."""


class Keeper(Protocol):
    """What has to know how the partitions of a journal fare."""

    def fenced(self, fence: fx.Fenced, partitions: Sequence[Written]) -> None:
        """The journal was sealed; *partitions* are being claimed again."""

    def claimed_again(self, partition: Written, epoch: int) -> None:
        """*partition* is served again, in *epoch*."""

    def lost(self, partition: Written, to: str) -> None:
        """*to*, or an unknown node, has taken *partition*, which this node had."""

    def has_sealed(self, seal: fx.Sealed) -> None:
        """This node has put *seal*, to take a partition over."""


class Writer:
    """See the module.

    Args:
        store: for the requests of commits and reads alone: its trouble is theirs.
        beside: for what is done beside them.
        spawn: runs a function in a task of its own.

    Attributes:
        keeper: set by the driver of the partitions; None for a share that owns nothing.
        working: whether a step is under way.
        readers_count: how many readers have looked for themselves in this turn of the loop.
        refusal: why the store has refused the last group, if it has, and not for want of room.
        failed: partitions whose state could not apply what the present step has committed.
    """

    def __init__(
        self,
        node_name: str,
        store: JournalStore,
        beside: JournalStore,
        config: StateConfig,
        spawn: Spawn,
    ) -> None:
        self.journal = Journal(node_name, store.make_name)
        self.desk = Desk(self.journal, config)
        self.store = store
        self.beside = beside
        self.keeper: Keeper | None = None
        self.working = False
        self.readers_count = 0
        self.failed: list[Written] = []
        self.refusal: StoreRefused | None = None
        self._changed = trio.Event()
        self._spawn = spawn
        self._partitions: dict[int, Written] = {}
        self.claiming: set[int] = set()
        """Partitions whose claims are on their way."""

    # Partitions come and go.

    def holds(self, partition: Written) -> None:
        """Serve *partition*, which the journal holds now."""
        self._partitions[partition.number] = partition

    def has(self, partition: Written) -> bool:
        """Return whether it is *partition* by which the journal holds its number, or claims it."""
        return self._partitions.get(partition.number) is partition

    def leave(self, partition: Written) -> None:
        """Release *partition*, whose state is not needed any more, if the journal holds it."""
        if not self.has(partition):
            return
        if partition.number in self.journal.held:
            # If the share has ended, its epochs stay open, until others seal its journal.
            with suppress(PartitionUnavailable):
                self._spawn(self._release_unwanted, partition)
        elif not self.journal.reclaims(partition.number):
            del self._partitions[partition.number]

    async def _release_unwanted(self, partition: Written) -> None:
        number = partition.number
        while number in self.journal.held and self.has(partition):
            job = ReleaseJob(partition, "")
            self.desk.add_release(job)
            try:
                await self.wait(job)
                break
            except KeyspaceError:
                await trio.sleep(REPEAT_S_MAX)
        if not self.journal.reclaims(number) and self.has(partition):
            del self._partitions[number]
            partition.reset()
        self._change()

    def is_settled(self, number: int, journal: str) -> bool:
        """Return whether an epoch of partition *number* in *journal* is open here no longer."""
        # A claim after a fence may be there already, though its reply has not come.
        claims = number in self.claiming or self.journal.reclaims(number)
        return journal != self.journal.name or (number not in self.journal.held and not claims)

    async def claimed(self, number: int) -> None:
        """Return once no claim of partition *number* after a fence is under way."""
        while self.journal.reclaims(number):
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def has_sealed(self, seal: fx.Sealed) -> None:
        """Tell that an heir at this node has put *seal*."""
        if self.keeper is not None:
            self.keeper.has_sealed(seal)

    # Jobs.

    def check(self) -> None:
        """Raise why the store does not answer the step under way, if that is known.

        So nobody has to wait for such a step. If there is no step, the next one finds out.
        """
        trouble = self.store.trouble
        if trouble is not None and self.working:
            raise type(trouble)(str(trouble))

    def begin_work(self) -> None:
        """Do what the desk has, unless that is being done already."""
        if not self.working:
            self._spawn(self._work)  # it may raise, and then nothing works
            self.working = True

    async def wait(self, job: Job) -> None:
        """Begin to work, and return when *job* is done; raise its error if it failed."""
        self.begin_work()
        if job.ended:
            await trio.lowlevel.checkpoint()  # a job without waiting still lets other tasks run
        else:
            job.wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())

            def abandon(_: Any) -> trio.lowlevel.Abort:  # noqa: ANN401 - as trio has it
                job.wake = None
                self.desk.forget(job)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abandon)
        if job.error is not None:
            raise job.error

    async def _work(self) -> None:
        """Do the queued jobs, in steps, until there are none."""
        try:
            while effects := self.desk.begin():
                while len(effects) == 1 and isinstance(effects[0], fx.Request):
                    request = effects[0]
                    if isinstance(request, fx.PutSlot) and not request.attempt:
                        reply = await self.store.perform(request)  # the usual one, a call less
                    else:
                        reply = await self._perform(self.store, request)
                    effects = self.journal.answered(request.id, reply)
                self._end_step(effects)
        except BaseException:
            # The node ends, or has a bug. It is open whether this step takes effect, and so no
            # further step can be done.
            for partition in self._partitions.values():
                self.desk.lost(partition)
            self.desk.stop()
            raise
        finally:
            self.working = False

    def look_now(self, partition: Written) -> None:
        """Ask the store at once whether *partition* is whole: nothing else is under way.

        Raises:
            PartitionUnavailable: if this node does not have it any more.
            StoreUnavailable: if the store does not answer.
        """
        job = Job(partition)
        self.desk.add_read(job)
        effects = self.desk.begin()
        while len(effects) == 1 and isinstance(effects[0], fx.Request):
            request = effects[0]
            effects = self.journal.answered(request.id, self.store.perform_now(request))
        if effects:
            self._end_step(effects)
        if not job.ended:  # it waits for the next claim
            raise PartitionUnavailable(f"partition {partition.number} is claimed again; retry")
        if job.error is not None:
            raise job.error

    async def _perform(self, store: JournalStore, request: fx.Request) -> fx.Reply:
        attempt = attempt_of(request)
        if attempt:
            await pause_before(attempt)
        if not attempt and store.quick and isinstance(request, fx.GetSlot):
            reply: fx.Reply = store.perform_now(request)
        else:
            reply = await store.perform(request)
        return reply

    def _end_step(self, effects: Effects) -> None:
        """Tell the desk how the step has ended; effects besides that are those of a fence."""
        fact, *claims = effects
        assert not isinstance(fact, fx.Request)
        if isinstance(fact, fx.Fenced):
            self._fenced(fact, claims)
        why = None
        if isinstance(fact, fx.NotCommitted) and isinstance(self.store.trouble, StoreRefused):
            why = type(self.store.trouble)(str(self.store.trouble))
            if not isinstance(why, StoreFull):  # which is so for all members
                self.refusal = why
        elif isinstance(fact, fx.Committed):
            self.refusal = None
        self.desk.ended(fact, why)
        if self.failed:
            self._release_failed()

    # Fences.

    def _fenced(self, fact: fx.Fenced, claims: Effects) -> None:
        again: list[Written] = []
        for claim in claims:
            assert isinstance(claim, fx.PutClaim)
            partition = self._partitions[claim.partition]
            if partition.presence is not Presence.LOST:
                partition.presence = Presence.COMING
                again.append(partition)
            self._spawn(self._claim_again, claim)
        if self.keeper is not None:
            self.keeper.fenced(fact, again)
        for number in fact.lost:
            self._lost(number, fact.by)

    async def _claim_again(self, request: fx.Request) -> None:
        effects: Effects = [request]
        while len(effects) == 1 and isinstance(effects[0], fx.Request):
            request = effects[0]
            reply = await self._perform(self.beside, request)
            effects = self.journal.answered(request.id, reply)
        (fact,) = effects
        self._change()
        if isinstance(fact, fx.Lost):
            self._lost(fact.partition, fact.owner)
            return
        assert isinstance(fact, fx.Reclaimed)
        partition = self._partitions[fact.partition]
        if partition.presence is Presence.LOST:  # given up meanwhile
            self._spawn(self._release_unwanted, partition)
            return
        self.desk.claimed_again(partition)
        if self.keeper is not None:
            self.keeper.claimed_again(partition, fact.epoch)
        self.begin_work()

    def _lost(self, number: int, to: str) -> None:
        partition = self._partitions.pop(number)
        self._change()
        self.desk.lost(partition)
        if self.keeper is not None:
            self.keeper.lost(partition, to)

    def give_up(self, partition: Written) -> None:
        """Give *partition* up, whose state cannot go on here."""
        self.failed.append(partition)
        self._release_failed()

    def _release_failed(self) -> None:
        """Give up partitions whose state could not apply what is in the journal: a full disk."""
        failed, self.failed = self.failed, []
        for partition in failed:
            if partition.presence is not Presence.LOST:
                self.desk.lost(partition)
                if self.keeper is not None:
                    self.keeper.lost(partition, "")
                self.leave(partition)

    # Beside the worker.

    async def checkpoint(
        self, number: int, slot: Slot, file: bytes, builds_on: Sequence[Slot]
    ) -> bool:
        """Put a checkpoint; return whether it is durable. See `Journal.checkpoint`."""
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
