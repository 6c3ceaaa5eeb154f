"""How long a node that was fenced waits before it takes a partition back.

If a network is cut but both sides reach the store, each side considers the other dead and wants its
partitions. The log lets one of them write at a time. But a node that was fenced could immediately
seal the other's epoch, and so on with every write. So each fence doubles the time that the fenced
node waits: the partition stays at either side for longer and longer.
"""

from __future__ import annotations

from typing import Final

WAIT_US_MIN: Final = 1_000_000
WAIT_US_MAX: Final = 30_000_000
FORGIVEN_US: Final = 120_000_000
"""After this time without a fence, the next fence counts as the first."""


class Truces:
    """For each partition, until when this node does not take it from an unwilling owner."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[int, int]] = {}

    def fenced(self, number: int, now_us: int) -> None:
        """Note that another node has taken the partition from this one."""
        waited_us, until_us = self._waits.get(number, (0, -FORGIVEN_US))
        # Counted from the end of the wait, during which this node did not try.
        if now_us - until_us >= FORGIVEN_US:
            waited_us = 0
        wait_us = min(max(2 * waited_us, WAIT_US_MIN), WAIT_US_MAX)
        self._waits[number] = wait_us, now_us + wait_us

    def left_us(self, number: int, now_us: int) -> int:
        """Return how much longer not to take the partition back."""
        return max(0, self._waits.get(number, (0, 0))[1] - now_us)
