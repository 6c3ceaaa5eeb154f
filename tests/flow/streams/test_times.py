"""The times of records, and how far ahead they may be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.flow.streams.times import event_time, time_function
from ringpop_py.streams import EventTime

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(("unit", "per_s"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_a_time_is_refused_beyond_the_bound_and_not_at_it(unit: str, per_s: int) -> None:
    time = EventTime("at", unit=unit, ahead_max_s=60)
    at_bound = (int(NOW_S) + 60) * per_s
    assert time.why_refused(None, NOW_S) == ""
    assert time.why_refused(at_bound, NOW_S) == ""
    assert time.why_refused(-(1 << 63), NOW_S) == ""
    why = time.why_refused(at_bound + per_s, NOW_S)
    assert why == (
        f"its time {at_bound + per_s} is 61 s ahead of the clock, of at most 60 s, if it is in "
        f"{unit}: see EventTime"
    )
    assert EventTime("at", unit=unit, ahead_max_s=math.inf).why_refused(1 << 62, NOW_S) == ""


def test_a_name_or_a_function_is_in_seconds_with_an_hour() -> None:
    assert event_time("at") == EventTime("at", "s", 3_600.0)
    assert event_time(None) is None
    assert time_function(None) is None
    found = time_function(EventTime(lambda value: value["x"] + 1, unit="ms"))
    assert found is not None
    assert found({"x": 4}) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "minutes"}, "s, ms, us or ns"),
        ({"ahead_max_s": -1}, "a number from 0"),
        ({"ahead_max_s": math.nan}, "a number from 0"),
        ({"of": 5}, "time"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EventTime(**{"of": "at", **options})
