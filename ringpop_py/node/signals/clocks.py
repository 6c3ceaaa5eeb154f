"""The wall clock of a node, and what it knows of those of other members."""

from __future__ import annotations

import time
from typing import Final

import trio

PEERS_MAX: Final = 32
"""The members whose clocks are remembered, those told last: a median needs no more."""


class Clocks:
    """The clock by which keys expire here: see `ringpop_py.state.table.due.DueClock`.

    A node that sets an instant counts from the later of its own clock and the median of members'
    clocks, and one whose key is due goes by the earlier. So a clock that is wrong, as long as most
    are right, delays what expires and never brings it forward.

    Attributes:
        wall_s: returns the time of this node's wall clock, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.wall_s = time.time
        self._ahead_ms: dict[str, int] = {}  # of each peer's clock, before our monotonic one

    def told(self, peer: str, said_ms: int) -> None:
        """Note that the clock of *peer* has just said *said_ms*."""
        self._ahead_ms.pop(peer, None)
        self._ahead_ms[peer] = said_ms - _monotonic_ms()
        if len(self._ahead_ms) > PEERS_MAX:
            del self._ahead_ms[next(iter(self._ahead_ms))]

    def _all_ms(self, own_ms: int) -> list[int]:
        if not self._ahead_ms:
            return [own_ms]
        now_ms = _monotonic_ms()
        return sorted([own_ms, *(now_ms + ahead_ms for ahead_ms in self._ahead_ms.values())])

    def set_ms(self) -> int:
        """See `DueClock`."""
        own_ms = int(self.wall_s() * 1_000)
        said = self._all_ms(own_ms)
        return max(own_ms, said[len(said) // 2])  # of an even number, the later of the two

    def due_ms(self) -> int:
        """See `DueClock`."""
        own_ms = int(self.wall_s() * 1_000)
        said = self._all_ms(own_ms)
        return min(own_ms, said[(len(said) - 1) // 2])  # the earlier of the two


def _monotonic_ms() -> int:
    return int(trio.current_time() * 1_000)
