"""One process of the simulated cluster: a node, its clock, and what waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.messages import Input, Request
    from ringpop_py.swim.node import Node

PPM: Final = 1_000_000


class Life(Enum):
    """What a process is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class OpenCall:
    """A request under way from *caller* to whoever is at *machine*."""

    caller: Process
    call_id: int
    machine: int
    request: Request


@dataclass(slots=True, eq=False)
class Process:
    """A running ringpopd, as the world sees it.

    Attributes:
        serial: counts all processes of a run; the first is 1.
        number: which of the plan's nodes it is.
        machine: where it runs; machines are what the network knows.
        slow_us: how late it acts on everything.
        peers: the processes that it has a connection with.
        answering: requests that it has not answered, by token.
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
    peers: dict[Process, None] = field(default_factory=dict)
    answering: dict[int, OpenCall] = field(default_factory=dict)
    _drift_ppm: int = 0
    _drift_from: int = 0
    _drifted_us: int = 0

    # Its clock.

    def time(self, now: int) -> int:
        """What its clock shows at the world's *now*."""
        if not self._drift_ppm:
            return now + self._drifted_us
        return now + self._drifted_us + (now - self._drift_from) * self._drift_ppm // PPM

    def world_time(self, at: int) -> int:
        """When its clock will show *at*, or a moment later."""
        at -= self._drifted_us
        if self._drift_ppm:
            at = self._drift_from + -((self._drift_from - at) * PPM // (PPM + self._drift_ppm))
        return at

    def drift(self, ppm: int, now: int) -> None:
        """Let its clock run fast by so many millionths from now on."""
        self._drifted_us = self.time(now) - now
        self._drift_ppm, self._drift_from = ppm, now

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.life is not Life.ENDED

    def __repr__(self) -> str:
        return f"<{self.name} {self.life.value} at {self.address}>"
