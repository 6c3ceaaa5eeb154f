"""How long things take, and how often they happen: cheap enough to be counted for every call."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper ends of all buckets but the last one, in seconds. They are the same everywhere, so that
figures of different layers can be put together."""


class Histogram:
    """How many durations fell into each bucket.

    Attributes:
        counts: one for each of `BOUNDS_S`, and one for longer durations.
        total_s: the sum of all durations, in seconds.
    """

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Count a duration of *duration_s*."""
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.total_s += duration_s

    def add(self, other: Histogram) -> None:
        """Count all that *other* has counted."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s

    def cumulative(self) -> list[tuple[float, int]]:
        """Return how many took at most each bound; the last bound is infinite."""
        found, count = [], 0
        for bound, more in zip((*BOUNDS_S, float("inf")), self.counts, strict=True):
            count += more
            found.append((bound, count))
        return found


class Recent:
    """How many events there were in the last seconds, by outcome.

    They are counted in *steps* steps of *step_s* seconds, and forgotten step by step: the sums are
    of the step that has begun, and of those before it.

    Args:
        outcomes: how many outcomes there are; an outcome is a number from 0 on.
    """

    __slots__ = ("_counts", "_outcomes", "_step", "_step_s", "_steps")

    def __init__(self, step_s: float, steps: int, outcomes: int) -> None:
        self._step_s, self._steps, self._outcomes = step_s, steps, outcomes
        self._counts = [0] * (steps * outcomes)
        self._step = 0

    def note(self, outcome: int, now: float) -> None:
        """Count an event at *now*, in seconds of any clock that does not go back far."""
        self._counts[self._go_to(now) * self._outcomes + outcome] += 1

    def sums(self, now: float) -> list[int]:
        """Return how many events of each outcome there were until *now*."""
        self._go_to(now)
        return [sum(self._counts[which :: self._outcomes]) for which in range(self._outcomes)]

    def _go_to(self, now: float) -> int:
        """Forget what is too old at *now*; return the place of its step."""
        step = max(self._step, int(now / self._step_s))
        empty = [0] * self._outcomes
        for passed in range(max(self._step + 1, step - self._steps + 1), step + 1):
            at = passed % self._steps * self._outcomes
            self._counts[at : at + self._outcomes] = empty
        self._step = step
        return step % self._steps
