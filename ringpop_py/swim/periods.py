"""The protocol periods: when the next one begins. They are as short as peers answer, and as set.

A node that has nothing to tell rests: its next period is a long one, which the first news ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.timers import SECOND_US, microseconds
from ringpop_py.swim.waits import PeriodDue

if TYPE_CHECKING:
    from ringpop_py.swim.core import Core

PROBES_MEASURED: Final = 101


class Pace:
    """The durations of the last probes that were answered, and the period that suits them."""

    def __init__(self, period_us: int, now: int) -> None:
        self._durations_us: deque[int] = deque(maxlen=PROBES_MEASURED)
        self._adapted_at = now
        self.period_us = period_us

    def answered_after(self, duration_us: int) -> None:
        """A probe took that long."""
        self._durations_us.append(duration_us)

    def adapt(self, period_us_min: int, now: int) -> None:
        """Make the period twice the median probe, but at least *period_us_min*; once a second."""
        if now - self._adapted_at >= SECOND_US and self._durations_us:
            self._adapted_at = now
            ordered, middle = sorted(self._durations_us), len(self._durations_us) // 2
            median_us = (ordered[middle] + ordered[~middle]) // 2  # of an odd number: the same one
            self.period_us = max(2 * median_us, period_us_min)

    def timing(self) -> dict[str, float]:
        """The durations in milliseconds, in the names that Ringpop uses."""
        import statistics  # noqa: PLC0415 - it takes 3 % of a start, and few ask for this

        values = sorted(us / 1000 for us in self._durations_us) or [0.0]
        mean = statistics.fmean(values)
        shares = {"median": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "p999": 0.999}
        return {
            "count": len(self._durations_us),
            "min": values[0],
            "max": values[-1],
            "sum": sum(values),
            "mean": mean,
            "variance": statistics.pvariance(values, mean),
            "std_dev": statistics.pstdev(values, mean),
            **{name: values[int(share * (len(values) - 1))] for name, share in shares.items()},
        }


class Periods:
    """When the next protocol period begins, on an absolute schedule.

    Counting from an answer would add its delay to each period.

    Attributes:
        running: whether there is a next one.
    """

    def __init__(self, core: Core, now: int) -> None:
        self._core = core
        self.pace = Pace(microseconds(core.config.period_s), now)
        self.running = False
        self._next_at = 0
        self._timer = 0
        self._rests = False

    @property
    def length_us(self) -> int:
        """The period as our peers and our own health let it be."""
        return self.pace.period_us * self._core.health.factor

    def begin(self, now: int) -> None:
        """Have the next period begin after a part of one, which is drawn at random.

        So nodes that were started together do not stay in step.
        """
        self.plan(now + self._core.rng.randint(0, self.length_us))

    def stop(self) -> None:
        """Begin no more periods."""
        self.running = False
        self._core.timers.cancel(self._timer)

    def advance(self, now: int, *, rests: bool) -> None:
        """A period begins: plan the next one, which is a long one if the node *rests*."""
        config = self._core.config
        self.pace.adapt(microseconds(config.period_s), now)
        self._rests = rests
        length_us = self.length_us
        if rests:
            length_us = max(microseconds(config.quiet_period_s), length_us)
        at = self._next_at + length_us
        if at <= now:  # we were not running; no use in making up for it
            at = now + length_us
        self.plan(at)

    def wake(self) -> None:
        """There is news: go on as if we had not rested."""
        if not (self._rests and self.running):
            return
        self._rests = False
        core = self._core
        core.timers.cancel(self._timer)
        # Those who hear of it at one time must not go on in step.
        spread_us = core.rng.randint(0, self.length_us // 2)
        self.plan(min(self._next_at, core.clock.now + spread_us))

    def plan(self, at: int) -> None:
        """Have the next period begin at *at*."""
        self._next_at = at
        self._timer = self._core.timers.set(at, PeriodDue())
