"""The times of records, which others choose: none may be far ahead of our clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ringpop_py.base.arguments import checked_text
from ringpop_py.base.errors import ConfigError

TimeOf = Callable[[Any], int]
PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
AHEAD_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where the time of a record is, and how far ahead of the clock it may be.

    A record that is further ahead is refused: it would move the watermark, and all that follow
    would come too late.

    Args:
        of: the field of a record's value, or a function that returns its time: a whole number of
            *unit* since 1970. (Times that count from elsewhere are taken for times since 1970.)
        unit: ``s``, ``ms``, ``us`` or ``ns``.
        ahead_max_s: the seconds by which it may be ahead of the clock; ``math.inf`` for any.

    Raises:
        ConfigError: an argument cannot be used.
    """

    of: str | TimeOf
    unit: str = "s"
    ahead_max_s: float = AHEAD_S

    def __post_init__(self) -> None:
        if self.unit not in PER_SECOND:
            raise ConfigError(f"a unit of time is s, ms, us or ns, not {self.unit!r:.100}")
        if not isinstance(self.ahead_max_s, int | float) or not self.ahead_max_s >= 0:
            raise ConfigError(f"ahead_max_s is a number from 0, not {self.ahead_max_s!r:.100}")
        time_function(self)

    def why_refused(self, time: int | None, now_s: float) -> str:
        """Return why *time* is too far ahead of the wall clock; empty if it is not."""
        if time is None:
            return ""
        ahead_s = time / PER_SECOND[self.unit] - now_s
        if ahead_s <= self.ahead_max_s:
            return ""
        return (
            f"its time {time} is {ahead_s:.0f} s ahead of the clock, of at most "
            f"{self.ahead_max_s:g} s, if it is in {self.unit}: see EventTime"
        )


def event_time(time: str | TimeOf | EventTime | None) -> EventTime | None:
    """Return what *time* stands for. Raises ConfigError."""
    return time if time is None or isinstance(time, EventTime) else EventTime(time)


def time_function(time: str | TimeOf | EventTime | None) -> TimeOf | None:
    """Return the function that *time* is, or that reads the field of that name.

    Raises:
        ConfigError: *time* is neither.
    """
    if isinstance(time, EventTime):
        time = time.of
    if time is None or callable(time):
        return time
    field = checked_text(time, "time")

    def time_of(value: Any) -> int:  # noqa: ANN401 - a value of the application
        found: int = value[field]
        return found

    return time_of
