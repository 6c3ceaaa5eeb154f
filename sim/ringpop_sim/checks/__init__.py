"""The oracles: each watches a run, and says when the protocol has broken its word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ringpop_py.membership.effects import Effect
    from ringpop_py.membership.messages import Input
    from ringpop_sim.process import Process
    from ringpop_sim.traffic import Attempt, Ended
    from ringpop_sim.world import World


@dataclass(frozen=True, slots=True)
class Broken:
    """*invariant* (for example ``S4``) did not hold at *at_us*; *detail* is for a person."""

    invariant: str
    at_us: int
    detail: str


class Check:
    """One oracle; it looks, and changes nothing. Each hook has a default that does nothing.

    Attributes:
        invariants: what it watches, by the names of ``docs/simulator.md``.
        wants_facts, wants_inputs, wants_duties: whether `fact`, `input`, `duty` are to be called:
            an oracle that is not asked costs nothing.
    """

    invariants: ClassVar[tuple[str, ...]] = ()
    wants_facts: ClassVar[bool] = False
    wants_inputs: ClassVar[bool] = False
    wants_duties: ClassVar[bool] = False
    BROKEN_MAX: ClassVar[int] = 20

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[Broken] = []

    def broke(self, invariant: str, detail: str) -> None:
        """Note that *invariant* does not hold now; the first few times it does not."""
        if len(self.broken) < self.BROKEN_MAX:
            self.broken.append(Broken(invariant, self.world.now, detail))

    def started(self, _process: Process) -> None:
        """*process* runs from now on (a revived one: again)."""

    def ended(self, _process: Process) -> None:
        """*process* has ended."""

    def input(self, _process: Process, _message: Input) -> None:
        """*message* is about to be given to the node of *process*."""

    def duty(self, _process: Process, _effect: Effect) -> None:
        """The node of *process* asks for a `Call` or an `Answer`."""

    def fact(self, _process: Process, _effect: Effect) -> None:
        """The node of *process* told something of itself."""

    def attempt(self, _attempt: Attempt) -> None:
        """An owner was asked to handle a request, and did, or refused."""

    def request_ended(self, _ended: Ended) -> None:
        """A request of the traffic has come to its end."""

    def finish(self) -> None:
        """The run is over: say what has not come true."""
