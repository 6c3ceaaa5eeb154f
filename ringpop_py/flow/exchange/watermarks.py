"""Merges watermarks: a stage is as far as the channel that is furthest behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class WatermarkTracker:
    """The watermarks of channels, whose minimum is that of the stage. It never goes back.

    A channel that has reported no records for *idle_after* is idle, and holds nothing up: so one
    source without records does not stop all windows. A silent channel is waited for: its records
    may be on their way. If all are idle, the watermark stays.

    Args:
        idle_after: in the unit of the instants that methods are given.
        time: the least watermark; None before the first one.

    Attributes:
        time: the watermark; None before the first one.
    """

    def __init__(
        self, channels: Iterable[str], *, idle_after: float, time: int | None = None
    ) -> None:
        self._times: dict[str, int | None] = dict.fromkeys(channels)
        self._quiet_since: dict[str, float] = {}
        self._idle_after = idle_after
        self.time = time

    def receive(self, channel: str, time: int | None, now: float) -> int | None:
        """Note that *channel* has brought a watermark, or (None) records.

        Returns:
            The watermark of the stage if it rises, and None if it does not.
        """
        if channel not in self._times:
            return None
        self._quiet_since.pop(channel, None)
        if time is not None:
            known = self._times[channel]
            self._times[channel] = time if known is None else max(known, time)
        return self.advance(now)

    def quiet(self, channel: str, now: float) -> int | None:
        """Note that *channel* has no records for now; return as `receive`."""
        if channel in self._times:
            self._quiet_since.setdefault(channel, now)
        return self.advance(now)

    def unsure(self, channel: str) -> None:
        """Wait for *channel*, even if it was quiet: it may have records that cannot be read."""
        self._quiet_since.pop(channel, None)

    def is_idle(self, now: float) -> bool:
        """Return whether no channel is waited for."""
        return all(self._is_idle(channel, now) for channel in self._times)

    def join(self, channel: str) -> bool:
        """Wait for *channel* from now on; return whether it is new."""
        is_new = channel not in self._times
        self._times.setdefault(channel, None)
        return is_new

    def lose(self, channel: str, now: float) -> int | None:
        """Stop waiting for *channel*, which is gone; return as `receive`."""
        if channel not in self._times:
            return None
        del self._times[channel]
        self._quiet_since.pop(channel, None)
        return self.advance(now)

    def advance(self, now: float) -> int | None:
        """Look for channels that have become idle; return as `receive`."""
        times = [time for channel, time in self._times.items() if not self._is_idle(channel, now)]
        known = [time for time in times if time is not None]
        if not known or len(known) < len(times):
            return None
        lowest = min(known)
        if self.time is not None and lowest <= self.time:
            return None
        self.time = lowest
        return lowest

    def _is_idle(self, channel: str, now: float) -> bool:
        since = self._quiet_since.get(channel)
        return since is not None and now - since >= self._idle_after
