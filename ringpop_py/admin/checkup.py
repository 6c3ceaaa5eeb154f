"""What monitors ask a node: whom it reaches, what time it has, how much room is on its disks."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

from ringpop_py.logs import log

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop


def reach(ringpop: Ringpop, _value: object) -> object:
    """Return what became of this node's pings, by member."""
    rows: list[dict[str, Any]] = []
    for member in ringpop.members:
        row = ringpop.driver.reach.get(member.address)
        if row is None or member.name == ringpop.name:
            continue
        rows.append(
            {
                "name": member.name,
                "answered": row.answered,
                "failed": row.failed,
                "round_trip_s": row.round_trip_s,
                "answered_at": row.answered_at,
                "failed_at": row.failed_at,
                "failure": row.failure,
            }
        )
    return {"source": ringpop.name, "at": time.time(), "pings": rows}


async def checkup(ringpop: Ringpop, _value: object) -> object:
    """Return what a monitor judges a node by, besides what its other endpoints say."""
    return {
        "source": ringpop.name,
        "at": time.time(),
        "health_score": ringpop.node.health_score,
        "log_lines_lost": log.lost_count,
        "cpu_s": time.process_time(),
        "memory_bytes": memory_bytes(),
        "store_trouble": _store_trouble(ringpop),
        "disks": await ringpop.disks.usage(),
    }


def _store_trouble(ringpop: Ringpop) -> str:
    opened = ringpop.keyspaces_on_demand.store
    if opened is None:
        return ""
    from ringpop_py.stores.metered import MeteredStore  # noqa: PLC0415 - only for a store

    return opened.store.trouble if isinstance(opened.store, MeteredStore) else ""


def memory_bytes() -> int:
    """Return how much memory this process has; the most that it had, where only that is known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a pseudo file
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
