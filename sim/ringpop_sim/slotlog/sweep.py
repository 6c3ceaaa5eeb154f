"""Many schedules, in this process or in several, and which invariants broke in which."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ringpop_sim.slotlog.schedule import ScheduleOutcome, run_schedule
from ringpop_sim.slotlog.truth import INVARIANTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FAILURES_KEPT: Final = 20
CHUNK: Final = 50
_CONTEXT: Final = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class SweepSummary:
    """The results so far.

    Attributes:
        failures: the first schedules that broke an invariant.
        broken: how many schedules broke each invariant.
    """

    schedule_count: int = 0
    event_count: int = 0
    epoch_count: int = 0
    written_count: int = 0
    wall_s: float = 0.0
    failed_count: int = 0
    failures: list[ScheduleOutcome] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether no invariant broke."""
        return not self.failed_count

    def add(self, outcome: ScheduleOutcome) -> None:
        """Add *outcome* to the counts."""
        self.schedule_count += 1
        self.event_count += outcome.event_count
        self.epoch_count += outcome.epoch_count
        self.written_count += outcome.written_count
        if outcome.broken is None:
            return
        self.failed_count += 1
        self.broken[outcome.broken.invariant] += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(outcome)

    def as_json(self) -> dict[str, Any]:
        """Return the summary as one JSON object for programs."""
        return {
            "ok": self.ok,
            "schedules": self.schedule_count,
            "failed": self.failed_count,
            "events": self.event_count,
            "epochs": self.epoch_count,
            "operations": self.written_count,
            "wall_s": round(self.wall_s, 3),
            "broken": {
                name: {"schedules": count, "means": INVARIANTS[name]}
                for name, count in self.broken.most_common()
            },
            "failures": [
                {
                    "seed": outcome.seed,
                    "nodes": outcome.nodes,
                    "invariant": outcome.broken.invariant,
                    "detail": outcome.broken.detail,
                }
                for outcome in self.failures
                if outcome.broken is not None
            ],
        }


def sweep(
    first: int,
    count: int,
    clock: Callable[[], float],
    *,
    nodes: int | None = None,
    jobs: int = 1,
    progress: Callable[[SweepSummary], None] = lambda _: None,
) -> SweepSummary:
    """Run the schedules of *count* seeds from *first* on; *progress* is called after each."""
    summary = SweepSummary()
    began = clock()
    with _outcomes(range(first, first + count), nodes, jobs) as outcomes:
        for outcome in outcomes:
            summary.add(outcome)
            summary.wall_s = clock() - began
            progress(summary)
    return summary


@contextmanager
def _outcomes(seeds: range, nodes: int | None, jobs: int) -> Iterator[Iterable[ScheduleOutcome]]:
    """Yield outcomes in the order of *seeds*, with any number of processes."""
    run = partial(run_schedule, nodes=nodes)
    if jobs == 1:
        yield map(run, seeds)
        return
    with _CONTEXT.Pool(jobs) as pool:
        yield pool.imap(run, seeds, CHUNK)  # in order, so that the failures kept are the first
