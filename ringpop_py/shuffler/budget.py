"""How many bytes may be held at a time, and how much of the disk is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from pathlib import Path

SCAN_S: Final = 2.0
"""How often the files are measured; what is written in between is added."""


class Budget:
    """Bytes that may be held at a time. Requests for more wait, in order."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._turn = trio.Lock()
        self._freed = trio.Event()

    async def acquire(self, size: int) -> None:
        """Hold *size* bytes, as soon as there is room for them, or nothing else is held."""
        async with self._turn:
            while self._held and self._held + size > self._size:
                await self._freed.wait()
            self._held += size

    def release(self, size: int) -> None:
        """Hold *size* bytes no more."""
        self._held -= size
        self._freed.set()
        self._freed = trio.Event()


class Disk:
    """How much of the disk the files below *path* take, at most *limit* bytes of it."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._used = 0

    def has_room(self, size: int) -> bool:
        """Return whether *size* bytes more may be written."""
        return self._used + size <= self._limit

    def wrote(self, size: int) -> None:
        """Note that *size* bytes were written."""
        self._used += size

    async def run(self) -> None:
        """Measure again and again, until cancelled."""
        while True:
            self._used = await trio.to_thread.run_sync(self._measured)
            await trio.sleep(SCAN_S)

    def _measured(self) -> int:
        total = 0
        for file in self._path.rglob("*"):
            try:
                total += file.stat().st_size
            except OSError:
                continue  # it was deleted meanwhile
        return total
