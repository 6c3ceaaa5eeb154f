"""The changes of keys as an iterator."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

from ringpop_py.base.arguments import checked_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ringpop_py.state.watch.course import Course, KeyChange, WatchPosition
    from ringpop_py.state.watch.messages import WatchRequest

WAIT_S: Final = 20.0
"""How long one question waits for changes."""


class AsyncChanges:
    """The changes of keys, one after the other. Made by `Keyspace.watch`.

    Args:
        begin: returns the course of the watch, which the first change needs.
        ask: returns what partitions have.
        now: returns the seconds of a clock.
        idle_s: after how many seconds without a change the iteration ends; None for never.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[Course]],
        ask: Callable[[WatchRequest], Awaitable[Mapping[int, object]]],
        now: Callable[[], float],
        idle_s: float | None,
    ) -> None:
        self._begin = begin
        self._ask = ask
        self._now = now
        self._idle_s = inf if idle_s is None else checked_seconds(idle_s, "idle_s")
        self._course: Course | None = None
        self._last: KeyChange | None = None
        self._ready: deque[KeyChange] = deque()

    @property
    def position(self) -> WatchPosition | None:
        """Up to where it has gone; None before it has begun. Another watch can go on after it."""
        if self._ready:
            return None if self._last is None else self._last.position
        return None if self._course is None else self._course.position

    def __aiter__(self) -> AsyncChanges:
        return self

    async def __anext__(self) -> KeyChange:
        if not self._ready:
            self._ready.extend(await self.some(self._idle_s))
        if not self._ready:
            raise StopAsyncIteration
        self._last = self._ready.popleft()
        return self._last

    async def some(self, wait_s: float) -> list[KeyChange]:
        """Return the next changes; an empty list if *wait_s* seconds bring no change.

        Raises as the iteration does.
        """
        if self._course is None:
            self._course = await self._begin()
        until = self._now() + wait_s
        found, left_s = [*self._ready], wait_s
        self._ready.clear()
        while not found:
            request = self._course.request(min(left_s, WAIT_S))
            found += self._course.take(await self._ask(request))
            left_s = until - self._now()
            if left_s <= 0:
                break
        return found
