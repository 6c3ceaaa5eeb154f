"""SIGINT, SIGTERM and SIGHUP: recorded when they arrive, acted on where the work checks for them.

An exception from a signal handler is raised in whatever code runs at that moment: in py4j, which
then fails in its own way; in a clean-up, which is cut short; in a finaliser, where it is lost. So
the handler only sets a flag, and the work runs in a thread in which no handler runs.
"""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

POLL_S: Final = 0.1

T = TypeVar("T")


class Interrupted(Exception):
    """The work should stop. `Interrupts.check` raises it; a signal handler never does."""


class Interrupts:
    """Records signals to end, as a context manager around everything that they may interrupt."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> Self:
        for number in _heeded():
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        # Only the exit is left, and its code is decided: a late signal must not change it.
        for number in _heeded():
            signal.signal(number, signal.SIG_IGN)

    def check(self) -> None:
        """Raise Interrupted if a signal has arrived."""
        if self.came:
            raise Interrupted

    def wait(self, or_when: Callable[[], bool] = lambda: False) -> None:
        """Return when a signal arrives, or *or_when* returns true."""
        while not self.came and not or_when():
            time.sleep(POLL_S)

    def _note(self, _number: int, _frame: object) -> None:
        self.came = True  # without a lock or an event: the next signal may interrupt this line


def _heeded() -> list[signal.Signals]:
    # nohup ignores SIGHUP, so that the process survives its terminal: leave that as it is.
    hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run *work* in a thread, while this one receives the signals; return its finished future."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait([future], POLL_S).done:
            pass  # wake up now and then: Python runs signal handlers in the main thread only
    return future
