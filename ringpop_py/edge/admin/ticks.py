"""The endpoint ``/admin/ticks``: the schedules of the cluster, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import Named, Text, convert
from ringpop_py.state.ticks.ticks import all_schedules

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop

LIST: Final = "/admin/ticks"


class _OfSchedule(Named, frozen=True):
    name: Text | None = None


async def listed(ringpop: Ringpop, value: object) -> object:
    """Return all schedules, or the one that is named. Raises ConfigError, KeyspaceError."""
    name = convert(_OfSchedule, {} if value is None else value, "request").name
    shown = await all_schedules(ringpop, ringpop.reporter.clocks.due_ms() / 1_000)
    rows = [row._asdict() for row in shown if name in (None, row.name)]
    return {"source": ringpop.name, "schedules": rows}
