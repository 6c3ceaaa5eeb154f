"""Looking at a job now and then, in a thread, while another one runs it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ringpop_py.errors import RingpopError
from ringpop_py.pipeline.progress import History, Reading, line_of
from ringpop_py.pipeline.target import PipelineTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_py.pipeline.progress import Display
    from ringpop_py.pipeline.settings import Pipeline


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
