"""When a node looks which keys of its partitions are due (pure).

In a durable keyspace the desk makes the entries: where it stages a group, what is due rides with
the writes of its partition. This sees to it that there is a group in time, also if nobody writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ringpop_py.state.table.due import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.state.table.due import DueTimes

FAR_US: Final = 1 << 62
TOGETHER_US: Final = 100_000
"""Keys that are due so shortly after one another expire together: each group costs a commit."""
LOOK_US: Final = 1_000_000
"""The longest from one look to the next while there are instants: the clock may be set."""


class HasDueTimes(Protocol):
    """The state of a partition, as far as it matters here."""

    @property
    def due(self) -> DueTimes:
        """When its keys expire."""


class HasState(Protocol):
    """A partition, likewise."""

    @property
    def state(self) -> HasDueTimes:
        """Its keys."""


P = TypeVar("P", bound=HasState)


class Expiry(Generic[P]):
    """The looks of one node at the partitions that it serves.

    Args:
        served: returns them.
        expire: has what is due in one expire; it returns whether that is done, and not only begun.

    Attributes:
        at: when `look` is due, in microseconds.
    """

    def __init__(self, served: Callable[[], Iterable[P]], expire: Callable[[P], bool]) -> None:
        self.at = FAR_US
        self._served = served
        self._expire = expire
        self._first_ms = NEVER_MS  # of the instants for which *at* is early enough

    def is_sooner(self, changed: Iterable[HasState]) -> bool:
        """Return whether to `look` now, since some partitions have changed."""
        return min(part.state.due.first_ms for part in changed) < self._first_ms

    def look(self, now: int) -> None:
        """Have what is due expire, and note when to look again."""
        self.at, self._first_ms, now_ms = FAR_US, NEVER_MS, 0
        for part in self._served():
            due = part.state.due
            if not due or due.clock is None:
                continue
            self.at, now_ms = now + LOOK_US, due.clock.due_ms()
            if due.first_ms > now_ms or self._expire(part):
                self._first_ms = min(self._first_ms, due.first_ms)
        if self._first_ms < NEVER_MS:
            wait_us = max((self._first_ms - now_ms) * 1_000, TOGETHER_US)
            self.at = min(self.at, now + wait_us)
