"""Committed jobs at the owners of partitions: chunk by chunk into their logs, each once.

How far a partition is, its own state knows: the chunks of a job are a series of writes. So whoever
owns it goes on where the last owner has stopped.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.errors import (
    BadOperation,
    JobAborted,
    KeyspaceError,
    OperationTooOld,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.jobs.loader import loaded_from
from ringpop_py.jobs.messages import Refusals, RowRefusal
from ringpop_py.jobs.store import plan_of
from ringpop_py.keyed.sessions import JOBS_MAX
from ringpop_py.partition.partition import Partition, Presence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from ringpop_py.jobs.loader import Loaded
    from ringpop_py.jobs.messages import AttemptManifest, Decision
    from ringpop_py.jobs.store import JobPlan, JobStore, PlannedFile
    from ringpop_py.partition.server import PartitionServer
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.values.operations import PackedWrite

PLANS_MAX: Final = 4
"""That a node keeps of one keyspace; others are read again."""
READS_MAX: Final = 8
"""Manifests that are read at a time, and files, if the store is slow."""
LOADS_MAX: Final = 2
"""Files that are read at a time from a quick store: what takes time is the interpreter."""
GROUP_BYTES_MAX: Final = 1 << 18
"""Of a commit. Larger ones are not faster, and keep everybody else at the node waiting."""
WRITES_MAX: Final = 4
"""Partitions that commit at a time; what they evaluate, all others at the node wait for."""
WRITES_SMALL_MAX: Final = 16
"""The same where little is evaluated, or the store is slow: it is the store which is waited for."""
SMALL_BYTES: Final = 1 << 14
"""Of a partition in a window, on average."""
WINDOW_BYTES: Final = 16 << 20
"""Of files that are in memory at a time."""
WINDOW_FIRST_BYTES: Final = 1 << 20
"""The same at first; each further window may have twice as much. Where a node is so slow that not
all of a large one is loaded before its time is over, nothing of it would ever be written."""
SLICE_S: Final = 1.5
"""After so long it is said how far it is."""
SLICE_S_MAX: Final = 4.0
"""After so long that is said although the store does not answer."""
LONG_US: Final = 60_000_000
"""Of jobs that take longer it is kept in the store which partitions have begun, and are done: so
many others may come meanwhile that the partitions forget it."""
REDUCTIONS_MAX: Final = 10
"""How often a chunk is tried without the rows that were refused the last time."""


class Plans:
    """What committed jobs consist of, read from the store once."""

    def __init__(self, jobs: JobStore, worker: Worker) -> None:
        self._jobs = jobs
        self._worker = worker
        self._plans: OrderedDict[str, JobPlan] = OrderedDict()
        self._lock = trio.Lock()

    async def of(self, job: str, token: str) -> JobPlan:
        """The plan of *job*, which was decided with *token*.

        Raises:
            BadOperation: it was not committed.
            JobAborted: it was aborted.
            StateDamaged: something that belongs to it is gone, or cannot be read.
            StoreUnavailable: nobody knows.
        """
        async with self._lock:
            plan = self._plans.get(job)
            if plan is None or plan.decision.token != token:
                plan = await self._read(job, token)
            self.keep(job, plan)
            return plan

    def keep(self, job: str, plan: JobPlan) -> None:
        """Know *plan*, which was decided, for a while."""
        self._plans[job] = plan
        self._plans.move_to_end(job)
        if len(self._plans) > PLANS_MAX:
            self._plans.popitem(last=False)

    async def _read(self, job: str, token: str) -> JobPlan:
        decision = await self._worker.run(self._jobs.decision, job)
        if decision is None or decision.token != token:
            raise BadOperation(f"job {job!r} was not committed")
        if decision.attempts is None:
            raise JobAborted(f"job {job!r} was aborted")
        manifests = await self.manifests(job, decision.attempts)
        missing = [a for a, found in zip(decision.attempts, manifests, strict=True) if not found]
        if missing:
            raise StateDamaged(f"what attempt {missing[0]!r} of job {job!r} has staged is gone")
        return plan_of(self._jobs.keys.job(job), decision, [each for each in manifests if each])

    async def manifests(self, job: str, attempts: Sequence[str]) -> list[AttemptManifest | None]:
        """What each of *attempts* has staged; None for one that is not finished."""
        found: list[AttemptManifest | None] = [None] * len(attempts)

        async def read(place: int) -> None:
            found[place] = await self._worker.run(self._jobs.manifest, job, attempts[place])

        await in_parallel(read, len(attempts), READS_MAX)
        return found


class JobApplier:
    """Applies jobs to the partitions of one keyspace that are at this node; one job at a time."""

    def __init__(self, jobs: JobStore, worker: Worker, server: PartitionServer[Partition]) -> None:
        self.plans = Plans(jobs, worker)
        self._jobs = jobs
        self._worker = worker
        self._server = server
        self.is_quick = jobs.store.quick
        self._lock = trio.Lock()

    async def apply(self, job: str, token: str, numbers: Sequence[int]) -> list[Any]:
        """Go on with *job* for a while: how many chunks each partition has, or a `PartResult`.

        Raises: as `Plans.of`.
        """
        plan = await self.plans.of(job, token)
        found = await self._server.each(numbers, _itself)
        both = zip(numbers, found, strict=True)
        here = {number: each for number, each in both if isinstance(each, Partition)}
        run, long, marked = _Run(self, job, plan, here), is_long(plan.decision), set[int]()
        if run.left:
            with trio.move_on_after(SLICE_S_MAX):
                async with self._lock:
                    until = trio.current_time() + SLICE_S
                    if long:
                        marked = await self._worker.run(self._jobs.marked_begun, job)
                        run.refuse_forgotten(marked)
                    await run.go_on(until)
            new = [number for number in run.begun(long=long) if number not in marked]
            if new:
                await self._worker.run(self._jobs.mark_begun, job, new)
        return [
            run.result(number) if number in here else _of_partition(result)
            for number, result in zip(numbers, found, strict=True)
        ]

    # What a run is made of.

    async def load(
        self, plan: JobPlan, file: PlannedFile, wanted: Mapping[int, int]
    ) -> dict[int, list[Loaded]]:
        """The writes in *file* for the partitions *wanted*, from the chunks that they need on."""
        return await self._worker.run(loaded_from, self._jobs, plan, file, dict(wanted))

    async def write_all(self, job: str, partition: Partition, loaded: Sequence[Loaded]) -> None:
        """Commit all of it, in order. Raises KeyspaceError where that cannot go on."""
        for each in loaded:
            if each.unfit:
                await self._say_refused(job, partition, each.write, each.unfit)
        left = deque(loaded)
        while left:
            group = [left.popleft()]
            size_bytes = group[0].size_bytes
            while left and size_bytes + left[0].size_bytes <= GROUP_BYTES_MAX:
                size_bytes += left[0].size_bytes
                group.append(left.popleft())
            outcomes = await partition.write([each.write for each in group])
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, KeyspaceError):  # and so are all after it
                    left.extendleft(reversed(group[place + 1 :]))
                    await self._write_reduced(job, partition, group[place].write, outcome)
                    break

    async def _write_reduced(
        self, job: str, partition: Partition, write: PackedWrite, error: KeyspaceError
    ) -> None:
        """Commit *write* without the rows that the keyspace refuses; say first which they are."""
        for _ in range(REDUCTIONS_MAX):
            if isinstance(error, OperationTooOld):
                raise error
            refused = await partition.read(lambda state: state.refusals(write))
            some = [RowRefusal.of(write.keys[place], why) for place, why in refused.items()]
            if some:
                await self._say_refused(job, partition, write, some)
            rows = zip(write.keys, write.arguments, strict=True)
            kept = [row for place, row in enumerate(rows) if place not in refused]
            reduced = write._replace(keys=[k for k, _ in kept], arguments=[v for _, v in kept])
            (outcome,) = await partition.write([reduced])
            if not isinstance(outcome, KeyspaceError):
                return
            error = outcome
        raise PartitionUnavailable(
            f"partition {partition.number} refuses other rows each time: {error}"
        )

    async def _say_refused(
        self, job: str, partition: Partition, write: PackedWrite, rows: Sequence[RowRefusal]
    ) -> None:
        refusals = Refusals(len(rows), tuple(rows))
        put = self._jobs.put_refusals
        await self._worker.run(put, job, partition.number, write.id.sequence, refusals)


class _Run:
    """One job, applied for a while to the partitions *here*."""

    def __init__(
        self, applier: JobApplier, job: str, plan: JobPlan, here: Mapping[int, Partition]
    ) -> None:
        self._applier = applier
        self._job = job
        self._plan = plan
        self._here = here
        self._errors: dict[int, KeyspaceError] = {}

    @property
    def left(self) -> dict[int, int]:
        """How many chunks those partitions have that need more and can have it."""
        counts = {number: self._count(number) for number in self._here}
        return {
            number: count
            for number, count in counts.items()
            if count < self._plan.chunk_counts.get(number, 0) and number not in self._errors
        }

    def _count(self, number: int) -> int:
        return self._here[number].state.series_count(self._plan.decision.source)

    def begun(self, *, long: bool) -> list[int]:
        """Partitions that have a part of it; unless it is *long*, those that are stuck with it."""
        totals = self._plan.chunk_counts
        begun = [n for n in self._here if 0 < self._count(n) < totals.get(n, 0)]
        stuck = [n for n in begun if isinstance(self._errors.get(n), StateDamaged)]
        return begun if long else stuck

    def refuse_forgotten(self, begun: Collection[int]) -> None:
        """Leave those alone that have *begun*, and would do so again."""
        for number in self.left:
            if number in begun and not self._count(number):
                message = (
                    f"partition {number} has a part of job {self._job!r}, and does not know which:"
                    f" {JOBS_MAX} later jobs were applied to it"
                )
                self._errors[number] = StateDamaged(message)

    def result(self, number: int) -> int | KeyspaceError:
        """How many chunks a partition has, or why it has no more."""
        if self._here[number].presence is not Presence.ONLINE:
            return PartitionUnavailable(f"partition {number} has left this node")
        count = self._count(number)
        is_done = count >= self._plan.chunk_counts.get(number, 0)
        return count if is_done else self._errors.get(number, count)

    async def go_on(self, until: float) -> None:
        """Apply window after window, until all is applied or time is over."""
        first, room_bytes = 0, WINDOW_FIRST_BYTES
        while self.left and trio.current_time() < until:
            window, first = self._next_window(first, room_bytes)
            if not window:
                return
            await self._apply(window)
            room_bytes = min(2 * room_bytes, WINDOW_BYTES)

    def _next_window(self, first: int, room_bytes: int) -> tuple[list[PlannedFile], int]:
        """Files from the place *first* on that are needed, and where the next window begins."""
        left, files = self.left, self._plan.files
        window: list[PlannedFile] = []
        size_bytes = 0
        while first < len(files):
            file = files[first]
            if any(
                number in file.places and count < sum(file.places[number])
                for number, count in left.items()
            ):
                if window and size_bytes + file.size_bytes > room_bytes:
                    break
                window.append(file)
                size_bytes += file.size_bytes
            first += 1
        return window, first

    async def _apply(self, window: Sequence[PlannedFile]) -> None:
        left = self.left
        loaded: list[dict[int, list[Loaded]]] = [{}] * len(window)

        async def load(place: int) -> None:
            try:
                loaded[place] = await self._applier.load(self._plan, window[place], left)
            except KeyspaceError as error:
                self._errors |= dict.fromkeys(window[place].places, error)

        await in_parallel(load, len(window), LOADS_MAX if self._applier.is_quick else READS_MAX)
        left = self.left
        size_bytes = sum(file.size_bytes for file in window)
        is_small = not self._applier.is_quick or size_bytes < SMALL_BYTES * len(left)
        limiter = trio.CapacityLimiter(WRITES_SMALL_MAX if is_small else WRITES_MAX)

        async def write(number: int) -> None:
            several = [each for found in loaded for each in found.get(number, ())]
            async with limiter:
                try:
                    await self._applier.write_all(self._job, self._here[number], several)
                except KeyspaceError as error:
                    self._errors[number] = error

        async with trio.open_nursery() as nursery:
            for number in left:
                nursery.start_soon(write, number)


def is_long(decision: Decision) -> bool:
    """Whether the job is under way for so long that more is kept of it."""
    return time.time_ns() // 1_000 - decision.decided_us > LONG_US


def _of_partition(result: object) -> object:
    """*result* of a partition that is not here: its damage does not concern the waiting job."""
    return PartitionUnavailable(str(result)) if isinstance(result, StateDamaged) else result


async def _itself(partition: Partition) -> object:
    await trio.lowlevel.checkpoint()
    return partition


async def in_parallel(one: Callable[[int], Awaitable[None]], count: int, at_once_max: int) -> None:
    """Do *one* for each place below *count*, a few at a time. Raises the first error."""
    limiter = trio.CapacityLimiter(at_once_max)
    failed: list[KeyspaceError] = []

    async def guarded(place: int) -> None:
        async with limiter:
            if failed:
                return
            try:
                await one(place)
            except KeyspaceError as error:
                failed.append(error)

    async with trio.open_nursery() as nursery:
        for place in range(count):
            nursery.start_soon(guarded, place)
    if failed:
        raise failed[0]
