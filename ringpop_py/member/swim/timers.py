"""Timers on a heap: a cancelled one is dropped when it reaches the top, or by a sweep."""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringpop_py.member.swim.waits import Deadline

SECOND_US: Final = 1_000_000
SWEEP_TIMERS_MIN: Final = 64


@lru_cache(maxsize=256)  # of settings, of which there are few: each ping asks for some
def microseconds(seconds: float) -> int:
    """Convert *seconds* to whole microseconds."""
    return round(seconds * SECOND_US)


class Timers:
    """Deadlines by their instants, in microseconds; equal ones in the order of setting.

    A timer's token counts up from one; 0 is no token. Whenever the heap has doubled, cancelled
    timers are swept out, because those of a day (of faulty members that came back) would reach the
    top too late.

    Attributes:
        next_at: the instant of the next timer; None if none is set. It is asked ten times as often
            as it changes.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._due: dict[int, Deadline] = {}
        self._set_count = 0
        self._sweep_at = SWEEP_TIMERS_MIN
        self.next_at: int | None = None

    def set(self, at: int, due: Deadline) -> int:
        """Have the first `take` at or after *at* return *due*. Return the timer's token."""
        self._set_count = token = self._set_count + 1
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[1] in self._due]
            heapq.heapify(self._heap)
            self._sweep_at = max(SWEEP_TIMERS_MIN, 2 * len(self._heap))
        self._due[token] = due
        heapq.heappush(self._heap, (at, token))
        if self.next_at is None or at < self.next_at:
            self.next_at = at
        return token

    def cancel(self, token: int) -> None:
        """Cancel the timer of *token*; do nothing if it has fired or was cancelled."""
        if self._due.pop(token, None) is not None:
            self._drop_cancelled()

    def __contains__(self, token: int) -> bool:
        """Return whether the timer of *token* is still to come."""
        return token in self._due

    def take(self, now: int) -> Deadline | None:
        """Remove and return what is due next; None if nothing is due by *now*."""
        if self.next_at is None or self.next_at > now:
            return None
        due = self._due.pop(heapq.heappop(self._heap)[1])
        self._drop_cancelled()
        return due

    def _drop_cancelled(self) -> None:
        # `next_at` and `take` expect that the timer at the top of the heap is still to come.
        heap, due = self._heap, self._due
        while heap and heap[0][1] not in due:
            heapq.heappop(heap)
        self.next_at = heap[0][0] if heap else None

    def __len__(self) -> int:
        return len(self._heap)
