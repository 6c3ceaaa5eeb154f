"""Many schedules, in this process or in several, and which invariants broke in which."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ringpop_sim.heap import Heap
from ringpop_sim.state.journal.promises import ERROR, PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ringpop_sim.state.journal.promises import LogBroken, ScheduleVerdict

FAILURES_KEPT: Final = 20
CHUNK: Final = 50
_CONTEXT: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The result of a schedule.

    Attributes:
        counts: how often what happened, by name.
        trace: its last steps, if a trace was asked for.
    """

    seed: int
    nodes: int
    event_count: int
    counts: Mapping[str, int]
    broken: LogBroken | None
    trace: tuple[str, ...] = ()


class ScheduleWorld(Heap):
    """The world of one schedule; a subclass says what happens in it.

    Attributes:
        truth: what has broken, and how often what happened.
    """

    truth: ScheduleVerdict

    def __init__(self, seed: int, *, traced: bool) -> None:
        super().__init__(traced=traced)
        self.seed = seed
        self.rng = random.Random(seed)

    @property
    def size(self) -> int:
        """The number of nodes."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin what goes on all the time."""

    def play(self) -> None:
        """Play what is special about this schedule, up to the moment when nothing fails."""
        raise NotImplementedError

    def end(self) -> None:
        """Go on until all must be well, and check that."""
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        """Return how often what happened."""
        return dict(sorted(self.truth.tally.items()))

    def run(self) -> ScheduleOutcome:
        """Run the schedule to its end, or until an invariant breaks."""
        try:
            self.begin()
            self.play()
            self.end()
        except PromiseBroken as error:
            self.truth.breaks(*error.broken)
        except Exception as error:  # noqa: BLE001 - nothing of the product may raise here
            self.truth.breaks(ERROR, f"{type(error).__name__}: {error}")
        counts, broken = self.counts(), self.truth.broken
        return ScheduleOutcome(self.seed, self.size, self.event_count, counts, broken, self.told())


@dataclass(frozen=True, slots=True)
class Checker:
    """The schedules that are checked, and the invariants that must hold in each.

    Attributes:
        run: runs the schedule of a seed, with a number of nodes or, if that is None, with one that
            follows from the seed; a function of a module, so that other processes can import it.
        count: returns how many there are in all with a number of nodes; None if without end.
    """

    run: Callable[..., ScheduleOutcome]
    invariants: Mapping[str, str]
    count: Callable[[int | None], int] | None = None

    def sweep(
        self,
        first: int,
        count: int,
        clock: Callable[[], float],
        *,
        nodes: int | None = None,
        jobs: int = 1,
        progress: Callable[[SweepSummary], None] = lambda _: None,
    ) -> SweepSummary:
        """Run the schedules of *count* seeds from *first* on; *progress* is called after each."""
        summary = SweepSummary(self.invariants)
        began = clock()
        with _outcomes(self.run, range(first, first + count), nodes, jobs) as outcomes:
            for outcome in outcomes:
                summary.add(outcome)
                summary.wall_s = clock() - began
                progress(summary)
        return summary


@dataclass(slots=True)
class SweepSummary:
    """The results so far.

    Attributes:
        counts: how often what happened, in all schedules.
        failures: the first schedules that broke an invariant.
        broken: how many schedules broke each invariant.
    """

    invariants: Mapping[str, str]
    schedule_count: int = 0
    event_count: int = 0
    counts: Counter[str] = field(default_factory=Counter)
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
        self.counts.update(outcome.counts)
        if outcome.broken is None:
            return
        self.failed_count += 1
        self.broken[outcome.broken.invariant] += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(outcome)

    def as_counts(self) -> dict[str, int]:
        """Return how often each thing happened, by name."""
        return {"events": self.event_count, **self.counts}

    def as_json(self) -> dict[str, Any]:
        """Return the summary as one JSON object for programs."""
        return {
            "ok": self.ok,
            "schedules": self.schedule_count,
            "failed": self.failed_count,
            **self.as_counts(),
            "wall_s": round(self.wall_s, 3),
            "broken": {
                name: {"schedules": count, "means": self.invariants[name]}
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


@contextmanager
def _outcomes(
    run: Callable[..., ScheduleOutcome], seeds: range, nodes: int | None, jobs: int
) -> Iterator[Iterable[ScheduleOutcome]]:
    """Yield outcomes in the order of *seeds*, with any number of processes."""
    one = partial(run, nodes=nodes)
    if jobs == 1:
        yield map(one, seeds)
        return
    with _CONTEXT.Pool(jobs) as pool:
        yield pool.imap(one, seeds, CHUNK)  # in order, so that the failures kept are the first
