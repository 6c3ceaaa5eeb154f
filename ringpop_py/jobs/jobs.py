"""Jobs that write into one keyspace, at one node: staged, decided, and completed.

Any node takes files, decides jobs and coordinates: it asks the owners of partitions to apply what
was committed. Everything about a job is in the store, so it makes no difference which nodes are
asked, how often, or how many at the same time.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.errors import (
    BadOperation,
    JobAborted,
    KeyspaceError,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.jobs.applier import JobApplier, is_long
from ringpop_py.jobs.messages import APPLY_JOB, ApplyJobRequest, Decision, JobProgress
from ringpop_py.jobs.store import now_us, plan_of
from ringpop_py.logs import log
from ringpop_py.partition.courier import Courier
from ringpop_py.values.declared import Natural, convert, encode, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.jobs.messages import DecideRequest, FinishRequest, StageHead
    from ringpop_py.jobs.store import JobPlan, JobStore
    from ringpop_py.partition.courier import Destinations
    from ringpop_py.partition.partition import Partition
    from ringpop_py.partition.server import PartitionServer
    from ringpop_py.partition.tasks import Spawn, Worker
    from ringpop_py.partition.view import NodeView

STAGING_MAX: Final = 8
"""The most files that a node puts into the store at a time."""
STAGING_QUEUE_MAX: Final = 32
"""The most files that wait for that; more are refused, and sent again or to another node."""
SETTLE_S: Final = 10.0
"""Seconds that owners have to continue a job when they are asked."""
REPORT_S: Final = 1.0
"""After this many seconds the progress is returned, and the owners are asked in a new call."""


class Jobs:
    """See the module.

    Args:
        server: has the partitions that are at this node.
        destinations: has the owners of the others.
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
        self._courier = Courier(node, destinations, random.Random(secrets.randbits(64)))
        self._staging = trio.CapacityLimiter(STAGING_MAX)
        self._spawn = spawn

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

    async def finish(self, request: FinishRequest) -> None:
        """Put the manifest of an attempt; see `JobStore.finish`."""
        await self.worker.run(self.store.finish, request)

    async def decide(self, request: DecideRequest) -> Decision:
        """Decide the job unless it was decided before; return the decision.

        Raises:
            BadOperation: if an attempt is not finished.
        """
        job, wanted = request.job, request.wanted
        decided = await self.worker.run(self.store.decision, job)
        if decided is not None:
            return decided
        attempts = wanted.attempts or ()
        manifests = await self._applier.plans.manifests(job, attempts)
        for attempt, manifest in zip(attempts, manifests, strict=True):
            if manifest is None:
                # Perhaps because the job was decided and cleaned up just now.
                decided = await self.worker.run(self.store.decision, job)
                if decided is not None:
                    return decided
                raise BadOperation(f"attempt {attempt!r} of job {job!r} is not finished")
        # This node's clock, not the driver's: the sweep compares it with those of nodes.
        stamped = replace(wanted, decided_us=now_us())
        finished = [manifest for manifest in manifests if manifest is not None]
        # Before the decision, because this raises if the job is too large to be applied.
        plan = plan_of(self.store.keys.job(job), stamped, finished)
        decided = await self.worker.run(self.store.decide, job, stamped)
        if decided == stamped and decided.committed:
            self._applier.plans.keep(job, plan)  # it is likely to be applied next
        log.info("job-decided", keyspace=self.keyspace, job=job, committed=decided.committed)
        return decided

    async def decision(self, job: str) -> Decision | None:
        """Return the decision on *job*; None if there is none yet."""
        return await self.worker.run(self.store.decision, job)

    async def settle(self, job: str, timeout_s: float = SETTLE_S) -> JobProgress:
        """Have the owners continue the committed *job* for a while; return the progress.

        Raises:
            BadOperation: if it was not committed.
            JobAborted: if it was aborted.
            StateDamaged: if a part of it is gone, so it cannot be applied.
            StoreUnavailable: if the store does not answer.
        """
        decision = await self.decision(job)
        if decision is None:
            raise BadOperation(f"job {job!r} was not committed")
        if not decision.committed:
            raise JobAborted(f"job {job!r} was aborted")
        applied = await self.worker.run(self.store.applied, job)
        if applied is not None:
            return applied
        deadline = trio.current_time() + timeout_s
        try:
            plan = await self._applier.plans.of(job, decision.token)
            results = await self._ask_owners(job, plan, deadline)
        except StateDamaged:
            # The files of an applied job are deleted; perhaps that was just now.
            applied = await self.worker.run(self.store.applied, job)
            if applied is None:
                raise
            return applied
        progress = _progress(plan, results)
        if progress.partitions_done < progress.partitions_count:
            return progress
        done = await self.worker.run(self.store.put_applied, job, plan)
        log.info("job-applied", keyspace=self.keyspace, job=job, rows=done.rows_count)
        # In a task of its own: the driver need not wait until thousands of files are deleted.
        self._spawn(self.delete_staged, job)
        return done

    async def _ask_owners(self, job: str, plan: JobPlan, deadline: float) -> dict[int, object]:
        """Return how many of its chunks each partition has, or why that is not known."""
        counts, keys = plan.chunk_counts, self.store.keys.job(job)
        long = is_long(plan.decision)
        known = await self.worker.run(self.store.marked, keys.done) if long else set[int]()
        # Partitions that are marked as done are not asked: they may have forgotten the job.
        results: dict[int, object] = {n: count for n, count in counts.items() if n in known}
        left = [number for number in sorted(counts) if number not in known]
        asking = _JobAsking(self, job, plan.decision.token)
        begun_at, goes_on = trio.current_time(), bool(left)
        while goes_on:
            found = await self._courier.ask(asking, left, deadline)
            # Another round only after progress; otherwise the caller pauses.
            goes_on = any(found[number] != results.get(number) for number in left)
            results |= found
            left = [number for number in left if found[number] != counts[number]]
            goes_on &= not any(isinstance(found[number], KeyspaceError) for number in left)
            goes_on &= bool(left) and trio.current_time() < begun_at + REPORT_S
        new = [n for n in counts if results[n] == counts[n] and n not in known]
        if long and left:
            await self.worker.run(self.store.mark, keys.done_by, new)
        # Only now, so that the other partitions were asked, and their progress is recorded.
        damaged = [each for each in results.values() if isinstance(each, StateDamaged)]
        if damaged:
            raise damaged[0]
        return results

    async def delete_staged(self, job: str) -> None:
        """Delete the files of *job*, which is over. If that fails, a later sweep does it."""
        try:
            await self.worker.run(self.store.delete_staged, job)
        except KeyspaceError as error:
            log.warning("staged-not-deleted", keyspace=self.keyspace, job=job, text=str(error))

    # For owners.

    async def apply(self, job: str, token: str, numbers: Sequence[int]) -> list[Any]:
        """Continue with the partitions that are here; see `JobApplier.apply`."""
        try:
            return await self._applier.apply(job, token, numbers)
        except KeyspaceError as error:
            return [error] * len(numbers)


@dataclass(frozen=True, slots=True)
class _JobAsking:
    """See `ringpop_py.partition.courier.PartitionRequest`."""

    jobs: Jobs
    job: str
    token: str
    endpoint = APPLY_JOB
    changes_state = False  # a repetition changes nothing

    def encode(self, numbers: Sequence[int]) -> bytes:
        keys = self.jobs.store.keys
        return encode(
            ApplyJobRequest(keys.name, keys.generation, self.job, self.token, tuple(numbers))
        )

    def decode(self, _number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        return convert(Natural, result)

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        return await self.jobs.apply(self.job, self.token, numbers)


def _progress(plan: JobPlan, results: Mapping[int, object]) -> JobProgress:
    counts = plan.chunk_counts
    found = {number: n for number, n in results.items() if isinstance(n, int)}
    errors = [each for each in results.values() if isinstance(each, KeyspaceError)]
    return JobProgress(
        sum(found.get(number) == count for number, count in counts.items()),
        len(counts),
        sum(found.values()),
        sum(counts.values()),
        plan.rows_count,
        why=f"{type(errors[0]).__name__}: {errors[0]}" if errors else "",
    )
