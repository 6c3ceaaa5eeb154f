"""How much room is on the disks that a node uses."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_S: Final = 1.0
"""A disk that has not reported its size after this many seconds counts as hanging."""


class Disks:
    """See the module.

    A disk that hangs keeps one thread, outside shared pools, however often its size is asked for.

    Args:
        paths: each path, by what is stored there.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths
        self._limiters = {what: trio.CapacityLimiter(1) for what in paths}

    async def usage(self) -> list[dict[str, Any]]:
        """Return the room on each disk: plain values, with ``trouble`` if it is not known."""
        return [await self._usage_of(what, path) for what, path in self._paths.items()]

    async def _usage_of(self, what: str, path: str) -> dict[str, Any]:
        row: dict[str, Any] = {"what": what, "path": path, "free_bytes": None, "total_bytes": None}
        limiter = self._limiters[what]
        if limiter.available_tokens:
            with trio.move_on_after(ANSWER_S):
                try:
                    usage = await trio.to_thread.run_sync(
                        partial(shutil.disk_usage, path), abandon_on_cancel=True, limiter=limiter
                    )
                except OSError as error:
                    return {**row, "trouble": error.strerror or str(error)}
                return {**row, "free_bytes": usage.free, "total_bytes": usage.total, "trouble": ""}
        return {**row, "trouble": f"it has not answered within {ANSWER_S:g} s"}
