"""A coarse wheel of deadlines: one task and one sleep for all calls and connections of a node.

To add and to remove cost the same however many wait, and while nothing is due nothing wakes.
An entry expires after its time, by at most `TICK_S` and what the event loop is late.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

TICKS_PER_S: Final = 64
TICK_S: Final = 1 / TICKS_PER_S
FAR_S: Final = 30 * 24 * 3600.0
"""Nothing is due later than this from now."""


class Timed:
    """What can be on a wheel, once at a time."""

    __slots__ = ("bucket",)

    def __init__(self) -> None:
        self.bucket: dict[Timed, None] | None = None

    def expire(self) -> None:
        """The time has come; called once, from the wheel's task."""
        raise NotImplementedError


class Alarm(Timed):
    """Calls *action* when its time has come."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def expire(self) -> None:
        """See `Timed`."""
        self._action()


class Wheel:
    """Deadlines on the scale of `trio.current_time`."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Timed, None]] = {}
        self._order: list[int] = []  # a heap of the keys of _buckets
        self._sleep: trio.CancelScope | None = None

    def add(self, timed: Timed, at: float) -> None:
        """Have *timed* expire at *at*, which is no later than `FAR_S` from now."""
        assert timed.bucket is None
        index = int(at * TICKS_PER_S) + 1
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = {}
            heapq.heappush(self._order, index)
            if self._sleep is not None and index == self._order[0]:
                self._sleep.deadline = index * TICK_S
        bucket[timed] = None
        timed.bucket = bucket

    def discard(self, timed: Timed) -> None:
        """Forget *timed*, if it is here."""
        if timed.bucket is not None:
            del timed.bucket[timed]
            timed.bucket = None

    async def run(self) -> None:
        """Expire what is due, for ever."""
        while True:
            due_at = self._next_due()
            with trio.CancelScope(deadline=due_at) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
            self._expire_until(trio.current_time())

    def _next_due(self) -> float:
        order = self._order
        while order and not self._buckets[order[0]]:
            del self._buckets[heapq.heappop(order)]
        return order[0] * TICK_S if order else math.inf

    def _expire_until(self, now: float) -> None:
        while self._order and self._order[0] * TICK_S <= now:
            bucket = self._buckets.pop(heapq.heappop(self._order))
            while bucket:
                timed, _ = bucket.popitem()
                timed.bucket = None
                timed.expire()
