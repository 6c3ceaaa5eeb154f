"""``ringpopd --run-as-leader``: a child process that runs only while this node holds a name."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import ConfigError, LeadershipLost
from ringpop_py.base.logs import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.node.ringpop import Ringpop

TERM_VARIABLE: Final = "RINGPOP_TERM"
"""The variable in which the child finds the term."""
GRACE_S: Final = 5.0
"""The seconds between SIGTERM and SIGKILL, when the name is lost or the node ends."""
PAUSE_S: Final = 1.0
"""The seconds before a child that has ended is started again, or the name is wanted again."""


async def run_as_leader(ringpop: Ringpop, name: str, command: Sequence[str]) -> None:
    """Run *command* while this node holds *name*, again and again until cancelled.

    Raises:
        ConfigError: the command cannot be started, or the node has no store.
    """
    while True:
        try:
            async with ringpop.leader(name) as lead:
                log.info("leader-command-starts", leader=name, term=lead.term)
                while True:
                    code = await _run_child(command, lead.term)
                    text = f"the command of leader {name!r} has ended with {code}"
                    log.warning("leader-command-ended", text=text, leader=name, code=code)
                    await trio.sleep(PAUSE_S)
        except LeadershipLost as error:
            log.warning("leadership-lost", text=str(error), leader=name)
        await trio.sleep(PAUSE_S)


async def _run_child(command: Sequence[str], term: int) -> int:
    environment = {**os.environ, TERM_VARIABLE: str(term)}
    try:
        # A group of its own: also the children of a shell are ended, and Ctrl-C is for the node.
        process = await trio.lowlevel.open_process(
            # Its input ends with this process, however that ends.
            list(command),
            env=environment,
            start_new_session=True,
            stdin=subprocess.PIPE,
        )
    except OSError as error:
        raise ConfigError(f"--run-as-leader: {command[0]}: {error.strerror or error}") from None
    try:
        return await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            _signal(process, signal.SIGTERM)
            with trio.move_on_after(GRACE_S):
                await process.wait()
            _signal(process, signal.SIGKILL)  # also what the command has left behind
            await process.wait()


def _signal(process: trio.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # no process of the group is left
        os.killpg(process.pid, number)
