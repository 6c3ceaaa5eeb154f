"""The nodes of one product as processes, and what they have told so far."""

from __future__ import annotations

import math
import os
import selectors
import subprocess
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from tests.bench.clusters.network import as_side, ending_with_us
from tests.bench.clusters.product import Changed, Seen, Up
from tests.bench.clusters.view import View

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from tests.bench.clusters.product import Product, Seat

TIMEOUT_S: Final = 90.0
END_TIMEOUT_S: Final = 10.0
READ_BYTES: Final = 1 << 16
TAIL_LINES: Final = 20


class Failure(Exception):
    """A cluster did not do what every figure takes for granted."""


class Process:
    """One node at work, and the end of a pipe with what it says."""

    def __init__(self, seat: Seat, command: Sequence[str]) -> None:
        self.seat = seat
        self.up_at: float | None = None
        self.may_end = False
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # what the terminal sends is for us
        )
        assert self._process.stdout is not None
        self.pipe = self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a crash, also of a paused one; returns when it is gone."""
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)

    def wait(self) -> None:
        """Until it has ended by itself; by force if it takes long."""
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def lines(self) -> list[str] | None:
        """What it has written since the last call, in whole lines; None if it has ended.

        Waits if there is nothing yet.
        """
        data = os.read(self.pipe.fileno(), READ_BYTES)
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines = [line.decode(errors="replace") for line in whole]
        self.tail.extend(lines)
        return lines if data else None


class Cluster:
    """Nodes on *seats*; a context manager that starts them all and ends them all.

    What they tell is read, stamped and taken into the view only while we listen or wait: at all
    times, but for the milliseconds in which a process is started or killed.
    """

    def __init__(
        self, product: Product, seats: Sequence[Seat], folder: Path, *, sided: bool = False
    ) -> None:
        self.seats = list(seats)
        self.view = View()
        self.processes: dict[str, Process] = {}
        self._product = product
        self._folder = folder
        self._sided = sided
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        for seat in self.seats:
            self.start(seat)
        return self

    def __exit__(self, *_error: object) -> None:
        for name in list(self.processes):
            self.kill(self.processes[name].seat)
        self._selector.close()

    @property
    def names(self) -> list[str]:
        """Who runs now."""
        return list(self.processes)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values()]

    def start(self, seat: Seat) -> Process:
        """Start the node of *seat*, for the first time or again."""
        command = self._product.command(seat, self.seats, self._folder)
        user = as_side(seat.side) if self._sided else ()
        process = Process(seat, [*ending_with_us(), *user, *command])
        self.processes[seat.name] = process
        self._selector.register(process.pipe, selectors.EVENT_READ, process)
        return process

    def kill(self, seat: Seat) -> None:
        """As a crash."""
        self.processes[seat.name].kill()
        self._gone(seat)

    def ask_to_leave(self, seat: Seat) -> None:
        """Have the node of *seat* leave in good order; `ended` waits for its end."""
        self.processes[seat.name].may_end = True
        self.signal([seat], self._product.leave_signal)

    def ended(self, seat: Seat) -> None:
        """Return when the node of *seat*, which was asked to leave, has ended."""
        self.processes[seat.name].wait()
        self._gone(seat)

    def signal(self, seats: Sequence[Seat], number: signal.Signals) -> None:
        for seat in seats:
            self.processes[seat.name].signal(number)

    def _gone(self, seat: Seat) -> None:
        process = self.processes.pop(seat.name)
        if process.pipe in self._selector.get_map():
            self._selector.unregister(process.pipe)
        process.pipe.close()
        self.view.forget(seat.name)

    # What is measured.

    def listen(self, seconds: float) -> None:
        """Take in what they tell for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._take(left)

    def wait(self, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> float:
        """When *condition* came to hold; infinity if it did not in time."""
        at = time.monotonic()
        until = at + timeout_s
        while not condition():
            left = until - time.monotonic()
            if left <= 0:
                return math.inf
            at = self._take(left)
        return at

    def wait_seen(
        self, member: Seat, wanted: Collection[Seen], timeout_s: float = TIMEOUT_S
    ) -> float:
        """When all others believed one of *wanted* of *member*; infinity if not in time."""
        others = [name for name in self.names if name != member.name]
        return self.wait(lambda: self.view.agreed(others, [member.name], wanted), timeout_s)

    def wait_whole(self) -> float:
        """When all counted on all.

        Raises:
            Failure: not in time.
        """
        at = self.whole_at(TIMEOUT_S)
        if at == math.inf:
            pairs_count = len(self.names) * (len(self.names) - 1)
            seen_count = self.view.count(self.names, self.names, {Seen.ALIVE})
            last = "\n".join(self.processes[self.names[0]].tail)
            raise Failure(
                f"after {TIMEOUT_S:.0f} s, {seen_count} of {pairs_count} pairs count on each "
                f"other; one said last:\n{last}"
            )
        return at

    def whole_at(self, timeout_s: float) -> float:
        """As `wait_whole`; infinity if not in time."""
        return self.wait(lambda: self.view.agreed(self.names, self.names, {Seen.ALIVE}), timeout_s)

    def _take(self, timeout_s: float) -> float:
        """Read what there is, after waiting for it at most so long; when it was read."""
        ready = self._selector.select(timeout_s)
        at = time.monotonic()
        for key, _ in ready:
            process: Process = key.data
            lines = process.lines()
            if lines is None:
                self._selector.unregister(process.pipe)
                if not process.may_end:
                    raise Failure(f"{process.seat.name} ended:\n" + "\n".join(process.tail))
            for line in lines or ():
                self._told(process, line, at)
        return at

    def _told(self, process: Process, line: str, at: float) -> None:
        match self._product.read(line):
            case Up():
                process.up_at = at
            case Changed(member, seen):
                self.view.change(process.seat.name, member, seen)
            case [*changes]:
                for change in changes:
                    self.view.change(process.seat.name, change.member, change.seen)
            case None:
                pass
