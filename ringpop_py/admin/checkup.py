"""What monitors ask a node: whom it reaches, what time it has, how much room is on its disks."""

from __future__ import annotations

import resource
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.node.ringpop import Ringpop

DISK_S: Final = 1.0
"""A disk that does not say its size for so long hangs, perhaps as its server does."""


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
        "disks": [await _disk(what, path) for what, path in _paths(ringpop).items()],
    }


def memory_bytes() -> int:
    """Return how much memory this process has; the most that it had, where only that is known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a pseudo file
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _paths(ringpop: Ringpop) -> Mapping[str, str]:
    from ringpop_py.stores.urls import path_here  # noqa: PLC0415 - only for a store

    config = ringpop.config
    store = None if config.store is None else path_here(config.store)
    found = {"store": store, "entries": config.entries_folder, "shuffles": config.shuffle.folder}
    return {what: path for what, path in found.items() if path is not None}


async def _disk(what: str, path: str) -> dict[str, Any]:
    row: dict[str, Any] = {"what": what, "path": path, "free_bytes": None, "total_bytes": None}
    with trio.move_on_after(DISK_S):
        try:
            usage = await trio.to_thread.run_sync(
                partial(shutil.disk_usage, path), abandon_on_cancel=True
            )
        except OSError as error:
            return {**row, "trouble": error.strerror or str(error)}
        return {**row, "free_bytes": usage.free, "total_bytes": usage.total, "trouble": ""}
    return {**row, "trouble": f"it has not answered within {DISK_S:g} s"}
