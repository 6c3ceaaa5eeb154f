"""When schedules are due: cron's fields where clocks are put forward and back."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.state.ticks.plan import ByCron, plan_of
from ringpop_py.state.ticks.record import latest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from ringpop_py.state.ticks.record import Plan

BERLIN: Final = ZoneInfo("Europe/Berlin")
CRONS: Final = (
    "30 2 * * *",
    "0,45 1,2,3 * * *",
    "*/20 2 * * *",
    "0 */2 * * *",
    "0 0-23 * * *",
    "59 0,23 * * *",
    "0,20,40 * * * *",
    "*/5 * * * *",
    "7 * * * *",
)
CHANGES: Final = {
    "Europe/Berlin": ((2027, 3, 28), (2027, 10, 31)),
    "America/New_York": ((2027, 3, 14), (2027, 11, 7)),
    "America/Havana": ((2027, 3, 14), (2027, 11, 7)),  # at midnight, and back to it
    "Africa/Cairo": ((2027, 4, 30), (2027, 10, 29)),
    "Australia/Lord_Howe": ((2027, 4, 4), (2027, 10, 3)),  # by half an hour
    "Asia/Kathmandu": ((2027, 4, 4),),
}


def due_between(plan: Plan, low: int, high: int) -> Iterator[int]:
    while (low := plan.after(low)) < high:
        yield low


def expected_between(cron: str, zone: ZoneInfo, low: int, high: int) -> list[int]:
    """The rule, minute by minute: what clocks show, and what they skip."""
    fields = cron.split()
    minutes, hours = (parsed(field, most) for field, most in zip(fields, (60, 24), strict=False))
    found, shown = [], set()
    before = datetime.fromtimestamp(low - 60, zone).replace(tzinfo=None)
    for instant in range(low, high, 60):
        now = datetime.fromtimestamp(instant, zone).replace(tzinfo=None)
        times = [now]
        if fields[1] != "*":
            while times[0] - timedelta(minutes=1) > before and now > before:
                times.insert(0, times[0] - timedelta(minutes=1))
            times = [time for time in times if time not in shown]
            shown.update(times)
        if any(time.minute in minutes and time.hour in hours for time in times):
            found.append(instant)
        before = now
    return found


def parsed(field: str, most: int) -> set[int]:
    return {
        number
        for part in field.split(",")
        for number in (
            range(most)[:: int(part.partition("/")[2] or 1)]
            if part.startswith("*")
            else range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        )
    }


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("cron", CRONS)
def test_a_time_of_day_is_due_once_a_day_and_any_hour_by_the_minutes_that_pass(
    cron: str, zone: str
) -> None:
    plan = plan_of(None, cron, zone)
    for day in CHANGES[zone]:
        middle = int(datetime(*day, 12, tzinfo=UTC).timestamp())
        low, high = middle - 129_600, middle + 129_600
        expected = expected_between(cron, ZoneInfo(zone), low, high)

        assert list(due_between(plan, low - 1, high)) == expected
        for instant in range(low, high - 86_400, 420):  # from any start
            assert plan.after(instant) == next(due for due in expected if due > instant)


@pytest.mark.parametrize(
    ("cron", "fields", "zone"),
    [
        ("*/5 * * * *", "0-59/5 0-23 * * *", BERLIN),  # any hour by what clocks show
        ("0 */2 * * *", "0 */2 * * *", BERLIN),  # a named one by the minutes that pass: twice
        ("*/20 2 * * *", "*/20 2 * * *", BERLIN),  # or not at all
        ("30 2 * * *", "30 2 * * *", timezone(timedelta(hours=1))),  # the offset of the start
    ],
)
def test_a_wrong_rule_is_found(cron: str, fields: str, zone: tzinfo) -> None:
    plan = ByCron(cron, fields, zone)  # type: ignore[arg-type]
    found = []
    for day in CHANGES["Europe/Berlin"]:
        middle = int(datetime(*day, 12, tzinfo=UTC).timestamp())
        low, high = middle - 129_600, middle + 129_600
        expected = expected_between(cron, BERLIN, low, high)
        found.append(list(due_between(plan, low - 1, high)) == expected)

    assert not all(found)


def test_in_berlin_a_named_hour_runs_once_and_each_five_minutes_do_not_stop() -> None:
    spring, autumn = datetime(2027, 3, 28, tzinfo=BERLIN), datetime(2027, 10, 31, tzinfo=BERLIN)
    named, often = (
        plan_of(None, "30 2 * * *", "Europe/Berlin"),
        plan_of(None, "*/5 * * * *", "Europe/Berlin"),
    )

    def of(plan: Plan, day: datetime) -> list[str]:
        low = int(day.timestamp()) - 1
        high = int((day + timedelta(days=1)).timestamp())
        return [
            f"{datetime.fromtimestamp(due, BERLIN):%H:%M%z}" for due in due_between(plan, low, high)
        ]

    assert of(named, spring) == ["03:00+0200"]
    assert of(named, autumn) == ["02:30+0200"]
    assert len(of(often, spring)) == 23 * 12
    assert len(of(often, autumn)) == 25 * 12


def test_an_interval_is_counted_from_1970() -> None:
    plan = plan_of("5m", None, None)

    assert (plan.text, plan.tz) == ("5m", "UTC")
    assert [plan.after(instant) for instant in (0, 299, 300, 301)] == [300, 300, 600, 600]


def test_a_leap_day_is_found_and_a_day_that_no_year_has_is_refused() -> None:
    leap = plan_of(None, "0 0 29 2 *", None)

    assert datetime.fromtimestamp(leap.after(1_800_000_000), UTC) == datetime(
        2028, 2, 29, tzinfo=UTC
    )
    with pytest.raises(ConfigError, match="never fires: no year has such a day"):
        plan_of(None, "0 0 30 2 *", None)


@pytest.mark.parametrize("cron", ["* * * * *", "0 3 * * *", "0 0 29 2 *", "30 2 * * MON#1"])
def test_the_last_of_many_that_were_missed_is_found(cron: str) -> None:
    plan = plan_of(None, cron, "Europe/Berlin")
    low = plan.after(1_800_000_000)
    for wall_s in (low, low + 59, low + 61.5, low + 90_000, low + 3_000_000):
        missed = list(due_between(plan, low - 1, int(wall_s) + 1)) if wall_s < low + 1e5 else []
        found = latest(plan, low, wall_s)

        assert found <= wall_s < plan.after(found)
        assert not missed or found == missed[-1]


def test_a_node_without_cron_does_not_load_it() -> None:
    code = (
        "import sys; from ringpop_py.state.ticks import ticks; from ringpop_py.state.ticks.plan"
        " import plan_of; plan_of('5m', None, None); assert 'cronsim' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
