"""Tasks that run beside a node: what a bug in one of them ends, and what goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 60.0
"""Between two failures of one task, in seconds, and so between two tracebacks of it in the log."""


async def keep_running(what: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run a task until it is cancelled or returns; after a bug, again, later each time.

    Args:
        what: the task, for the log.
    """
    pause_s = PAUSE_S_MIN
    while True:
        try:
            await run()
        except Exception as error:
            text = f"{what} failed, and begins again in {pause_s:g} s: {one_line(error)}"
            log.exception("task-failed", text=text, task=what)
        else:
            return
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


def one_line(error: BaseException) -> str:
    """The kind of *error* and what it says, in one line; of a group those of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = error.msg if isinstance(error, SyntaxError) else str(error)  # else with its line
    return f"{type(error).__name__}: {' '.join(text.split())}".removesuffix(": ")
