"""How long who was fenced keeps from taking a partition back.

Where a network is cut but both sides reach the store, each side gives the other up and wants its
partitions. The log lets one of them write at a time; but who is fenced could seal the other's epoch
at once, and so on with every write. So each fence doubles how long its victim waits: the partition
rests with either side for longer and longer.
"""

from __future__ import annotations

from typing import Final

WAIT_US_MIN: Final = 1_000_000
WAIT_US_MAX: Final = 30_000_000
FORGIVEN_US: Final = 120_000_000
"""After so long without a fence, the next one counts as the first."""


class Truces:
    """Of each partition, until when this node takes it from nobody who does not give it up."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[int, int]] = {}

    def fenced(self, number: int, now_us: int) -> None:
        """The partition was taken from us."""
        waited_us, until_us = self._waits.get(number, (0, -FORGIVEN_US))
        if now_us - until_us >= FORGIVEN_US:
            waited_us = 0
        wait_us = min(max(2 * waited_us, WAIT_US_MIN), WAIT_US_MAX)
        self._waits[number] = wait_us, now_us + wait_us

    def left_us(self, number: int, now_us: int) -> int:
        """How much longer to keep from taking it back."""
        return max(0, self._waits.get(number, (0, 0))[1] - now_us)
