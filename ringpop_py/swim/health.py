"""Local health: how slow we hold ourselves for (Lifeguard, section IV-A).

Who does not get answers in time may be cut off from the peer, or be slow itself: short of
processor time, of memory, of network. A slow node must not accuse the others of its own slowness.
So every sign of it lengthens its periods and its time-outs, and every success shortens them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.swim.effects import HealthChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.swim.effects import Effect


class Health:
    """A score from 0 (healthy) to *score_max*; with that at 0, all of it is off."""

    def __init__(self, emit: Callable[[Effect], None], score_max: int) -> None:
        self._emit = emit
        self._score_max = score_max
        self.score = 0

    @property
    def factor(self) -> int:
        """How many times as long as set our periods and time-outs are now."""
        return self.score + 1

    def limit(self, score_max: int) -> None:
        """Let the score be at most *score_max* from now on."""
        self._score_max = score_max
        self._move(0, "configured")

    def worse(self, by: int, reason: str) -> None:
        """There were *by* signs that we are slow."""
        self._move(by, reason)

    def better(self, reason: str) -> None:
        """Something went as it does for a healthy node."""
        self._move(-1, reason)

    def _move(self, by: int, reason: str) -> None:
        score = min(max(self.score + by, 0), self._score_max)
        if score != self.score:
            self.score = score
            self._emit(HealthChanged(score, reason))
