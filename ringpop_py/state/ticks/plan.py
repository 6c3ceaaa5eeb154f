"""When schedules are due: by an interval, or by cron's five fields in a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ringpop_py.base.arguments import checked_text
from ringpop_py.base.errors import ConfigError

if TYPE_CHECKING:
    from ringpop_py.state.ticks.record import Plan

UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
INTERVAL_S_MAX: Final = 366 * 86_400
CRON_FIELDS: Final = 5


class EveryInterval(NamedTuple):
    """Due whenever Unix time is a multiple of *interval_s*, so all nodes agree without a start."""

    text: str
    interval_s: int
    tz: str = "UTC"

    def after(self, instant: int) -> int:
        """See `Plan`."""
        return (instant // self.interval_s + 1) * self.interval_s


class ByCron(NamedTuple):
    """Due by cron's fields.

    With the hour ``*``, it is due by the minutes that pass. Otherwise each time of day is due once
    a day: when clocks show it first, or, if they skip it, when they go on.

    Attributes:
        fields: those of *text*, as cronsim has to have them.
    """

    text: str
    fields: str
    zone: ZoneInfo

    @property
    def tz(self) -> str:
        """See `Plan`."""
        return self.zone.key

    def after(self, instant: int) -> int:
        """See `Plan`. Raises ConfigError if it is never due again."""
        from cronsim import CronSim  # noqa: PLC0415 - on demand

        for found in CronSim(self.fields, datetime.fromtimestamp(instant, self.zone)):
            # In the hour that comes twice, cronsim may return to the first one.
            if (due := int(found.timestamp())) > instant:
                return due
        raise ConfigError(f"cron {self.text!r} never fires: no year has such a day")


def plan_of(interval: str | None, cron: str | None, tz: str | None) -> Plan:
    """Return when a schedule is due. Raises ConfigError."""
    if (interval is None) == (cron is None):
        raise ConfigError(
            'a schedule has an interval or cron: every("5m"), every(cron="0 3 * * *")'
        )
    if interval is not None:
        if tz is not None:
            raise ConfigError("tz goes with cron; an interval is counted from 1970 in UTC")
        return _by_interval(checked_text(interval, "an interval"))
    assert cron is not None
    return _by_cron(checked_text(cron, "cron"), checked_text(tz or "UTC", "tz"))


def _by_interval(text: str) -> EveryInterval:
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    interval_s = int(found[1]) * UNITS_S[found[2]] if found else 0
    if not 0 < interval_s <= INTERVAL_S_MAX:
        raise ConfigError(
            f"an interval is a whole number and s, m, h or d, from 1s to 366d, as in 30s or 5m; not"
            f" {text!r:.60}"
        )
    return EveryInterval(text, interval_s)


def _by_cron(text: str, tz: str) -> ByCron:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only nodes with such a schedule

    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"tz is a time zone that this machine knows, as in Europe/Berlin, not {tz!r:.60}; the"
            " package tzdata has all of them"
        ) from None
    fields = text.split()
    if len(fields) != CRON_FIELDS:
        raise ConfigError(
            f"cron has five fields: minute, hour, day of the month, month, day of the week, as in"
            f" '0 3 * * *'; not {text!r:.60}"
        )
    minute, hour, *days = fields
    if hour != "*":
        # For cronsim, a star is what is due by the minutes that pass, with a step behind it, too.
        minute, hour = _spelt_out(minute, 59), _spelt_out(hour, 23)
    now = datetime.now(UTC)
    try:
        plan = ByCron(" ".join(fields), " ".join([minute, hour, *days]), zone)
        CronSim(plan.fields, now)
    except CronSimError as error:
        day, month, weekday = days
        try:
            CronSim(f"{minute} {hour} * {month} {weekday}", now)
            CronSim(f"{minute} {hour} {day} * {weekday}", now)
        except CronSimError:
            raise ConfigError(f"cron {text!r:.60} cannot be read: {error}") from None
        raise ConfigError(f"cron {text!r:.60} never fires: no year has such a day") from None
    plan.after(int(now.timestamp()))  # raises ConfigError if it never fires
    return plan


def _spelt_out(field: str, most: int) -> str:
    return re.sub(r"\*", f"0-{most}", field)
