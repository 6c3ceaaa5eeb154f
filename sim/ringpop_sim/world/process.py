"""One process of the simulated cluster: its node, its clock, and its waiting messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.messages import Input, Request
    from ringpop_py.member.swim.node import Node

PPM: Final = 1_000_000


class Life(Enum):
    """Whether a process runs, is paused, or has ended."""

    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class OpenCall:
    """A request in progress from *caller* to the process at *machine*."""

    caller: Process
    call_id: int
    machine: int
    request: Request


@dataclass(slots=True, eq=False)
class Process:
    """A running ringpopd as the world sees it.

    Attributes:
        serial: the place of the process in the order of all starts of a run; the first is 1.
        number: the number of its node in the plan.
        machine: where it runs; the network knows only machines.
        slow_us: how late it acts on messages and timers.
        peers: the processes with which it has a connection.
        answering: the requests that it has not answered yet, by token.
    """

    serial: int
    number: int
    name: str
    machine: int
    address: Address
    node: Node
    started_at: int
    life: Life = Life.RUNNING
    slow_us: int = 0
    wakes_at: int | None = None
    inbox: list[Input] = field(default_factory=list)
    # Not a set: its order would follow from addresses in memory, and broken connections are
    # reported in this order.
    peers: dict[Process, None] = field(default_factory=dict)
    answering: dict[int, OpenCall] = field(default_factory=dict)
    _drift_ppm: int = 0
    _drift_from: int = 0
    _drifted_us: int = 0

    # The clock of the process, which may drift.

    def time(self, now: int) -> int:
        """Return what the process's clock shows at the world's *now*."""
        if not self._drift_ppm:
            return now + self._drifted_us
        return now + self._drifted_us + (now - self._drift_from) * self._drift_ppm // PPM

    def world_time(self, at: int) -> int:
        """Return the world's time at which the process's clock shows *at*, or a moment later."""
        at -= self._drifted_us
        if self._drift_ppm:
            # Rounded up: a microsecond too early nothing would be due yet, and the process would be
            # woken at this instant without end.
            at = self._drift_from + -((self._drift_from - at) * PPM // (PPM + self._drift_ppm))
        return at

    def drift(self, ppm: int, now: int) -> None:
        """Make the process's clock run fast by *ppm* millionths from *now* on."""
        # What has drifted so far stays, so that the clock does not jump.
        self._drifted_us = self.time(now) - now
        self._drift_ppm, self._drift_from = ppm, now

    def set_wall(self, off_us: int) -> None:
        """Have its wall clock be *off_us* ahead; a node alone looks at that only as it starts."""

    def slow(self, by_us: int) -> None:
        """Make the process act *by_us* later on everything."""
        self.slow_us += by_us  # a sum, because faults may overlap, and each takes back its own part

    @property
    def running(self) -> bool:
        """Whether the process has not ended; a paused process counts as running."""
        return self.life is not Life.ENDED

    def __repr__(self) -> str:
        return f"<{self.name} {self.life.value} at {self.address}>"
