"""How long things take, in buckets, and how much may be taken: cheap enough for every call."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

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


BURST_S: Final = 2.0
"""Who took nothing for so many seconds may take what these permit together."""
WHO_MAX: Final = 10_000
"""At so many, those that may take a whole burst again are forgotten."""


class Allowance:
    """What each of many may take, at *rate* units a second and in bursts of `BURST_S`. Pure.

    A take may be larger than what is left: then the wait is longer. Instants are those of a clock
    that the caller chooses.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._whole_at: dict[Hashable, float] = {}  # when each has a whole burst again

    def wait_s(self, who: Hashable, now: float) -> float:
        """Return the seconds after which *who* may take again; 0 if now."""
        left_s = BURST_S - (self._whole_at.get(who, now) - now)
        return max(0.0, 1 / self.rate - left_s)

    def take(self, who: Hashable, amount: float, now: float) -> None:
        """Note that *who* takes *amount* units."""
        if len(self._whole_at) >= WHO_MAX and who not in self._whole_at:
            self._whole_at = {each: at for each, at in self._whole_at.items() if at > now}
        self._whole_at[who] = max(self._whole_at.get(who, now), now) + amount / self.rate
