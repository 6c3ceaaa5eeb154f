"""Virtual time that waits for threads, which take real time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

THREADS_S: Final = 0.05
"""Seconds of real time for which the clock stands still while threads are at work.

They would get little time otherwise: a clock that jumps keeps the interpreter busy.
"""


@contextmanager
def held_for_threads(clock: MockClock) -> Iterator[None]:
    """Have *clock* jump, in the block, only while no thread is at work."""
    run_sync, at_work = trio.to_thread.run_sync, 0

    async def held(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as trio has it
        nonlocal at_work
        at_work += 1
        clock.autojump_threshold = THREADS_S
        try:
            return await run_sync(*args, **kwargs)
        finally:
            at_work -= 1
            clock.autojump_threshold = THREADS_S if at_work else 0

    with patch.object(trio.to_thread, "run_sync", held):
        yield
