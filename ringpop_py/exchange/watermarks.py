"""Merges watermarks: a stage is as far as the channel that is furthest behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class WatermarkTracker:
    """The watermarks of channels, whose minimum is that of the stage. It never goes back.

    A channel that has brought nothing for *idle_after* is idle, and holds nothing up: so one
    source without records does not stop all windows. If all are idle, the watermark stays.

    Args:
        now: from when on channels are waited for.
        idle_after: in the unit of *now*.
        time: below which the watermark never is; None if there is none yet.

    Attributes:
        time: the watermark; None if there is none yet.
    """

    def __init__(
        self, channels: Iterable[str], now: float, *, idle_after: float, time: int | None = None
    ) -> None:
        self._times: dict[str, int | None] = dict.fromkeys(channels)
        self._heard = dict.fromkeys(self._times, now)
        self._idle_after = idle_after
        self.time = time

    def receive(self, channel: str, time: int | None, now: float) -> int | None:
        """Note that *channel* has brought a watermark, or (None) records.

        Returns:
            The watermark of the stage if it rises, and None if it does not.
        """
        if channel not in self._times:
            return None
        self._heard[channel] = now
        if time is not None:
            known = self._times[channel]
            self._times[channel] = time if known is None else max(known, time)
        return self.advance(now)

    def idle(self, channel: str, now: float) -> int | None:
        """Wait no longer for *channel*, until it brings something again; return as `receive`."""
        if channel in self._heard:
            self._heard[channel] = now - self._idle_after
        return self.advance(now)

    def is_idle(self, now: float) -> bool:
        """Return whether no channel is waited for."""
        return all(now - heard >= self._idle_after for heard in self._heard.values())

    def lose(self, channel: str, now: float) -> int | None:
        """Wait no longer for *channel*, which is gone; return as `receive`."""
        self._times.pop(channel, None)
        self._heard.pop(channel, None)
        return self.advance(now)

    def join(self, channel: str, now: float) -> None:
        """Wait for *channel* from now on."""
        self._times.setdefault(channel, None)
        self._heard.setdefault(channel, now)

    def advance(self, now: float) -> int | None:
        """Look for channels that have become idle; return as `receive`."""
        times = [
            time
            for channel, time in self._times.items()
            if now - self._heard[channel] < self._idle_after
        ]
        known = [time for time in times if time is not None]
        if not known or len(known) < len(times):
            return None
        lowest = min(known)
        if self.time is not None and lowest <= self.time:
            return None
        self.time = lowest
        return lowest
