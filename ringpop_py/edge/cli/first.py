"""The first process of a container: it waits for orphans, and passes signals on to the node."""

from __future__ import annotations

import os
import signal
from typing import Final

FIRST: Final = 1
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def go_below_the_first() -> None:
    """Return in a child, if this process is the first of its container; do nothing otherwise.

    The system gives the first process all orphans: those for which nobody waits stay as zombies.
    The node is no place for that, as its own children, of which it awaits the exit codes, are among
    them. Call this before a thread is started. The first process ends with the child's exit code.
    """
    if os.getpid() != FIRST:
        return
    # Blocked signals stay pending; the system would drop those of a first process otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*PASSED_ON, signal.SIGCHLD))
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # Ctrl-C is for the first process, which passes it on: not twice
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*PASSED_ON, signal.SIGCHLD))
        return
    while True:
        number = signal.sigwait((*PASSED_ON, signal.SIGCHLD))
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        code = _exit_code_of(child)
        if code is not None:
            os._exit(code)  # the system ends all others of the container


def _exit_code_of(child: int) -> int | None:
    """Wait for all children that have ended; return the exit code of *child* if it is among them.

    As in a shell, it is above 128 if a signal has ended it.
    """
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # *child* is there, or among them
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            return None
