"""The times of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringpop_py.arguments import checked_text

TimeOf = Callable[[Any], int]


def time_function(time: str | TimeOf | None) -> TimeOf | None:
    """Return the function that *time* is, or that reads the field of that name.

    Raises:
        ConfigError: *time* is neither.
    """
    if time is None or callable(time):
        return time
    field = checked_text(time, "time")

    def time_of(value: Any) -> int:  # noqa: ANN401 - a value of the application
        found: int = value[field]
        return found

    return time_of
