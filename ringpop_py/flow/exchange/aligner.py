"""Aligns barriers: a stage passes the barrier on when all its channels have brought it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.errors import BadElement
from ringpop_py.flow.exchange.elements import Barrier

if TYPE_CHECKING:
    from collections.abc import Iterable


class BarrierAligner:
    """The channels into one stage.

    A channel that has brought the barrier is blocked: nothing more is accepted from it until the
    others have brought theirs. So nothing is kept here: blocked elements wait at their sender, and
    no record overtakes a barrier. (Unaligned barriers would keep records that are under way, and
    those belong to channels that are gone once the workers have changed.)

    Args:
        epoch: the last one that is complete.

    Attributes:
        blocked: the channels that wait for the others.
    """

    def __init__(self, channels: Iterable[str], epoch: int) -> None:
        self._channels = set(channels)
        self._epoch = epoch
        self.blocked: set[str] = set()

    def receive(self, channel: str, barrier: Barrier) -> Barrier | None:
        """Accept the barrier that *channel* has brought; return it if *channel* is the last one.

        Raises:
            BadElement: *barrier* is not the next one.
        """
        self.check(channel)
        expected = Barrier(self._epoch + 1)
        if barrier != expected:
            raise BadElement(f"channel {channel!r} brings {barrier}, and not {expected}")
        self.blocked.add(channel)
        return self._aligned()

    def check(self, channel: str) -> None:
        """Raise BadElement if no element may come from *channel* now."""
        if channel not in self._channels:
            raise BadElement(f"there is no channel {channel!r}")
        if channel in self.blocked:
            raise BadElement(f"channel {channel!r} goes on behind a barrier that waits for others")

    def lose(self, channel: str) -> Barrier | None:
        """Stop waiting for *channel*, which is gone; return the barrier if it was the last."""
        self._channels.discard(channel)
        self.blocked.discard(channel)
        return self._aligned()

    def _aligned(self) -> Barrier | None:
        if not self._channels or self.blocked != self._channels:
            return None
        self._epoch += 1
        self.blocked = set()
        return Barrier(self._epoch)
