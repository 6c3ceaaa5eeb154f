"""Swarms: many random plans on all cores, and which invariants broke in which of them.

Each core has a worker process that runs one seed after another. If a worker dies or hangs, only
that seed is lost: the seed is reported, and a new worker continues with the next one.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from ringpop_sim.checks import Broken
from ringpop_sim.runs.random_plans import FAULTS_DEFAULT, NODES_DEFAULT, random_plan, with_expiry
from ringpop_sim.runs.run import Result, run, whole_run

if TYPE_CHECKING:
    from collections.abc import Callable
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
            keyspace = replace(keyspace, mode="memory", files=0, dataflow=False, watchers=0)
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
    failures: list[Result] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[int]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether no invariant broke."""
        return not self.failed_count

    def add(self, outcome: Result) -> None:
        """Add *outcome* to the counts."""
        self.plan_count += 1
        self.event_count += outcome.events
        self.virtual_s += outcome.virtual_s
        self.converged_count += outcome.converged_s is not None
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


def swarm(
    first_seed: int = 0,
    seeds: int | None = None,
    *,
    for_s: float | None = None,
    cores: int | None = None,
    shape: Shape | None = None,
    progress: Callable[[SwarmSummary], None] = lambda _: None,
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
    cores = cores if seeds is None else max(1, min(cores, seeds))
    began = time.monotonic()
    left = count(first_seed) if seeds is None else iter(range(first_seed, first_seed + seeds))
    if for_s is not None:
        left = takewhile(lambda _: time.monotonic() - began <= for_s, left)
    summary = SwarmSummary(core_count=cores)
    workers = [_Worker(shape) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as threads:
        try:
            first = zip(workers, left, strict=False)
            running = {threads.submit(worker.run, seed): worker for worker, seed in first}
            while running:
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    worker = running.pop(ended)
                    summary.add(ended.result())
                    summary.wall_s = time.monotonic() - began
                    progress(summary)
                    for seed in islice(left, 1):
                        running[threads.submit(worker.run, seed)] = worker
        finally:  # also after an exception
            for worker in workers:
                worker.dismiss()
    return summary


def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A process that runs seeds, and another one after it has died or hung."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._dismissed = False
        self._begin()

    def _begin(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, self._shape), daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe ends when the process does

    def run(self, seed: int) -> Result:
        """Return the result of *seed*, in a thread of its own."""
        self._pipe.send(seed)
        why = f"the run took longer than {SEED_S_MAX:.0f} s"
        try:
            if self._pipe.poll(SEED_S_MAX):
                result: Result = self._pipe.recv()
                return result
        except (EOFError, OSError):
            self._process.join()
            why = f"its process ended with exit code {self._process.exitcode}"
        self._end()
        if not self._dismissed:
            self._begin()
        return Result("", seed, broken=[Broken(WORKER, 0, why)])

    def dismiss(self) -> None:
        """End the process, which may be at work."""
        self._dismissed = True
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()


def _work(pipe: Connection[Any, Any], shape: Shape) -> None:
    """Run, in a worker, the seeds that arrive on *pipe* until there are no more."""
    while True:
        try:
            seed = pipe.recv()
        # Ctrl-C reaches all processes of a terminal. Only the parent reports it.
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            pipe.send(run(shape.plan(seed), seed))
        except KeyboardInterrupt:
            return
