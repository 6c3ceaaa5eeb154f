"""Swarms: many random plans on all cores, and which invariants broke in which of them.

Each core has a worker process that runs one seed after another. If a worker dies or hangs, only
that seed is lost: the seed is reported, and a new worker continues with the next one.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from ringpop_sim.checks import Broken
from ringpop_sim.runs.outcome import RunOutcome, outcome_of
from ringpop_sim.runs.random_plans import FAULTS_DEFAULT, NODES_DEFAULT, random_plan, with_expiry
from ringpop_sim.runs.run import whole_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from ringpop_py.state.placement.definition import Mode
    from ringpop_sim.plans.plan import Plan

SEED_S_MAX: Final = 120.0
"""A run that takes longer, in seconds, is ended and counts as a failure of its worker."""
WORKER: Final = "worker"
"""The name of the invariant that a run ends in time, and its process survives it."""
FIRST_SEEDS: Final = 5
# A forked worker would keep the pipes of the others open, and their ends would go unnoticed.
_CONTEXT: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters that all random plans of a swarm have in common."""

    nodes: int = NODES_DEFAULT
    faults: int = FAULTS_DEFAULT
    keyspaces: bool = False
    partitions: int | None = None
    mode: Mode | None = None
    expiring: bool = False

    def check(self) -> None:
        """Raise PlanError if such plans cannot be run here: before processes begin with it."""
        if self.keyspaces:
            whole_run()

    def plan(self, seed: int) -> Plan:
        """Return the plan of *seed*."""
        plan = random_plan(seed, self.nodes, self.faults, keyspaces=self.keyspaces)
        if plan.keyspace is None:
            return plan
        keyspace = plan.keyspace
        if self.partitions is not None:
            keyspace = replace(keyspace, partitions=self.partitions)
        if self.mode == "memory":  # nothing is recorded without a store
            keyspace = replace(keyspace, mode="memory", files=0, dataflow=False)
            keyspace = replace(keyspace, strategy="balanced", automatic=True)
        elif self.mode is not None:
            keyspace = replace(keyspace, mode=self.mode)
        plan = replace(plan, keyspace=keyspace)
        return with_expiry(plan, seed) if self.expiring else plan


