"""What a node counts: how long things take, how its operations end, and the last ten minutes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ApplicationError, HandlerFailed, RingpopError

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper ends of all buckets but the last one, in seconds. They are the same everywhere, so that
figures of different layers can be put together."""


TIMED_MASK: Final = 15
"""One of 16 operations is timed: the first one, and so on; all are counted."""
FAULTS_FROM: Final = 500
"""An error with this `RingpopError.http_status` or a higher one is not the caller's fault."""
ERRORS_FROM: Final = 400
KINDS: Final = (
    *("handler", "read", "write", "scan", "message"),
    *("job", "shuffle", "stream", "entry"),
)
OUTCOMES: Final = ("done", "refused", "failed")
CHECKSUM_BITS: Final = (1 << 48) - 1
"""The bits of a checksum that are shown: a float has no more than 53."""
STEP_S: Final = 5
"""The seconds of a column of `Series`."""
COLUMNS_MAX: Final = 120
"""The most columns of `Series`: those of ten minutes."""
COUNTED: Final = ("reads", "writes", "handlers", "others", "refused", "failed")
MEASURED: Final = (
    *("p50_ms", "p99_ms", "alive", "not_alive", "partitions_unserved", "partitions_moving"),
)
"""The names of a column's figures: the first ones are counts of its 5 s."""


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


class Tally:
    """How the operations of one kind ended, since the node was started.

    Attributes:
        done: how many were done.
        refused: how many were refused, by the fault of their callers.
        failed: how many were not served: what they did is nothing, or not known.
        seconds: how long those took that were timed.
    """

    __slots__ = ("done", "failed", "refused", "seconds")

    def __init__(self) -> None:
        self.done = self.refused = self.failed = 0
        self.seconds = Histogram()

    def fail(self, error: BaseException, count: int = 1) -> None:
        """Count operations that ended with *error*, as refused or failed."""
        is_refusal = isinstance(error, RingpopError) and (
            error.http_status < FAULTS_FROM
            # What a handler raises on purpose; a bug in it is another matter.
            or (isinstance(error, ApplicationError) and not isinstance(error, HandlerFailed))
        )
        if is_refusal:
            self.refused += count
        else:
            self.failed += count

    def add(self, results: Sequence[object]) -> None:
        """Count an operation for each of *results*: an error, or what it has returned."""
        errors = [result for result in results if isinstance(result, RingpopError)]
        self.done += len(results) - len(errors)
        for error in errors:
            self.fail(error)

    def end(self, status: int) -> None:
        """Count an operation that an application answered with this *status* of HTTP."""
        if status < ERRORS_FROM:
            self.done += 1
        elif status < FAULTS_FROM:
            self.refused += 1
        else:
            self.failed += 1


class Operations:
    """What a node serves, by kind.

    An operation counts once in a cluster, where it ends: at the member that has done or refused it,
    or else at the member that has given it up.

    Attributes:
        handler: requests to handlers of the application; those of many keys count as many.
        read, write: keys that were read, and writes; those of streams are among them.
        scan: calls for rows in order; they count once a member, however many partitions it has.
        message: messages to actors.
        job: rows of jobs, where they take effect.
        shuffle: calls of clients of shuffles.
        stream: records of streams, where they are read.
        entry: HTTP requests to the application beside the node.
    """

    __slots__ = KINDS

    def __init__(self) -> None:
        self.handler, self.read, self.write = Tally(), Tally(), Tally()
        self.scan, self.message, self.job = Tally(), Tally(), Tally()
        self.shuffle, self.stream, self.entry = Tally(), Tally(), Tally()

    def by_kind(self) -> dict[str, Tally]:
        """Return all tallies."""
        return {kind: getattr(self, kind) for kind in KINDS}


def quantile_ms(counts: Sequence[int], share: float) -> float | None:
    """Return the milliseconds in which that *share* of what is in *counts* was over.

    Args:
        counts: as those of a `Histogram`. Within a bucket, durations are taken as spread evenly;
            of the last bucket, its lower end is returned.

    Returns:
        None if nothing was counted.
    """
    left = share * sum(counts)
    if not left:
        return None
    lower_s = 0.0
    for bound_s, count in zip(BOUNDS_S, counts, strict=False):
        if count and left <= count:
            return 1_000 * (lower_s + (bound_s - lower_s) * left / count)
        left -= count
        lower_s = bound_s
    return 1_000 * lower_s


