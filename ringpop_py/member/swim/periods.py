"""The protocol periods: how long they are, and when the next one begins."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.timers import SECOND_US, microseconds
from ringpop_py.member.swim.waits import Due

if TYPE_CHECKING:
    from ringpop_py.member.swim.core import Core

PROBES_MEASURED: Final = 101


class Pace:
    """The durations of the last answered probes, and the period that follows from them."""

    def __init__(self, period_us: int, now: int) -> None:
        self._durations_us: deque[int] = deque(maxlen=PROBES_MEASURED)
        self._adapted_at = now
        self.period_us = period_us

    def answered_after(self, duration_us: int) -> None:
        """Note that a probe was answered after *duration_us*."""
        self._durations_us.append(duration_us)

    def adapt(self, period_us_min: int, now: int) -> None:
        """Make the period twice the median probe, but at least *period_us_min*; once a second."""
        if now - self._adapted_at >= SECOND_US and self._durations_us:
            self._adapted_at = now
            ordered, middle = sorted(self._durations_us), len(self._durations_us) // 2
            median_us = (ordered[middle] + ordered[~middle]) // 2  # of an odd number: the same one
            self.period_us = max(2 * median_us, period_us_min)

    def timing(self) -> dict[str, float]:
        """Return the durations in milliseconds, under Ringpop's names."""
        import statistics  # noqa: PLC0415 - it takes 3 % of a start, and is seldom needed

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
    """An absolute schedule: if periods counted from answers, each would be longer by a delay.

    A node without news rests: its next period is long (`quiet_period_s`), unless news ends it.
    """

    def __init__(self, core: Core, now: int) -> None:
        self._core = core
        self.pace = Pace(microseconds(core.config.period_s), now)
        self.running = False  # whether the next period is planned
        self.rests = False  # whether it is a long one
        self._next_at = 0
        self._timer = 0

    @property
    def length_us(self) -> int:
        """The period that follows from our peers' answers and our own health."""
        return self.pace.period_us * self._core.health.factor

    def begin(self, now: int) -> None:
        """Plan the next period within one from *now*, at random: nodes must not stay in step."""
        self.plan(now + self._core.rng.randint(0, self.length_us))

    def stop(self) -> None:
        """Cancel the next period."""
        self.running = False
        self._core.timers.cancel(self._timer)

    def advance(self, now: int, *, rests: bool) -> None:
        """Plan the next period at the beginning of one; if the node *rests*, it comes later."""
        config = self._core.config
        self.pace.adapt(microseconds(config.period_s), now)
        self.rests = rests
        length_us = self.length_us
        if rests:
            length_us = max(microseconds(config.quiet_period_s), length_us)
        at = self._next_at + length_us
        if at <= now:  # we did not run; periods that were missed are not made up for
            at = now + length_us
        self.plan(at)

    def wake(self) -> None:
        """End a rest, because there is news."""
        if not (self.rests and self.running):
            return
        self.rests = False
        core = self._core
        core.timers.cancel(self._timer)
        # Nodes that receive the news at the same time must not stay in step.
        spread_us = core.rng.randint(0, self.length_us // 2)
        self.plan(min(self._next_at, core.clock.now + spread_us))

    def plan(self, at: int) -> None:
        """Plan the next period for *at*."""
        self._next_at = at
        self._timer = self._core.timers.set(at, Due.PERIOD)
