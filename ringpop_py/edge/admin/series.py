"""The last ten minutes of a node, in columns of 5 s: fed by its driver, and shown to people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.base.metering import STEP_S, Series, Totals
from ringpop_py.base.values.declared import Meta, Named, convert
from ringpop_py.member.swim.member import Status

if TYPE_CHECKING:
    from collections.abc import Collection

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.placement.table import Table

THERE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)
"""The statuses of members that serve what is theirs."""
GONE: Final = (Status.LEAVE, Status.TOMBSTONE)
"""The statuses of members that are not missed."""


class _After(Named, frozen=True):
    after: Annotated[float, Meta(ge=0, le=1e11)] = 0.0


def follow(ringpop: Ringpop) -> None:
    """Add the columns that are complete, if any is. The driver calls this each time it wakes."""
    now, series = time.time(), ringpop.reporter.series
    if series.is_due(now):
        series.add(now, Totals.of(ringpop.proxying.operations, _gauges(ringpop)))


def series(ringpop: Ringpop, value: object) -> object:
    """Return the columns that are complete; those ``after`` an instant of the wall clock."""
    wanted = convert(_After, {} if value is None else value, "request")
    follow(ringpop)
    kept = ringpop.reporter.series
    return {
        "source": ringpop.name,
        "step_s": STEP_S,
        "ended_at": kept.ended_at,
        "names": list(Series.names),
        "columns": kept.after(wanted.after),
    }


def _gauges(ringpop: Ringpop) -> tuple[int, int, int, int]:
    members = [member for member in ringpop.members if member.status not in GONE]
    alive = sum(member.status is Status.ALIVE for member in members)
    there = {member.name for member in members if member.status in THERE}
    unserved = moving = 0
    if ringpop.keyspaces_on_demand.loaded:
        for keyspace in ringpop.keyspaces.all():
            unserved += unserved_count(keyspace.table, there)
            moving += len(keyspace.table.moving)
    return alive, len(members) - alive, unserved, moving


def unserved_count(table: Table, there: Collection[str]) -> int:
    """Return how many partitions no member serves; *there* are those that may."""
    return sum(owner not in there for owner in table.owners())
