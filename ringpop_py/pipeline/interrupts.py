"""SIGINT, SIGTERM and SIGHUP: noted where they come, and heeded where the work asks for them.

An exception from a signal handler is raised in whatever runs at that moment: in py4j, which then
fails in its own way; in the clean-up, which is cut short; in a finaliser, where it is lost. So
the handler only takes a note, and the work runs in a thread where no handler does.
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
    """The work is not to go on; raised by `Interrupts.check`, never by the signal itself."""


class Interrupts:
    """Whether a signal to end came, as a context manager around all that it may interrupt."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> Self:
        for number in _heeded():
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        # Nothing is left to do but to exit, with the code that is decided by now.
        for number in _heeded():
            signal.signal(number, signal.SIG_IGN)

    def check(self) -> None:
        """Raise Interrupted if a signal came."""
        if self.came:
            raise Interrupted

    def wait(self) -> None:
        """Return once a signal comes."""
        while not self.came:
            time.sleep(POLL_S)

    def _note(self, _number: int, _frame: object) -> None:
        self.came = True  # and no lock or event: the next signal may come right here


def _heeded() -> list[signal.Signals]:
    """The signals that end us; nohup wants us to survive the terminal."""
    hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """What came of *work*, done in a thread of its own, while this one hears the signals."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait([future], POLL_S).done:
            pass  # a signal that came to another thread has its handler run in this one
    return future
