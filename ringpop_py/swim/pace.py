"""How fast the protocol periods follow each other: as fast as peers answer, but not faster."""

from __future__ import annotations

from collections import deque
from typing import Final

from ringpop_py.swim.timers import SECOND_US

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
