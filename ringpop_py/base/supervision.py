"""What tasks run under: trio, and a supervisor that starts one again after a bug."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.faults import sendable, text_of
from ringpop_py.base.logs import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PAUSE_S_MIN: Final = 1.0
END_S: Final = 5.0
LINE_BYTES_MAX: Final = 16_000
PAUSE_S_MAX: Final = 60.0
"""The longest pause before a task is started again, and so between two tracebacks in the log."""


def check_trio(what: str) -> None:
    """Raise ConfigError if *what* is not called in a program that trio runs."""
    if not trio.lowlevel.in_trio_run():
        raise ConfigError(
            f"{what} needs trio: start the program with trio.run(main). Other programs have a"
            " ringpopd beside them: on asyncio, they use ringpop_py.AsyncClient and"
            " AsyncKeyspaceClient; on no loop, Client and KeyspaceClient"
        )


async def keep_running(what: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run a task until it is cancelled or returns; after a bug, start it again after a pause.

    Args:
        what: the name of the task, for the log.
    """
    pause_s = PAUSE_S_MIN
    while True:
        began = trio.current_time()
        try:
            await run()
        except Exception as error:
            text = f"{what} failed, and is started again in {pause_s:g} s: {one_line(error)}"
            log.exception("task-failed", text=text, task=what)
        else:
            return
        await trio.sleep(pause_s)
        # A bug that stays must not fill the log; one that comes once a day is another matter.
        has_run = trio.current_time() - began > PAUSE_S_MAX
        pause_s = PAUSE_S_MIN if has_run else min(2 * pause_s, PAUSE_S_MAX)


async def first_line(process: trio.Process, within_s: float) -> str:
    """Return the first line that *process* writes; empty if it ends, or writes none in time."""
    assert process.stdout is not None
    said = b""
    with trio.move_on_after(within_s):
        while not said.endswith(b"\n") and len(said) < LINE_BYTES_MAX:
            more = await process.stdout.receive_some(LINE_BYTES_MAX)
            if not more:
                return ""
            said += bytes(more)
    return said.decode().strip()


async def end_process(process: trio.Process) -> None:
    """End *process*, which ends with its input, within `END_S`; otherwise kill it."""
    assert process.stdin is not None
    await trio.aclose_forcefully(process.stdin)
    with trio.move_on_after(END_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def one_line(error: BaseException) -> str:
    """Return the kind and the message of *error*, in one line; of a group, of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = text_of(error)
    # Without the line number. An error that other code raised may have any message, or none.
    if isinstance(error, SyntaxError) and isinstance(error.msg, str):
        text = sendable(error.msg)
    return f"{type(error).__name__}: {' '.join(text.split())}".removesuffix(": ")
