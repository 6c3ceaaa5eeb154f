"""One partition at the node that owns it, or is about to: drives its log against the store.

Before the partition is online, one task alone works on it: it follows the log and acquires the
partition. Afterwards, callers queue jobs, and one worker task does one step of the log after the
other. While a commit is under way, the next group of writes gathers. Only checkpoints run beside
the worker.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ringpop_py.errors import (
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    StateDamaged,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.partition.queue import Job, ReleaseJob, WorkQueue, WriteJob
from ringpop_py.slotlog import effects as log_is
from ringpop_py.slotlog.slotlog import SlotLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ringpop_py.config.settings import StateConfig
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.partition.logstore import LogStore
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.slotlog.slots import Claim, Slot
    from ringpop_py.values.operations import Outcome, PackedWrite, Write

F = TypeVar("F")
REPEAT_S_MIN: Final = 0.01
REPEAT_S_MAX: Final = 1.0
COMING_ATTEMPTS_MAX: Final = 10
"""After this many attempts (about five seconds) an acquisition fails, so that its callers need not
wait and the next one starts over. An owner repeats without limit, because it cannot start over."""


class Presence(Enum):
    """What a node has of a partition."""

    COMING = "coming"  # this node follows the log, or acquires the partition
    ONLINE = "online"  # this node is the owner
    GOING = "going"  # this node sealed it for another node, whose claim it has not seen yet
    LOST = "lost"


class Partition:
    """See the module.

    Args:
        spawn: runs a function in a task of its own.
        lost: called once, when this node loses the partition without having released it; with the
            name of the probable owner, or an empty text.

    Attributes:
        damage: why the last attempt to read the log failed; None if it did not.
        sealed_at: when this node sealed the partition for another, on trio's clock.
        commits_since_checkpoint: about how many slots a replay would have to read.
    """

    def __init__(
        self,
        number: int,
        *,
        node_name: str,
        state: KeyedState,
        store: LogStore,
        config: StateConfig,
        spawn: Spawn,
        lost: Callable[[Partition, str], None],
    ) -> None:
        self.number = number
        self.state = state
        self.log = SlotLog(node_name, state, store.make_nonce)
        self.presence = Presence.COMING
        self.damage: StateDamaged | None = None
        self.sealed_at: float | None = None
        self.commits_since_checkpoint = 0
        self._store = store
        self._config = config
        self._spawn = spawn
        self._lost = lost
        self._queue = WorkQueue(number, config)
        self._working = False

    def __repr__(self) -> str:
        return f"<Partition {self.number} {self.presence.value} in epoch {self.log.epoch}>"

    @property
    def trouble(self) -> KeyspaceError | None:
        """Why the store does not answer, or why its answers cannot be used."""
        return self.damage or self._store.trouble

    # Coming: one task alone works on the partition.

    async def follow(self) -> log_is.Followed:
        """Read the log up to its present end, and write nothing. Raises as `acquire` does."""
        fact = await self._come(self.log.follow())
        assert isinstance(fact, log_is.Followed)
        return fact

    async def copy(self) -> None:
        """Make the state a copy of the log as it is now, for reading only.

        The copy has everything acknowledged before this call. Nothing is written, and this node
        will not acquire the partition. During the call the state may be anything. Raises as
        `acquire` does.
        """
        await self._come(self.log.follow(miss_nothing=True))

    async def acquire(
        self, may_take: Callable[[Claim], bool]
    ) -> log_is.Acquired | log_is.NotAcquired:
        """Become the owner, unless there is an owner that *may_take* does not let us replace.

        Raises:
            StateDamaged: if something that the log needs is damaged or gone.
            KeyspaceError: if the store has failed for long, or the state here cannot hold what the
                log has. Call `leave` before the next try.
        """
        fact = await self._come(self.log.acquire(may_take))
        if isinstance(fact, log_is.Acquired):
            self.presence = Presence.ONLINE
            return fact
        assert isinstance(fact, log_is.NotAcquired)
        return fact

    async def _come(self, effects: list[log_is.Effect]) -> log_is.Fact:
        self.presence = Presence.COMING
        (fact,) = await self._settle(effects)
        self.damage = None
        if isinstance(fact, log_is.Damaged):
            why = self._store.error_of(fact)
            self.damage = StateDamaged(f"partition {self.number} cannot be read: {why}")
            raise self.damage
        return fact

    # Online: for all tasks.

    async def write(self, writes: Sequence[Write | PackedWrite]) -> list[Outcome | KeyspaceError]:
        """Commit *writes*, in order, together with those of other callers.

        Raises:
            PartitionUnavailable: if this node is not, or no longer, the owner; none took effect.
            StoreUnavailable: if the store fails; none was begun.
        """
        if self.presence is not Presence.ONLINE:
            raise self._not_online()
        if self._working and self.trouble is not None:  # if not working, the next step finds out
            raise type(self.trouble)(str(self.trouble))
        # An empty queue takes any job, even one that is larger than the limit.
        if self._queue.writes_count + len(writes) > max(self._config.queue_writes_max, len(writes)):
            raise PartitionUnavailable(
                f"{self._queue.writes_count} writes wait for partition {self.number} already"
            )
        job = WriteJob(writes)
        self._queue.writes.append(job)
        self._queue.writes_count += len(writes)
        self._begin_work()
        await job.wait()
        return job.outcomes

    async def read(self, look: Callable[[KeyedState], F], *, stale: bool = False) -> F:
        """Return what *look* finds in the state: the whole state at a moment during this call.

        Args:
            stale: accept this node's own state, even if another node has gone on with it.

        Raises:
            PartitionUnavailable: if this node is not, or no longer, the owner.
            StoreUnavailable: if the store does not answer, so that ownership is not known.
        """
        self._refuse_unless_online()
        if stale:
            return look(self.state)
        if self._store.quick and not self._working:
            # Nothing else is under way, and no other task runs before the state was looked at.
            (request,) = self.log.read()
            assert isinstance(request, log_is.GetSlot)
            facts: list[log_is.Fact] = []
            more = _requests(self.log.answered(request.id, self._store.perform_now(request)), facts)
            assert not more, "nothing else is under way"
            self._take_read_fact(facts)
            found = look(self.state)
            await trio.lowlevel.checkpoint()
            return found
        job = Job()
        self._queue.reads.append(job)
        self._begin_work()
        await job.wait()
        if self.presence is Presence.LOST:  # since the job finished; the state is gone
            self._refuse_unless_online()
        return look(self.state)

    async def release(self, to: str) -> Slot:
        """Seal the partition for *to*, and stop serving it; return the slot of the seal.

        Raises:
            PartitionUnavailable: if this node is not the owner any more, or is releasing already.
        """
        self._refuse_unless_online()
        if self._queue.release is not None:
            raise PartitionUnavailable(f"partition {self.number} is being released already; retry")
        job = self._queue.release = ReleaseJob(to)
        self._begin_work()
        await job.wait()
        assert job.slot is not None
        return job.slot

    async def checkpoint(self, slot: Slot, file: bytes, builds_on: Sequence[Slot]) -> bool:
        """Put *file*, the state at *slot*, into the store, and delete what it replaces.

        Everything else goes on meanwhile. Return whether the checkpoint is durable; see
        `SlotLog.checkpoint`.
        """
        self._store.hold_checkpoint(slot, file)
        facts = await self._settle(self.log.checkpoint(slot, builds_on))
        return any(isinstance(fact, log_is.Checkpointed) for fact in facts)

    def leave(self) -> None:
        """Give the partition up, and drop its state as soon as the worker is done."""
        self.presence = Presence.LOST
        if not self._working:
            self.log.drop()

    def _refuse_unless_online(self) -> None:
        if self.presence is not Presence.ONLINE:
            raise self._not_online()

    def _not_online(self) -> PartitionUnavailable:
        return PartitionUnavailable(f"partition {self.number} is {self.presence.value} here")

    # The worker.

    def _begin_work(self) -> None:
        if not self._working:
            self._spawn(self._work)  # it may raise, and then nothing works
            self._working = True

    async def _work(self) -> None:
        """Do the queued jobs, in steps, until the queues are empty."""
        queue = self._queue
        try:
            while self.presence is Presence.ONLINE:
                queue.in_hand.clear()
                if queue.writes:
                    await self._commit_group()
                elif queue.reads:
                    await self._check_reads()
                elif queue.release is not None:
                    await self._seal()
                else:
                    break
        except BaseException:
            # The node ends, or has a bug. It is open whether this step takes effect, and so no
            # further step can be done.
            self.presence = Presence.LOST
            queue.stop()
            raise
        finally:
            self._working = False
        if self.presence is not Presence.ONLINE:
            queue.end()
        if self.presence is Presence.LOST:
            self.log.drop()

    async def _commit_group(self) -> None:
        jobs = self._queue.next_group()
        # These reads were requested before the commit begins, so its success answers them, too.
        reads, self._queue.reads = self._queue.reads, []
        self._queue.in_hand += [*jobs, *reads]
        first = jobs[0].writes
        some = first if len(jobs) == 1 else [write for job in jobs for write in job.writes]
        body, outcomes = self.state.stage(some)
        error: KeyspaceError | None = None
        if body is None:
            self._queue.reads = reads
            error = await self._check_reads()
            reads = []
        else:
            try:
                error = self._committed(await self._settle(self.log.commit(body)))
            except KeyspaceError as failed:
                # The commit is in the log, but the state here cannot apply it: a full disk perhaps.
                error = OutcomeUnknown(f"partition {self.number} leaves this node: {failed}")
                self._fenced("")
        at = 0
        for job in jobs:
            job.outcomes = outcomes[at : at + len(job.writes)]
            at += len(job.writes)
            job.finish(error)
        if error is not None and self.presence is not Presence.LOST:
            self._queue.reads += reads  # we are still the owner
        else:
            for read in reads:
                read.finish(error)

    def _committed(self, facts: list[log_is.Fact]) -> KeyspaceError | None:
        match facts:
            case [log_is.Committed()]:
                self.commits_since_checkpoint += 1
                return None
            case [log_is.NotCommitted()]:
                return StoreFull("the store has no room left; the write did not take effect")
            case [log_is.Fenced(to, commit_open)]:
                fenced = self._fenced(to)
                return OutcomeUnknown(str(fenced)) if commit_open else fenced
            case _:
                raise AssertionError(facts)

    async def _check_reads(self) -> KeyspaceError | None:
        """Ask the log once for all waiting reads; return the error if they were refused."""
        reads, self._queue.reads = self._queue.reads, []
        self._queue.in_hand += reads
        error: KeyspaceError | None = None
        try:
            self._take_read_fact(await self._settle(self.log.read()))
        except KeyspaceError as refused:
            error = refused
        for read in reads:
            read.finish(error)
        return error

    def _take_read_fact(self, facts: list[log_is.Fact]) -> None:
        match facts:
            case [log_is.MayRead()]:
                return
            case [log_is.ReadFailed()]:
                raise self.trouble or StoreUnavailable("the store did not answer; retry")
            case [log_is.Fenced(to)]:
                raise self._fenced(to)
            case _:
                raise AssertionError(facts)

    async def _seal(self) -> None:
        job = self._queue.release
        assert job is not None
        self.presence = Presence.GOING  # before the put: nothing may be queued behind the seal
        self.sealed_at = trio.current_time()
        self._queue.release = None
        self._queue.in_hand.append(job)
        match await self._settle(self.log.release(job.to)):
            case [log_is.Released(_, slot)]:
                job.slot = slot
                job.finish()
            case [log_is.Fenced(to)]:
                job.finish(self._fenced(to))
            case facts:
                raise AssertionError(facts)

    def _fenced(self, to: str) -> PartitionUnavailable:
        self.presence = Presence.LOST
        self._lost(self, to)
        message = f"partition {self.number} was taken over by {to or 'another node'}"
        return PartitionUnavailable(message)

    # Requests of the log.

    async def _settle(self, effects: list[log_is.Effect]) -> list[log_is.Fact]:
        """Carry out requests until the log has none left; return the facts it reported."""
        # The usual cases, which need no nursery.
        while len(effects) == 1:
            (effect,) = effects
            if not isinstance(effect, log_is.Request):
                return [effect]
            effects = self.log.answered(effect.id, await self._perform(effect))
        facts: list[log_is.Fact] = []
        requests = _requests(effects, facts)
        if not requests:
            return facts
        failed: list[KeyspaceError] = []
        async with trio.open_nursery() as nursery:

            async def carry_out(request: log_is.Request) -> None:
                try:
                    reply = await self._perform(request)
                    more = _requests(self.log.answered(request.id, reply), facts)
                except KeyspaceError as error:
                    failed.append(error)
                    nursery.cancel_scope.cancel()
                    return
                for each in more:
                    nursery.start_soon(carry_out, each)

            for request in requests:
                nursery.start_soon(carry_out, request)
        if failed:
            raise failed[0]
        return facts

    def _perform(self, request: log_is.Request) -> Awaitable[log_is.Reply]:
        attempt = getattr(request, "attempt", 0)
        return self._repeat(request, attempt) if attempt else self._store.perform(request)

    async def _repeat(self, request: log_is.Request, attempt: int) -> log_is.Reply:
        if attempt > COMING_ATTEMPTS_MAX and self.presence is Presence.COMING and self.trouble:
            raise type(self.trouble)(str(self.trouble))
        await trio.sleep(min(REPEAT_S_MIN * 2 ** min(attempt, 16), REPEAT_S_MAX))
        return await self._store.perform(request)


def _requests(effects: Iterable[log_is.Effect], facts: list[log_is.Fact]) -> list[log_is.Request]:
    """Return the requests among *effects*; add the facts to *facts*."""
    requests: list[log_is.Request] = []
    for effect in effects:
        if isinstance(effect, log_is.Request):
            requests.append(effect)
        else:
            facts.append(effect)
    return requests
