"""Jobs whose drivers are gone: committed ones are applied, others are aborted.

One node does this at a time: of those that have the store, the owner of a key that stands for the
sweep. Two nodes would do no harm.
"""

from __future__ import annotations

import random
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.errors import KeyspaceError
from ringpop_py.jobs.messages import Decision
from ringpop_py.jobs.store import DAY_US, now_us
from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.jobs.jobs import Jobs

SWEEP_S: Final = 30.0
"""Seconds from one sweep to the next, give or take a fifth."""
DRIVER_US: Final = 15_000_000
"""For this long after the decision the driver has the job applied; then the sweep does."""
JOB_S: Final = 60.0
"""The most seconds for one job in one sweep."""
PAUSE_S: Final = 1.0
ABANDONED_US: Final = DAY_US
"""A job that staged nothing for this long, and is not decided, is aborted."""
REMEMBERED_DAYS: Final = 7
"""A job's name is remembered for at least this long (up to a day more: whole days are counted)."""
ABORTED_DAYS: Final = 30
"""The same for an aborted job: a driver that has seen the name aborted may be about to write its
rows under a successor. Once it has, the name is remembered as long as the successor."""
RETIRED_DAYS: Final = 60
"""So many days before the remembered ones are looked at: no node may have run for a while."""
RETIRE_EVERY: Final = 120
"""Sweeps from one look at old jobs to the next: about an hour."""


class JobSweep:
    """Looks after the jobs of one keyspace."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._rng = random.Random(secrets.randbits(64))
        self._count = 0

    async def run(self, is_ours: Callable[[], bool]) -> None:
        """Sweep from time to time if *is_ours* returns that this node should, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S * self._rng.uniform(0.8, 1.2))
            if not is_ours():
                continue
            try:
                await self.sweep()
            except KeyspaceError as error:
                log.warning("jobs-not-swept", keyspace=self._jobs.keyspace, text=str(error))

    async def sweep(self) -> None:
        """Look at all jobs once. Raises StoreUnavailable."""
        store, worker = self._jobs.store, self._jobs.worker
        for job, newest_ms in sorted((await worker.run(store.staged)).items()):
            try:
                await self._see_to(job, newest_ms)
            except KeyspaceError as error:
                text = f"{type(error).__name__}: {error}"  # the next job may be sound
                log.warning("job-not-settled", keyspace=self._jobs.keyspace, job=job, text=text)
        # Also in the first sweep: a node that is restarted often would otherwise never do it.
        if self._count % RETIRE_EVERY == 0:
            last = now_us() // DAY_US - REMEMBERED_DAYS - 1
            for day in range(last - RETIRED_DAYS, last + 1):
                keep_aborted = day > last + REMEMBERED_DAYS - ABORTED_DAYS
                await worker.run(partial(store.retire, day, keep_aborted=keep_aborted))
        self._count += 1

    async def _see_to(self, job: str, newest_ms: int) -> None:
        decision = await self._jobs.decision(job)
        if decision is None:
            if not _is_long_ago(newest_ms):
                return
            # Only now, as this reads each manifest.
            if not _is_long_ago(await self._jobs.worker.run(self._jobs.store.finished_ms, job)):
                return
            wanted = Decision(None, secrets.token_hex(16), now_us())
            decision = await self._jobs.worker.run(self._jobs.store.decide, job, wanted)
            log.warning("job-abandoned", keyspace=self._jobs.keyspace, job=job)
        if not decision.committed:
            await self._jobs.delete_staged(job)
        elif now_us() - decision.decided_us > DRIVER_US:
            await self._settle(job)

    async def _settle(self, job: str) -> None:
        until = trio.current_time() + JOB_S
        while trio.current_time() < until:
            progress = await self._jobs.settle(job)
            if progress.applied:
                # Once more: the node that recorded it may have died before it did this.
                await self._jobs.delete_staged(job)
                return
            await trio.sleep(PAUSE_S)
        text = f"{progress.partitions_done} of {progress.partitions_count}: {progress.why}"
        log.warning("job-under-way", keyspace=self._jobs.keyspace, job=job, text=text)


def _is_long_ago(time_ms: int) -> bool:
    return now_us() - time_ms * 1_000 > ABANDONED_US
