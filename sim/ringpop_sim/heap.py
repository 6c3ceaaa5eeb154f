"""A heap of events, and a trace of what happened."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TRACE_STEPS: Final = 60


class Heap:
    """A heap of actions, each due at an instant; actions of one instant run in order.

    Attributes:
        now: the instant of the present action.
        event_count: how many actions have run.
        calm: whether nothing fails any longer, except what is already on its way.
    """

    def __init__(self, *, traced: bool = False) -> None:
        self.now = 0
        self.event_count = 0
        self.calm = False
        self._pushed = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._trace: list[tuple[int, str, object]] | None = [] if traced else None

    def after(self, delay: int, what: Callable[[], None]) -> None:
        """Call *what* after *delay*; calls for the same instant run in the order of requests."""
        self._pushed += 1
        heappush(self._heap, (self.now + delay, self._pushed, what))

    @property
    def next_at(self) -> int:
        """When the next action is due."""
        return self._heap[0][0]

    @property
    def is_over(self) -> bool:
        """Whether nothing is due any more."""
        return not self._heap

    @property
    def last_at(self) -> int:
        """When the last of the actions known by now is due."""
        return max((at for at, _, _ in self._heap), default=0)

    def step(self) -> None:
        """Run the next action."""
        self.now, _, what = heappop(self._heap)
        self.event_count += 1
        what()

    def note(self, who: str, what: object) -> None:
        """Add *what* to the trace, if there is one."""
        if self._trace is not None:
            self._trace.append((self.now, who, what))

    def told(self) -> tuple[str, ...]:
        """Return the last steps of the trace, one a line."""
        if self._trace is None:
            return ()
        return tuple(f"{at:5} {who:8} {what}" for at, who, what in self._trace[-TRACE_STEPS:])
