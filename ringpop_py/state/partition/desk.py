"""What a node does next with the writes, reads and releases of its partitions (pure).

All partitions of a keyspace share one journal, and so they share a desk. Jobs wait in the order in
which they came. While a group of writes is under way, the next one gathers, whatever the
partitions. A read is answered by the next commit or look that begins after it came. One commit or
look answers all reads that wait.

A partition that is fenced with its journal, and claimed again, keeps its jobs: none of them has
taken effect, so they are done afterwards.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, cast

from ringpop_py.base.errors import (
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.base.values.operations import ArgumentRows, PackedWrite, WriteRun
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.records import Release
from ringpop_py.state.partition.chart import Presence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.base.values.operations import Change, Outcome, Write
    from ringpop_py.state.journal.journal import Journal
    from ringpop_py.state.table.due import DueTimes

CHANGE_BYTES: Final = 64
"""The approximate bytes of a change besides its argument, for the size limit of a group."""


_OWNED: Final = Presence.OWNED  # looked up once: each job asks
_RELEASED_BY_JOB: Final = (Presence.RELEASING, Presence.UNWANTED)


class Staging(Protocol):
    """A state as a desk needs it; see `KeyedState`."""

    @property
    def stage(
        self,
    ) -> Callable[
        [Sequence[Write | PackedWrite | WriteRun]], tuple[object, list[Outcome | KeyspaceError]]
    ]:
        """Return what writes would do, as the body of an entry, and the outcome of each."""

    @property
    def due(self) -> DueTimes:
        """When its keys expire."""

    def expired(self, body: object) -> object:
        """Return *body* with what is due after it; None if there is nothing to log."""


class Served(Protocol):
    """A partition as its desk sees it."""

    number: int

    @property
    def state(self) -> Staging:
        """The state that its entries amount to."""

    presence: Presence
    waiting: list[Job]
    """Jobs that wait until the partition is claimed again."""
    writes_count: int
    """The number of writes that wait."""


@dataclass(slots=True, eq=False)
class Job:
    """A read of *partition*; and what is called when the job has ended.

    Attributes:
        error: why it failed; None if it did not.
    """

    partition: Served
    error: KeyspaceError | None = field(default=None, init=False)
    ended: bool = field(default=False, init=False)
    wake: Callable[[], object] | None = field(default=None, init=False)

    def finish(self, error: KeyspaceError | None = None) -> None:
        """Record the outcome, and call `wake`; only the first call counts."""
        if self.ended:
            return
        self.error = error
        self.ended = True
        if self.wake is not None:
            self.wake()


@dataclass(slots=True, eq=False)
class WriteJob(Job):
    """Writes to be committed together."""

    writes: Sequence[Write | PackedWrite]
    outcomes: list[Outcome | KeyspaceError] = field(default_factory=list, init=False)


@dataclass(slots=True, eq=False)
class ReleaseJob(Job):
    """The end of an epoch, for *to*."""

    to: str


class Desk:
    """The jobs of all partitions that *journal* holds, one step at a time: `begin`, `ended`.

    Attributes:
        trouble: why the store does not answer the step under way; None if it does.
        expiring: partitions with keys that expire that a step was for, since `Machine` has looked.
    """

    def __init__(self, journal: Journal, config: StateConfig) -> None:
        self.journal = journal
        self.trouble: KeyspaceError | None = None
        self.expiring: set[Served] = set()
        self._config = config
        self._queue: deque[WriteJob | ReleaseJob] = deque()
        self._reads: dict[Job, None] = {}  # in order
        self._in_hand: list[WriteJob | ReleaseJob] = []
        self._riding: list[Job] = []

    # Jobs come.

    def write(self, partition: Served, writes: Sequence[Write | PackedWrite]) -> WriteJob:
        """Queue *writes* of one caller, in order, to be committed with those of others.

        Raises:
            PartitionUnavailable: if this node does not own it now, or too much waits for it.
            StoreUnavailable: if the store does not answer the step under way: no caller must wait.
        """
        if partition.presence is not _OWNED or self.trouble is not None:
            self._refuse(partition)
        count = len(writes)
        # An empty queue takes any job, even one that is larger than the limit.
        if partition.writes_count + count > max(self._config.queue_writes_max, count):
            raise PartitionUnavailable(
                f"{partition.writes_count} writes wait for partition {partition.number} already"
            )
        job = WriteJob(partition, writes)
        partition.writes_count += count
        self._queue.append(job)
        return job

    def expire(self, partition: Served) -> bool:
        """Have a group for *partition*, with which goes what is due; return that it is not done."""
        with suppress(KeyspaceError):  # the store does not answer: at the next look
            self.write(partition, ())
        return False

    def read(self, partition: Served) -> Job:
        """Queue a read. Raises as `write` does."""
        if partition.presence is not _OWNED or self.trouble is not None:
            self._refuse(partition)
        job = Job(partition)
        self._reads[job] = None
        return job

    def _refuse(self, partition: Served) -> None:
        if partition.presence is not _OWNED:
            text = f"partition {partition.number} is {partition.presence.value} here"
            raise PartitionUnavailable(text)
        assert self.trouble is not None
        raise type(self.trouble)(str(self.trouble))

    def forget(self, job: Job) -> None:
        """Drop *job* if it is a read that waits: nobody waits for its answer any more."""
        self._reads.pop(job, None)

    def add_release(self, job: ReleaseJob) -> None:
        """Queue *job*."""
        self._queue.append(job)

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be begun."""
        return not self._queue and not self._reads

    @property
    def jobs_count(self) -> int:
        """How many jobs wait here or are being done."""
        queues = self._queue, self._reads, self._in_hand, self._riding
        return sum(map(len, queues))

    # Steps.

    def begin(self) -> fx.Request | None:
        """Begin the next step; return its first request, or None if there is nothing to do.

        A step ends with a fact that is passed to `ended`.
        """
        if not self._queue and not self._reads:
            return None
        if self._reads:
            reads, self._reads = self._reads, {}
            self._riding = [job for job in reads if self._is_served(job)]
        bodies = self._group()
        if bodies:
            (request,) = self.journal.commit(bodies)
        elif self._in_hand or self._riding:
            # All writes were refused, or repeat what took effect: that is an answer like a read.
            (request,) = self.journal.read()
        else:
            return None
        assert isinstance(request, fx.Request)
        return request

    def _is_served(self, job: Job) -> bool:
        """Return whether *job* can be done now; otherwise it waits, or fails."""
        partition = job.partition
        if partition.presence is _OWNED or partition.presence is Presence.RELEASING:
            if partition.number in self.journal.held:
                return True
        elif partition.presence is Presence.RECLAIMING:
            partition.waiting.append(job)
            return False
        job.finish(PartitionUnavailable(f"partition {partition.number} has left this node"))
        return False

    def _group(self) -> dict[int, object]:
        """Take the jobs for the next step, and return what they do in each partition."""
        # First, so that if staging fails by a bug, the jobs still end (`stop`).
        self._in_hand = taken = self._take()
        writes: dict[Served, list[WriteJob]] = {}
        bodies: dict[int, object] = {}
        for job in taken:
            if isinstance(job, WriteJob):
                writes.setdefault(job.partition, []).append(job)
            else:
                bodies[job.partition.number] = Release(job.to)
        for partition, jobs in writes.items():
            body = _staged(partition.state, jobs)
            if partition.state.due.used:  # after its writes, and by the clock of now
                body = partition.state.expired(body)
                self.expiring.add(partition)
            if body is not None:
                bodies[partition.number] = body
        return bodies

    def _take(self) -> list[WriteJob | ReleaseJob]:
        """Take as many jobs as the limits allow: at least one, whatever its size."""
        queue = self._queue
        writes_max, bytes_max = self._config.group_writes_max, self._config.group_bytes_max
        taken: list[WriteJob | ReleaseJob] = []
        numbers: set[int] = set()
        released: set[int] = set()
        count = size = 0
        while queue:
            job = queue[0]
            partition = job.partition
            if isinstance(job, ReleaseJob):
                if partition.number in numbers:
                    break  # a group has one entry for each partition
                queue.popleft()
                if self._may_release(job):
                    taken.append(job)
                    released.add(partition.number)
                continue
            if released and partition.number in released:
                break
            writes_count = len(job.writes)
            if taken:
                size += _bytes_about(job.writes)
                if count + writes_count > writes_max or size > bytes_max:
                    break
            queue.popleft()
            if (partition.presence is _OWNED and partition.number in self.journal.held) or (
                self._is_served(job)
            ):
                count += writes_count
                partition.writes_count -= writes_count
                taken.append(job)
                numbers.add(partition.number)
        return taken

    def _may_release(self, job: ReleaseJob) -> bool:
        # Also of an unwanted one: its state cannot go on, but the journal holds it. Another
        # partition may hold its number by now, if it was lost.
        partition = job.partition
        if partition.presence in _RELEASED_BY_JOB and partition.number in self.journal.held:
            return True
        if partition.presence is Presence.RECLAIMING:
            partition.waiting.append(job)
        else:
            job.finish(_gone(partition))
        return False

    # Ends of steps.

    def ended(self, fact: fx.Fact, why: StoreRefused | None = None) -> None:
        """Note the end of the step that was begun; *why* says that the store refused a group."""
        jobs, self._in_hand = self._in_hand, []
        reads, self._riding = self._riding, []
        match fact:
            case fx.Committed():
                _finish([*jobs, *reads])
            case fx.MayRead():
                _finish([*jobs, *reads])
            case fx.ReadFailed():
                _finish([*jobs, *reads], StoreUnavailable("the store does not answer"))
            case fx.NotCommitted():
                _finish(jobs, why or StoreFull("the store has no room left; nothing was written"))
                self._reads = dict.fromkeys([*reads, *self._reads])  # we are still the owner
            case fx.Fenced():
                self._fenced(fact, jobs, reads)
            case _:
                raise AssertionError(fact)

    def _fenced(self, fact: fx.Fenced, jobs: list[WriteJob | ReleaseJob], reads: list[Job]) -> None:
        if fact.outcome_open:
            for job in jobs:
                job.finish(
                    OutcomeUnknown(f"{fact.by} has taken over partition {job.partition.number}")
                )
            for read in reads:
                read.finish(_gone(read.partition))
            return
        # None of them has taken effect, and none will: they wait for the next claim.
        for job in reversed(jobs):
            if isinstance(job, WriteJob):
                job.outcomes = []
                job.partition.writes_count += len(job.writes)
            self._queue.appendleft(job)
        self._reads = dict.fromkeys([*reads, *self._reads])

    def claimed_again(self, partition: Served) -> None:
        """Go on with a partition that the journal holds again."""
        waiting, partition.waiting = partition.waiting, []
        # In their order: those that are queued came after those that had to wait.
        waiting += [job for job in self._queue if job.partition is partition]
        self._queue = deque(job for job in self._queue if job.partition is not partition)
        for job in waiting:
            if isinstance(job, WriteJob | ReleaseJob):
                self._queue.append(job)
            else:
                self._reads[job] = None

    def lost(self, partition: Served) -> None:
        """Fail the jobs that wait for a partition that does not come back."""
        waiting, partition.waiting = partition.waiting, []
        partition.writes_count = 0
        _finish(waiting, _gone(partition))

    def stop(self) -> None:
        """Fail all jobs: no step can follow. Whether the present one takes effect is unknown."""
        for job in self._in_hand:
            number = job.partition.number
            job.finish(OutcomeUnknown(f"partition {number} was stopped at its work"))
        rest: list[Job] = [*self._queue, *self._reads, *self._riding]
        self._queue.clear()
        self._in_hand, self._reads, self._riding = [], {}, []
        for each in rest:
            each.finish(_gone(each.partition))