@dataclass(frozen=True, slots=True)
class Totals:
    """What `Series` is told: how much was counted so far, and how it is now.

    Attributes:
        counts: of each in `COUNTED`.
        buckets: the counts of a `Histogram` of all operations.
        gauges: the rest of `MEASURED` behind the two latencies.
    """

    counts: tuple[int, ...]
    buckets: tuple[int, ...]
    gauges: tuple[int, ...]

    @classmethod
    def of(cls, operations: Operations, gauges: tuple[int, ...]) -> Totals:
        """Sum up *operations*."""
        tallies = operations.by_kind()
        ended = {kind: t.done + t.refused + t.failed for kind, t in tallies.items()}
        named = [ended.pop(kind) for kind in ("read", "write", "handler")]
        refused, failed = (
            sum(getattr(t, outcome) for t in tallies.values()) for outcome in OUTCOMES[1:]
        )
        timed = Histogram()
        for tally in tallies.values():
            timed.add(tally.seconds)
        counts = (*named, sum(ended.values()), refused, failed)
        return cls(counts, tuple(timed.counts), gauges)


class Series:
    """The last ten minutes of a node, in columns of 5 s: a ring of fixed size.

    Args:
        now: the wall clock, in seconds, as in `add`.

    Attributes:
        due_at: when the column that is under way is complete, in seconds of the wall clock.
    """

    names = (*COUNTED, *MEASURED)

    def __init__(self, now: float) -> None:
        self._cells = array("d", [0.0]) * (COLUMNS_MAX * len(self.names))
        self._columns_count = 0  # all that there ever were
        self._before = Totals((0,) * len(COUNTED), (0,) * (len(BOUNDS_S) + 1), ())
        self.due_at = _boundary_after(now)

    @property
    def ended_at(self) -> int:
        """When the newest column was complete, in seconds of the wall clock."""
        return self.due_at - STEP_S

    def is_due(self, now: float) -> bool:
        """Return whether a column is complete, or the clock was set back."""
        return not self.due_at - 2 * STEP_S <= now < self.due_at

    def add(self, now: float, totals: Totals) -> None:
        """Add the columns that are complete at *now*, if `is_due`.

        What was counted since the last call is in the oldest of them: a node that was not woken for
        longer had little to do. If the clock was set back, the ring begins again.
        """
        steps = (_boundary_after(now) - self.due_at) // STEP_S
        before, self._before = self._before, totals
        self.due_at = _boundary_after(now)
        if steps < 0:
            self._columns_count = 0
        for step in range(max(0, steps - COLUMNS_MAX), steps):
            at = self._columns_count % COLUMNS_MAX * len(self.names)
            # One by one: an array that a slice is put into may grow.
            for place, cell in enumerate(_column(totals if step else before, totals), at):
                self._cells[place] = cell
            self._columns_count += 1

    def after(self, instant: float) -> list[list[float | None]]:
        """Return the columns that were complete after *instant*, the oldest first."""
        fresh = -int((instant - self.ended_at) // STEP_S)
        first = self._columns_count - min(max(fresh, 0), self._columns_count, COLUMNS_MAX)
        return [self._shown(number) for number in range(first, self._columns_count)]

    def _shown(self, number: int) -> list[float | None]:
        at = number % COLUMNS_MAX * len(self.names)
        cells = self._cells[at : at + len(self.names)]
        return [None if isnan(c) else int(c) if c.is_integer() else c for c in cells]


def _boundary_after(now: float) -> int:
    return (int(now // STEP_S) + 1) * STEP_S


def _column(before: Totals, totals: Totals) -> list[float]:
    counts = [now - then for now, then in zip(totals.counts, before.counts, strict=True)]
    buckets = [now - then for now, then in zip(totals.buckets, before.buckets, strict=True)]
    latencies = [quantile_ms(buckets, share) for share in (0.5, 0.99)]
    rounded = [nan if ms is None else round(ms, 3) for ms in latencies]
    return [*counts, *rounded, *totals.gauges]
