"""Which connections a process for shuffles keeps, when there are more than it can have (pure)."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

CONNECTIONS_MAX: Final = 256
RESERVED: Final = 64
"""The connections beyond `CONNECTIONS_MAX` that hosts of members may have."""

ConnectionT = TypeVar("ConnectionT")


class Door(Generic[ConnectionT]):
    """The connections of a process: that which has been idle for longest makes room for another."""

    def __init__(self) -> None:
        self._calls_counts: dict[ConnectionT, int] = {}
        """How many calls of each are at work; the connection that was used last is the last."""

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._calls_counts)

    def admit(self, one: ConnectionT, *, of_member: bool) -> ConnectionT | None:
        """Add a connection; return the one to close for it: itself, if all others are at work."""
        self._calls_counts[one] = 0
        if len(self) <= CONNECTIONS_MAX + (RESERVED if of_member else 0):
            return None
        closed = next(each for each, count in self._calls_counts.items() if not count)
        del self._calls_counts[closed]
        return closed

    def note_calls(self, one: ConnectionT, change: int) -> None:
        """Note that calls of a connection have begun, or have ended."""
        if (count := self._calls_counts.pop(one, None)) is not None:
            self._calls_counts[one] = count + change

    def forget(self, one: ConnectionT) -> None:
        """Forget a connection that has ended."""
        self._calls_counts.pop(one, None)