def _finish(jobs: Iterable[Job], error: KeyspaceError | None = None) -> None:
    for job in jobs:
        job.finish(error)


def _gone(partition: Served) -> PartitionUnavailable:
    return PartitionUnavailable(f"partition {partition.number} has left this node")


def _staged(state: Staging, jobs: Sequence[WriteJob]) -> object:
    """Stage the writes of *jobs*, note their outcomes, and return the body, or None."""
    if len(jobs) == 1:  # mostly: callers write to many partitions
        body, jobs[0].outcomes = state.stage(jobs[0].writes)
        return body
    writes: list[Write | PackedWrite | WriteRun] = []
    for job in jobs:
        if type(job.writes) is WriteRun:
            writes.append(job.writes)
        else:
            writes += job.writes
    body, outcomes = state.stage(writes)
    at = 0
    for job in jobs:
        job.outcomes = outcomes[at : at + len(job.writes)]
        at += len(job.writes)
    return body


def _bytes_about(writes: Sequence[Write | PackedWrite]) -> int:
    if type(writes) is WriteRun:
        return _bytes_of_changes(writes.changes)
    size = 0  # an estimate: packing the writes only to measure them would cost more
    for write in writes:
        if isinstance(write, PackedWrite):
            size += CHANGE_BYTES * len(write.arguments)
            if write.aggregation == "put":
                size += sum(map(len, cast("Sequence[bytes]", write.arguments)))
            elif not isinstance(write.arguments, ArgumentRows):  # which are numbers
                size += sum(len(each) for each in write.arguments if isinstance(each, (str, bytes)))
            continue
        size += _bytes_of_changes(write.changes)
    return size


def _bytes_of_changes(changes: Sequence[Change]) -> int:
    size = CHANGE_BYTES * len(changes)
    for _, _, argument in changes:
        if isinstance(argument, (str, bytes)):  # a union would be made anew for each change
            size += len(argument)
    return size
