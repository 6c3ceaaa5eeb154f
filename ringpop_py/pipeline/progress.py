"""How far a job is, told while it runs: a line that is rewritten on a terminal, or plain ones.

Where the figures come from, and what they are worth:

- *rows* of a stream are those of finished batches, as Spark counted them; of a batch, those that
  tasks have taken in so far, which Spark tells at the end of a task and every few seconds. In the
  summary they are exact.
- *batches* are those that Spark finished; *tasks* are those of the jobs that run or ran.
- *again* is how many tasks failed, to be run again unless they failed too often.
- who serves how many partitions is what a daemon says at that moment.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TextIO

from ringpop_py.errors import RingpopError
from ringpop_py.pipeline.target import PipelineTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ringpop_py.pipeline.settings import Pipeline

SAMPLES_MAX: Final = 1_000
RATE_OVER_S: Final = 10.0
OWNERS_SHOWN: Final = 8
WIDTH: Final = 80
_CLEAR: Final = "\r\x1b[2K"


@dataclass(frozen=True, slots=True)
class Reading:
    """All counts at one moment, *at_s* after the beginning.

    Attributes:
        rows: of the input; None while nobody knows.
        applying: all tasks are done, and the cluster is to apply what they staged.
        partitions: how many each owner serves, by name.
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
    """The readings of a job: at most so many, evenly thinned out, with the last one."""

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._samples_max = samples_max
        self._kept: list[Reading] = []
        self._last: Reading | None = None
        self._every = 1
        self._count = 0
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, reading: Reading) -> None:
        """Take in the next one."""
        if self._count % self._every == 0:
            self._kept.append(reading)
        self._count += 1
        self._last = reading
        if len(self._kept) > self._samples_max:
            self._kept = self._kept[::2]
            self._every *= 2
        if reading.rows is not None:
            self._recent.append((reading.at_s, reading.rows))
        while len(self._recent) > 2 and self._recent[1][0] <= reading.at_s - RATE_OVER_S:  # noqa: PLR2004 - two make a slope
            self._recent.popleft()

    @property
    def readings(self) -> tuple[Reading, ...]:
        """In order of time."""
        last = [self._last] if self._last is not None and self._last is not self._kept[-1] else []
        return (*self._kept, *last)

    @property
    def rows_per_s(self) -> float | None:
        """Of late; None while there is nothing to tell it from."""
        if not self._recent:
            return None
        (then_s, then), (now_s, now) = self._recent[0], self._recent[-1]
        if len(self._recent) == 1:
            then_s, then = 0.0, 0
        return (now - then) / (now_s - then_s) if now_s > then_s else None


def line_of(reading: Reading, rows_per_s: float | None) -> str:
    """*reading* in one line."""
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
    """The share of each owner, as a percentage of all partitions; the smallest are summed up."""
    total = sum(partitions.values())
    ordered = sorted(partitions.items())
    if len(ordered) > OWNERS_SHOWN:
        largest = sorted(ordered, key=lambda owner: (-owner[1], owner[0]))[: OWNERS_SHOWN - 1]
        rest = total - sum(count for _, count in largest)
        ordered = [*sorted(largest), (f"{len(ordered) - len(largest)} others", rest)]
    return "  ".join(f"{name} {count / total:.0%}" for name, count in ordered)


def counted(count: int, one: str, many: str) -> str:
    """*count* with its noun."""
    return f"{count:,} {one if count == 1 else many}"


class Display:
    """Shows lines on *stream*: the last of them in place if it is a terminal, each if it is not.

    Args:
        quiet: show nothing but notes.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._quiet = quiet
        self._shown = False
        self._last: object = None

    def show(self, line: str, news: object) -> None:
        """How far it is. Where lines stay, nothing is shown while *news* is what it was."""
        if self._quiet or (not self._live and news == self._last):
            return
        self._last = news
        if self._live:
            width = shutil.get_terminal_size((WIDTH, 24)).columns - 1
            fitting = line if len(line) <= width else line[: width - 1] + "…"
            self._stream.write(f"{_CLEAR}{fitting}")
            self._shown = True
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take away the line that is rewritten."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False


@contextmanager
def meanwhile(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call *act* every so often, in a thread, while the block runs."""
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
    """Reads the counts of a job and who owns its keyspace, shows both, and keeps them.

    Args:
        counts: the counts of Spark at this moment; the time and the owners are added here.
        heed: is handed each reading.
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
        self._target = PipelineTarget.of(pipeline)
        self._started_at = time.monotonic()
        self._partitions: dict[str, int] = {}

    def look(self) -> None:
        """Take a reading."""
        # What was seen last has to do; if that is why the job fails, it says so itself.
        with suppress(RingpopError):
            self._partitions = self._target.ownership().partitions
        reading = replace(
            self._counts(),
            at_s=time.monotonic() - self._started_at,
            partitions=self._partitions,
        )
        self.history.add(reading)
        self._display.show(line_of(reading, self.history.rows_per_s), news=replace(reading, at_s=0))
        if self._heed is not None:
            self._heed(reading)
