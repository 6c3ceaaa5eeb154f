"""The memory for what comes over connections."""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

REUSED_BYTES_MIN: Final = 64 * 1024
"""Bytes of the shortest buffer that is used again; shorter ones are made anew."""
REUSED_MAX: Final = 2
"""A buffer is used again for a body if it is at most so many times as long."""


class Buffers:
    """Memory for bodies of messages, limited to *size* bytes. Requests for more wait, in order.

    Buffers are used again: the first use of new pages of memory takes longer than receiving and
    writing the frame in them.

    Attributes:
        held_bytes: the bytes in use.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.held_bytes = 0
        self._turn = trio.Lock()
        self._freed = trio.Event()
        self._free: deque[bytearray] = deque()
        """The buffers that may be used again, the last used one last."""

    async def acquire(self, size: int) -> memoryview:
        """Return a buffer of *size* bytes, as soon as there is room, or nothing else is held."""
        async with self._turn:
            while self.held_bytes and self.held_bytes + size > self._size:
                await self._freed.wait()
            self.held_bytes += size
        return memoryview(self._found(size))[:size]

    def _found(self, size: int) -> bytearray:
        for place, buffer in enumerate(self._free):
            if size <= len(buffer) <= REUSED_MAX * size:
                del self._free[place]
                return buffer
        self._make_room()
        return bytearray(size)

    def release(self, buffer: memoryview) -> None:
        """Give back a buffer of `acquire`, no part of which is in use any longer."""
        self.held_bytes -= len(buffer)
        if len(buffer) >= REUSED_BYTES_MIN and isinstance(buffer.obj, bytearray):
            self._free.append(buffer.obj)
            self._make_room()
        self._freed.set()
        self._freed = trio.Event()

    def _make_room(self) -> None:
        kept = sum(map(len, self._free))
        while self._free and kept + self.held_bytes > self._size:
            kept -= len(self._free.popleft())