@dataclass(slots=True)
class SwarmSummary:
    """The results of a swarm so far.

    Attributes:
        failures: the outcomes of the first seeds that broke an invariant.
        broken: how many plans broke each invariant; *first* has the first seeds that did.
        kinds: how many plans had a fault of each kind.
    """

    plan_count: int = 0
    event_count: int = 0
    virtual_s: float = 0.0
    wall_s: float = 0.0
    core_count: int = 0
    converged_count: int = 0
    failed_count: int = 0
    failures: list[RunOutcome] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[int]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether no invariant broke."""
        return not self.failed_count

    def add(self, outcome: RunOutcome) -> None:
        """Add *outcome* to the counts."""
        self.plan_count += 1
        self.event_count += outcome.events
        self.virtual_s += outcome.virtual_s
        self.converged_count += outcome.converged
        self.kinds.update(outcome.kinds)
        if not outcome.broken:
            return
        self.failed_count += 1
        news = False
        for invariant in outcome.invariants:
            self.broken[invariant] += 1
            seeds = self.first.setdefault(invariant, [])
            if len(seeds) < FIRST_SEEDS:
                seeds.append(outcome.seed)
                news = True
        if news:
            self.failures.append(outcome)

    def as_json(self) -> dict[str, Any]:
        """Return the summary as one JSON object for programs."""
        wall_s = self.wall_s or 1e-9
        return {
            "ok": self.ok,
            "plans": self.plan_count,
            "failed": self.failed_count,
            "converged": self.converged_count,
            "events": self.event_count,
            "virtual_hours": round(self.virtual_s / 3600, 3),
            "wall_s": round(self.wall_s, 3),
            "cores": self.core_count,
            "plans_per_s": round(self.plan_count / wall_s, 2),
            "events_per_s": round(self.event_count / wall_s),
            "kinds": dict(self.kinds.most_common()),
            "broken": {
                name: {"plans": count, "first_seeds": self.first[name]}
                for name, count in self.broken.most_common()
            },
        }


@dataclass(slots=True, eq=False)
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection[Any, Any]
    seed: int = 0
    asked_at: float = 0.0


def swarm(
    first_seed: int = 0,
    seeds: int | None = None,
    *,
    for_s: float | None = None,
    cores: int | None = None,
    shape: Shape | None = None,
    progress: Callable[[SwarmSummary], None] | None = None,
) -> SwarmSummary:
    """Run the random plans of *seeds* seeds from *first_seed* on; without *seeds*, for *for_s*.

    *progress* is called after each plan.

    Raises:
        PlanError: what the plans need is not installed.
    """
    shape = shape or Shape()
    shape.check()
    assert seeds is not None or for_s is not None, "a swarm needs a number of seeds or a time"
    cores = cores or _core_count()
    return _Swarm(first_seed, seeds, for_s, cores, shape, progress).run()


def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Swarm:
    def __init__(
        self,
        first_seed: int,
        seeds: int | None,
        for_s: float | None,
        cores: int,
        shape: Shape,
        progress: Callable[[SwarmSummary], None] | None,
    ) -> None:
        self._seeds = self._counted(first_seed, seeds, for_s)
        self._shape = shape
        self._progress = progress
        self._core_count = cores if seeds is None else max(1, min(cores, seeds))
        self._workers: list[_Worker] = []
        self._summary = SwarmSummary(core_count=self._core_count)
        self._began = time.monotonic()

    def _counted(self, first: int, count: int | None, for_s: float | None) -> Iterator[int]:
        seed = first
        while count is None or seed < first + count:
            if for_s is not None and time.monotonic() - self._began > for_s:
                return
            yield seed
            seed += 1

    def run(self) -> SwarmSummary:
        """Run all seeds, and end the workers on the way out, also after an exception."""
        try:
            self._workers = [self._hired() for _ in range(self._core_count)]
            for worker in list(self._workers):
                self._ask(worker)  # removes a worker for which there is no seed
            while self._workers:
                self._hear()
        finally:
            for worker in self._workers:
                self._dismiss(worker)
        return self._summary

    def _hired(self) -> _Worker:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_work, args=(theirs, self._shape), daemon=True)
        process.start()
        theirs.close()  # so that the pipe ends when the worker does
        return _Worker(process, ours)

    def _ask(self, worker: _Worker) -> None:
        """Send *worker* the next seed, or dismiss it if there is none."""
        seed = next(self._seeds, None)
        if seed is None:
            self._workers.remove(worker)
            self._dismiss(worker)
            return
        worker.seed, worker.asked_at = seed, time.monotonic()
        worker.pipe.send(seed)

    def _hear(self) -> None:
        """Receive the results of workers, and end those that were silent for too long."""
        # Not for ever: if all workers hang, the clock still has to be looked at.
        heard = wait([worker.pipe for worker in self._workers], timeout=1.0)
        for worker in list(self._workers):
            if worker.pipe in heard:
                self._take(worker)
            elif time.monotonic() - worker.asked_at > SEED_S_MAX:
                worker.process.kill()
                self._lose(worker, f"the run took longer than {SEED_S_MAX:.0f} s")

    def _take(self, worker: _Worker) -> None:
        try:
            outcome = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._lose(worker, f"its process ended with exit code {worker.process.exitcode}")
            return
        self._count(outcome)
        self._ask(worker)

    def _lose(self, worker: _Worker, why: str) -> None:
        self._workers.remove(worker)
        self._dismiss(worker)
        broken = (Broken(WORKER, 0, why),)
        # An empty digest, because the last one is that of the run.
        self._count(RunOutcome(worker.seed, ("",), 0, 0.0, 0.0, converged=False, broken=broken))
        another = self._hired()
        self._workers.append(another)
        self._ask(another)

    def _count(self, outcome: RunOutcome) -> None:
        self._summary.add(outcome)
        self._summary.wall_s = time.monotonic() - self._began
        if self._progress is not None:
            self._progress(self._summary)

    @staticmethod
    def _dismiss(worker: _Worker) -> None:
        worker.pipe.close()  # which ends the worker's loop
        worker.process.join(timeout=1.0)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _work(pipe: Connection[Any, Any], shape: Shape) -> None:
    """Run, in a worker, the seeds that arrive on *pipe* until there are no more."""
    while True:
        try:
            seed = pipe.recv()
        # Ctrl-C reaches all processes of a terminal. Only the parent reports it.
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            pipe.send(outcome_of(shape.plan(seed), seed))
        except KeyboardInterrupt:
            return
