"""Jobs that write into one keyspace, at one node: staged, decided, and completed.

Any node accepts files, decides jobs and coordinates: it asks the owners of partitions to apply
committed jobs. Everything about a job is in the store, so it makes no difference which nodes are
asked, how often, or how many at the same time.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import (
    BadOperation,
    JobAborted,
    KeyspaceError,
    PartitionUnavailable,
    RowsRefused,
    StateDamaged,
)
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import Natural, convert, encode
from ringpop_py.state.jobs.applier import JobApplier, is_long
from ringpop_py.state.jobs.messages import APPLY_JOB, ApplyJobRequest, Decision, JobProgress
from ringpop_py.state.jobs.record import DAY_US, REMEMBERED_DAYS, JobRecord, JobStep
from ringpop_py.state.jobs.store import now_us
from ringpop_py.state.jobs.trial import TRIAL_S, Trials
from ringpop_py.state.shares.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.jobs.applier import Partition
    from ringpop_py.state.jobs.messages import DecideRequest, StageHead
    from ringpop_py.state.jobs.store import JobStore
    from ringpop_py.state.shares.dispatcher import Destinations
    from ringpop_py.state.shares.server import PartitionServer
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.tasks import Spawn, Worker

STAGING_MAX: Final = 8
"""The most files that a node puts into the store at a time."""
STAGING_QUEUE_MAX: Final = 32
"""The most files that wait for a put; more are refused, and sent again or to another node."""
SETTLE_S: Final = 10.0
"""Seconds that owners have to continue a job when they are asked."""
JOB_S: Final = 60.0
"""The most seconds that are spent on one job without a driver at a time."""
PAUSE_S: Final = 1.0
REPORT_S: Final = 1.0
SEEN_MAX: Final = 20
"""The most jobs that a node remembers to show to people."""
STAGING, COMMITTED, ABORTED, APPLIED = "staging", "committed", "aborted", "applied"
"""After this many seconds the progress is returned, and the owners are asked in a new call."""
SWEEP_S: Final = 30.0
"""Seconds from one sweep to the next, give or take a fifth."""
RETIRED_DAYS: Final = 60
"""The days before the remembered ones that are searched, too: all nodes may have been down."""
RETIRE_EVERY: Final = 120
"""The number of sweeps between two searches for old jobs: about an hour."""


@dataclass(slots=True)
class JobCounts:
    """The work of this node for jobs since its start."""

    staged_files: int = 0
    committed: int = 0
    aborted: int = 0


@dataclass(slots=True)
class JobSeen:
    """The recent work of this node for one job, for people.

    Attributes:
        state: ``staging``, ``committed``, ``aborted`` or ``applied``.
        files: how many were staged here.
        partitions_done, partitions_count, chunks_done, chunks_count, rows_count: see `JobProgress`.
        at: the time of the last work, by the wall clock.
    """

    state: str = STAGING
    files: int = 0
    partitions_done: int = 0
    partitions_count: int = 0
    chunks_done: int = 0
    chunks_count: int = 0
    rows_count: int = 0
    at: float = 0.0


class Jobs:
    """See the module.

    Args:
        server: has the partitions that are at this node.
        destinations: has the owners of the others.

    Attributes:
        counts: the work done here.
        seen: the last jobs that this node had a part in, by name; the newest is the last one.
    """

    def __init__(
        self,
        node: NodeView,
        store: JobStore,
        worker: Worker,
        *,
        server: PartitionServer[Partition],
        destinations: Destinations,
        spawn: Spawn,
    ) -> None:
        self.store = store
        self.worker = worker
        self.node = node
        self._applier = JobApplier(store, worker, server)
        self._rng = random.Random(secrets.randbits(64))
        self._dispatcher = Dispatcher(node, destinations, self._rng)
        self.trials = Trials(store, worker, server, self._dispatcher)
        self._staging = trio.CapacityLimiter(STAGING_MAX)
        self._spawn = spawn
        self.counts = JobCounts()
        self.seen: dict[str, JobSeen] = {}
        self._sweeps_count = 0

    @property
    def keyspace(self) -> str:
        """The name of the keyspace."""
        return self.store.keys.name

    # For any node.

    async def stage(self, head: StageHead, file: bytes) -> None:
        """Put *file* into the store; see `JobStore.stage`.

        Raises:
            PartitionUnavailable: if too many files wait here.
        """
        # Waiting files are in memory, up to 4 MiB each.
        if self._staging.statistics().tasks_waiting >= STAGING_QUEUE_MAX:
            raise PartitionUnavailable(f"too many files wait at {self.node.name}; send it again")
        async with self._staging:
            await self.worker.run(self.store.stage, head, file)
        self.counts.staged_files += 1
        self._see(head.job).files += 1

    async def decide(self, request: DecideRequest, timeout_s: float = TRIAL_S) -> Decision:
        """Decide the job unless it was decided before; see `JobStore.commit_or_abort`.

        Args:
            timeout_s: the most seconds in which owners are asked whether any row takes effect.

        Raises:
            RowsRefused: if none would; then the job is not committed.
        """
        job, wanted = request.job, request.wanted
        if wanted.attempts and await self.decision(job) is None:
            until = trio.current_time() + timeout_s
            refused = await self.trials.refusals(request, wanted.attempts, until)
            if refused is not None:
                raise RowsRefused(f"job {job!r} was not committed, as all of its {refused}")
        decided = await self.worker.run(self.store.commit_or_abort, job, wanted)
        self._see(job).state = COMMITTED if decided.committed else ABORTED
        if decided.token == wanted.token:
            self.counts.committed += decided.committed
            self.counts.aborted += not decided.committed
            log.info("job-decided", keyspace=self.keyspace, job=job, committed=decided.committed)
        return decided

    async def decision(self, job: str) -> Decision | None:
        """Return the decision on *job*; None if there is none yet."""
        return await self.worker.run(self.store.decision, job)

    async def schemas(self, keep: str) -> list[str]:
        """Keep a schema, unless it is empty; return all, see `JobStore.schemas`."""
        if keep:
            await self.worker.run(self.store.keep_schema, keep)
        return await self.worker.run(self.store.schemas)

    async def settle(self, job: str, timeout_s: float = SETTLE_S) -> JobProgress:
        """Have the owners continue the committed *job* for a while; return the progress.

        Raises:
            BadOperation: if it was not committed.
            JobAborted: if it was aborted.
            StateDamaged: if a part of it is gone, so it cannot be applied.
            StoreUnavailable: if the store does not answer.
        """
        record = await self.worker.run(self.store.read, JobRecord(job, asked=True))
        if record.decision is None:
            raise BadOperation(f"job {job!r} was not committed")
        if not record.decision.committed:
            raise JobAborted(f"job {job!r} was aborted")
        if record.result is None and await self._follow(record, timeout_s):
            # In a task of its own: the driver need not wait until thousands of files are deleted.
            self._spawn(self.see_to, JobRecord(job, staged_ms=0))
        return record.progress

    async def see_to(self, record: JobRecord) -> None:
        """Take the steps of a job, for a while. Log an error that prevents that."""
        event, why, until = "", "", trio.current_time() + JOB_S
        try:
            await self.worker.run(self.store.read, record)
            while not event and not await self._follow(record):
                if trio.current_time() >= until:
                    done, event = record.progress, "job-under-way"
                    why = f"{done.partitions_done} of {done.partitions_count}: {done.why}"
                await trio.sleep(PAUSE_S)
        except KeyspaceError as error:  # other jobs may be sound
            event, why = "job-not-settled", f"{type(error).__name__}: {error}"
        if event:
            log.warning(event, keyspace=self.keyspace, job=record.name, text=why)

    async def _follow(self, record: JobRecord, timeout_s: float = SETTLE_S) -> bool:
        """Take the next steps of a job. Return False if partitions have not applied it yet."""
        while True:
            steps = await self.worker.run(self.store.follow, record)
            about = {"keyspace": self.keyspace, "job": record.name}
            if JobStep.ABORT in steps:
                log.warning("job-abandoned", **about)
            if JobStep.RECORD in steps:
                log.info("job-applied", **about, rows=record.progress.rows_count)
            if steps[-1] is not JobStep.APPLY:
                self._see_progress(record)
                return True
            try:
                await self._ask_owners(record, trio.current_time() + timeout_s)
            except StateDamaged:
                # The files of an applied job are deleted; perhaps that was just now.
                record.result = await self.worker.run(self.store.applied, record.name)
                if record.result is None:
                    raise
            self._see_progress(record)
            if record.result is None and record.left:
                return False

    def _see(self, job: str) -> JobSeen:
        """Return the notes about *job*, and make it the newest."""
        seen = self.seen[job] = self.seen.pop(job, JobSeen())
        seen.at = now_us() / 1e6
        if len(self.seen) > SEEN_MAX:
            del self.seen[next(iter(self.seen))]
        return seen

    def _see_progress(self, record: JobRecord) -> None:
        if record.plan is None and record.result is None:  # it was not committed
            return
        seen, done = self._see(record.name), record.progress
        seen.state = APPLIED if record.result is not None else COMMITTED
        seen.partitions_done, seen.partitions_count = done.partitions_done, done.partitions_count
        seen.chunks_done, seen.chunks_count = done.chunks_done, done.chunks_count
        seen.rows_count = done.rows_count

    async def _ask_owners(self, record: JobRecord, deadline: float) -> None:
        """Find out how many of its chunks each partition has, or the error that hides this."""
        job, decision = record.name, record.decision
        assert decision is not None
        keys, long, known = self.store.keys.job(job), is_long(decision), set[int]()
        record.plan = plan = await self.worker.run(self.store.plan, job, decision.token)
        if long:
            # Partitions that are marked as done are not asked: they may have forgotten the job.
            known = await self.worker.run(self.store.marked, keys.done)
            record.found |= {n: count for n, count in plan.chunk_counts.items() if n in known}
        asking = _JobAsking(self, job, decision.token)
        begun_at, goes_on = trio.current_time(), bool(record.left)
        while goes_on:
            found = await self._dispatcher.ask(asking, record.left, deadline)
            goes_on = record.heard(found) and trio.current_time() < begun_at + REPORT_S
        left = set(record.left)
        if long and left:
            done = [n for n in plan.chunk_counts if n not in known and n not in left]
            await self.worker.run(self.store.mark, keys.done_by, done)
        # Only now, so that the other partitions were asked, and their progress is recorded.
        damaged = [each for each in record.found.values() if isinstance(each, StateDamaged)]
        if damaged:
            raise damaged[0]

    # For the node that sweeps: one at a time, though two would do no harm.

    async def run_sweeps(self, is_ours: Callable[[], bool]) -> None:
        """Sweep from time to time if *is_ours* returns that this node should, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S * self._rng.uniform(0.8, 1.2))
            if is_ours():
                try:
                    await self.sweep()
                except KeyspaceError as error:
                    log.warning("jobs-not-swept", keyspace=self.keyspace, text=str(error))

    async def sweep(self) -> None:
        """Look at all jobs once: their drivers may be gone. Raises StoreUnavailable."""
        staged = await self.worker.run(self.store.staged)
        for job, newest_ms in sorted(staged.items()):
            await self.see_to(JobRecord(job, staged_ms=newest_ms))
        # Also in the first sweep: a node that is restarted often would otherwise never do it.
        if self._sweeps_count % RETIRE_EVERY == 0:
            last = now_us() // DAY_US - REMEMBERED_DAYS
            for day in range(last - RETIRED_DAYS, last):
                await self.worker.run(self.store.retire, day, staged)
        self._sweeps_count += 1

    # For owners.

    async def apply(self, job: str, token: str, numbers: Sequence[int]) -> list[Any]:
        """Continue with the partitions that are here; see `JobApplier.apply`."""
        try:
            return await self._applier.apply(job, token, numbers)
        except KeyspaceError as error:
            return [error] * len(numbers)


@dataclass(frozen=True, slots=True)
class _JobAsking:
    """See `ringpop_py.state.shares.dispatcher.MemberRequest`."""

    jobs: Jobs
    job: str
    token: str
    endpoint = APPLY_JOB
    changes_state = False  # a repetition changes nothing
    kind = ""

    def size(self, _number: int) -> int:
        return 1

    def encode(self, numbers: Sequence[int]) -> bytes:
        keys = self.jobs.store.keys
        return encode(
            ApplyJobRequest(keys.name, keys.generation, self.job, self.token, tuple(numbers))
        )

    def decode(self, _number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        return convert(Natural, result)

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        return await self.jobs.apply(self.job, self.token, numbers)
