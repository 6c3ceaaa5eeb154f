"""The progress of a job while it runs: one line that is rewritten on a terminal, or many lines.

What the figures count:

- *rows* of a stream are those of finished batches. Rows of a batch are those that tasks have read
  so far, which Spark reports at the end of a task and every few seconds. The summary is exact.
- *batches* are those that Spark has finished; *tasks* are those of all jobs so far.
- *again* is the number of failed tasks, which Spark repeats unless they fail too often.
- the shares of the owners are what a daemon reports at that moment.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TextIO

from ringpop_py.base.errors import RingpopError
from ringpop_py.spark.pipeline.target import PipelineTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ringpop_py.spark.pipeline.settings import Pipeline

SAMPLES_MAX: Final = 1_000
RATE_OVER_S: Final = 10.0
OWNERS_SHOWN: Final = 8
WIDTH: Final = 80
_CLEAR: Final = "\r\x1b[2K"


@dataclass(frozen=True, slots=True)
class Reading:
    """All counts at one moment, *at_s* seconds after the start.

    Attributes:
        rows: the rows that were read; None if that is not known yet.
        applying: whether all tasks are done, and the cluster applies what they staged.
        partitions: the number of partitions of each owner, by name.
    """

    at_s: float
    rows: int | None = None
    batches: int = 0
    tasks_done: int = 0
    tasks_count: int = 0
    tasks_failed: int = 0
    applying: bool = False
    partitions: Mapping[str, int] = field(default_factory=dict)


class History:
    """The readings of a job: at most *samples_max*, evenly thinned out, and the last one."""

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._samples_max = samples_max
        self._kept: list[Reading] = []
        self._last: Reading | None = None
        self._every = 1
        self._count = 0
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, reading: Reading) -> None:
        """Add the next reading."""
        if self._count % self._every == 0:
            self._kept.append(reading)
        self._count += 1
        self._last = reading
        if len(self._kept) > self._samples_max:  # from now on keep only every second one
            self._kept = self._kept[::2]
            self._every *= 2
        if reading.rows is not None:
            self._recent.append((reading.at_s, reading.rows))
        # Keep one reading from before the period, so that the rate is that of the whole period.
        while len(self._recent) > 2 and self._recent[1][0] <= reading.at_s - RATE_OVER_S:  # noqa: PLR2004 - two make a slope
            self._recent.popleft()

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings that were kept, in order of time."""
        last = [self._last] if self._last is not None and self._last is not self._kept[-1] else []
        return (*self._kept, *last)

    @property
    def rows_per_s(self) -> float | None:
        """The rate of the last `RATE_OVER_S` seconds; None if no rows were counted yet."""
        if not self._recent:
            return None
        (then_s, then), (now_s, now) = self._recent[0], self._recent[-1]
        if len(self._recent) == 1:  # measure the first reading from the start of the job
            then_s, then = 0.0, 0
        return (now - then) / (now_s - then_s) if now_s > then_s else None


def line_of(reading: Reading, rows_per_s: float | None) -> str:
    """Return *reading* as one line."""
    parts = [f"{reading.at_s:6.1f} s"]
    if reading.rows is not None:
        parts.append(f"{reading.rows:,} rows")
    if rows_per_s is not None and reading.rows:
        parts.append(f"{rows_per_s:,.0f} rows/s")
    if reading.batches:
        parts.append(counted(reading.batches, "batch", "batches"))
    if reading.tasks_count:
        parts.append(f"tasks {reading.tasks_done}/{reading.tasks_count}")
    if reading.tasks_failed:
        parts.append(f"again {reading.tasks_failed}")
    if reading.applying:
        parts.append("applying")
    if reading.partitions:
        parts.append(shares_text(reading.partitions))
    return " | ".join(parts)


def shares_text(partitions: Mapping[str, int]) -> str:
    """Return the percentage of partitions of each owner; the smallest shares are added up."""
    total = sum(partitions.values())
    ordered = sorted(partitions.items())
    if len(ordered) > OWNERS_SHOWN:
        largest = sorted(ordered, key=lambda owner: (-owner[1], owner[0]))[: OWNERS_SHOWN - 1]
        rest = total - sum(count for _, count in largest)
        ordered = [*sorted(largest), (f"{len(ordered) - len(largest)} others", rest)]
    return "  ".join(f"{name} {count / total:.0%}" for name, count in ordered)


def counted(count: int, one: str, many: str) -> str:
    """Return *count* with its noun."""
    return f"{count:,} {one if count == 1 else many}"


class Display:
    """Shows lines on *stream*: on a terminal only the latest, in place; otherwise all of them.

    Args:
        quiet: show only notes.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._quiet = quiet
        self._shown = False
        self._last: object = None

    def show(self, line: str, news: object) -> None:
        """Show *line*; if lines stay, only if *news* differs from that of the line before."""
        if self._quiet or (not self._live and news == self._last):
            return
        self._last = news
        if self._live:
            width = shutil.get_terminal_size((WIDTH, 24)).columns - 1
            # A line that wraps could not be removed by clearing the last row of the terminal.
            fitting = line if len(line) <= width else line[: width - 1] + "…"
            self._stream.write(f"{_CLEAR}{fitting}")
            self._shown = True
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    @contextmanager
    def shown(self, line: str) -> Iterator[None]:
        """Show *line*, at most until the block ends. See `clear`."""
        self.show(line, news=line)
        try:
            yield
        finally:
            self.clear()

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line that is rewritten."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False


@contextmanager
def meanwhile(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call *act* every *every_s* seconds, in a thread, while the block runs."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(every_s):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Watch:
    """Reads the counts of a job and the owners of its keyspace, shows both, and keeps them.

    Args:
        counts: returns the counts of Spark at this moment; the time and the owners are added.
        heed: called with each reading.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        display: Display,
        counts: Callable[[], Reading],
        heed: Callable[[Reading], None] | None = None,
    ) -> None:
        self.history = History()
        self._counts = counts
        self._display = display
        self._heed = heed
        self._target = PipelineTarget(pipeline.target, pipeline.keyspace)
        self._started_at = time.monotonic()
        self._partitions: dict[str, int] = {}

    def look(self) -> None:
        """Take a reading."""
        # Without an answer the last one is shown: if the cluster is gone, the job itself will fail.
        with suppress(RingpopError):
            self._partitions = self._target.ownership().partitions
        reading = replace(
            self._counts(), at_s=time.monotonic() - self._started_at, partitions=self._partitions
        )
        self.history.add(reading)
        self._display.show(line_of(reading, self.history.rows_per_s), news=replace(reading, at_s=0))
        if self._heed is not None:
            self._heed(reading)
