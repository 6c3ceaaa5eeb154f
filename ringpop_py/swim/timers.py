"""Timers on a heap: cancelled ones are skipped when they surface, or swept out."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND_US: Final = 1_000_000
SWEEP_TIMERS_MIN: Final = 64


def microseconds(seconds: float) -> int:
    """A duration as the timers count it."""
    return round(seconds * SECOND_US)


class Timer:
    """Something to be done at an instant; falsy once it has fired or was cancelled."""

    __slots__ = ("action", "arguments")

    def __init__(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.action: Callable[..., None] | None = action
        self.arguments = arguments

    def __bool__(self) -> bool:
        return self.action is not None

    def cancel(self) -> None:
        """See to it that this never fires; harmless if it already has."""
        self.action = None
        self.arguments = ()


class Timers:
    """Instants in microseconds; equal instants fire in the order in which they were set.

    Whenever the heap has doubled, the cancelled ones are swept out: those of a day's length
    (faulty members that came back) would surface too late.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._set_count = 0
        self._sweep_at = SWEEP_TIMERS_MIN

    def set(self, at: int, action: Callable[..., None], *arguments: object) -> Timer:
        """Call ``action(*arguments, now)`` from the first `fire` at or after *at*."""
        timer = Timer(action, arguments)
        self._set_count += 1
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[2]]
            heapq.heapify(self._heap)
            self._sweep_at = max(SWEEP_TIMERS_MIN, 2 * len(self._heap))
        heapq.heappush(self._heap, (at, self._set_count, timer))
        return timer

    @property
    def next_at(self) -> int | None:
        """When the next timer is due; None if none is set."""
        heap = self._heap
        while heap and not heap[0][2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def fire(self, now: int) -> None:
        """Fire all timers that are due at *now*, those included that firing sets."""
        while (at := self.next_at) is not None and at <= now:
            timer = heapq.heappop(self._heap)[2]
            action, arguments = timer.action, timer.arguments
            assert action is not None
            timer.cancel()
            action(*arguments, now)

    def __len__(self) -> int:
        return len(self._heap)
