"""Batch handlers at work: in the node's own thread, or one batch at a time in another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.logs import log

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ringpop_py.route.proxy.request import AppCall
    from ringpop_py.state.rows.batches import BatchReceiver

HELD_S: Final = 0.25
"""A node that is held for longer than this is soon suspected: a ping waits twice as long."""
TOLD_EACH_S: Final = 60.0


class BatchHandler:
    """Has *receiver* handle batches, see `Ringpop.batch_handler`."""

    def __init__(self, endpoint: str, receiver: BatchReceiver, *, in_thread: bool) -> None:
        self._endpoint = endpoint
        self._receiver = receiver
        self._in_thread = in_thread
        # One at a time: a batch that is sent again must find the rows of the first try marked.
        self._turn = trio.Lock()
        self._told_at = -TOLD_EACH_S

    def __call__(self, call: AppCall) -> bytes | Awaitable[bytes]:
        """Handle the batch in *call*. See `BatchReceiver`, also for what it raises."""
        if self._in_thread:
            return self._beside(call)
        began_at = time.monotonic()
        try:
            return self._receiver(call)
        finally:
            self._tell(began_at, time.monotonic())

    async def _beside(self, call: AppCall) -> bytes:
        async with self._turn:
            return await trio.to_thread.run_sync(self._receiver, call)

    def _tell(self, began_at: float, now: float) -> None:
        if now - began_at > HELD_S and now - self._told_at >= TOLD_EACH_S:
            self._told_at = now
            log.warning(
                "handler-slow",
                text=f"the batch handler of {self._endpoint} held this node for"
                f" {now - began_at:.2f} s, in which it answers nobody: register it with"
                " in_thread=True, or send fewer rows at a time",
                endpoint=self._endpoint,
            )
