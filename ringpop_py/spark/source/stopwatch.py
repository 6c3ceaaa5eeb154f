"""Where the time of a task goes."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

READ: Final = "read_us"
COMBINE: Final = "combine_us"
STAGE: Final = "stage_us"
"""Waiting for Spark's rows; making changes of them; sending these."""

T = TypeVar("T")


class Stopwatch:
    """Counts microseconds by purpose, for one purpose at a time; first for *what*."""

    def __init__(self, what: str, now: Callable[[], float] = time.perf_counter) -> None:
        self._what = what
        self._now = now
        self._since = now()
        self._seconds: dict[str, float] = {}

    def turn(self, what: str) -> str:
        """Count for *what* from now on; return the purpose until now."""
        before, now = self._what, self._now()
        self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._what, self._since = what, now
        return before

    def timed(self, what: str, items: Iterable[T]) -> Iterator[T]:
        """Yield *items*; count the time until each of them is there for *what*."""
        before = self.turn(what)
        for item in items:
            self.turn(before)
            yield item
            before = self.turn(what)
        self.turn(before)

    def counts(self) -> Counter[str]:
        """Return the microseconds until now: many tasks may take less than a millisecond."""
        self.turn(self._what)
        return Counter({what: round(1e6 * found) for what, found in self._seconds.items()})
