"""The command of ringpopctl about schedules: ``ticks``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.cli.commands import asking, table

HEADS = ("NAME", "WHEN", "NEXT", "ATTEMPT", "RUN BY", "OVERDUE", "LAST")


def ticks_text(value: dict[str, Any]) -> str:
    """Return the reply of ``/admin/ticks`` for people. Raises ConfigError for an unknown name."""
    rows = [_row(row) for row in value["schedules"]]
    if not rows and "name" in value:
        raise ConfigError(f"no schedule {value['name']!r}; `ringpopctl ticks` lists all")
    return table(HEADS, rows) if rows else "no schedule was ever run"


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    holder = row["holder"] + " (gone)" * row["is_gone"] if row["holder"] else "-"
    overdue = f"{row['overdue_s']:.0f} s" if row["overdue_s"] >= 1 else "-"
    last = _when(row["number"], row["tz"]) if row["number"] else "-"
    due = _when(row["due"], row["tz"])
    return row["name"], row["plan"], due, row["attempt"], holder, overdue, last


def _when(instant: int, tz: str) -> str:
    try:
        return f"{datetime.fromtimestamp(instant, ZoneInfo(tz)):%F %T} {tz}"
    except (ZoneInfoNotFoundError, ValueError, OSError):  # this machine does not know it
        return f"{datetime.fromtimestamp(instant, UTC):%F %T} UTC"


list_all = asking("ticks", ticks_text, "name")
