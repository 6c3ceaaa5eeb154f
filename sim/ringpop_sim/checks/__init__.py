"""The oracles: each one watches a run and reports when the protocol breaks an invariant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ringpop_sim.world.watcher import Watcher

if TYPE_CHECKING:
    from ringpop_sim.world.world import World


@dataclass(frozen=True, slots=True)
class Broken:
    """A violation: *invariant* (for example ``S4``) did not hold at *at_us*; *detail* says how."""

    invariant: str
    at_us: int
    detail: str


class Check(Watcher):
    """One oracle. It observes the run and never changes it.

    Attributes:
        invariants: the invariants that it watches, by their names in ``docs/simulator.md``.
    """

    invariants: ClassVar[tuple[str, ...]] = ()
    BROKEN_MAX: ClassVar[int] = 20  # a fault often breaks it again at each later event

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[Broken] = []
        self.begin()

    def begin(self) -> None:
        """Begin to observe: nothing has happened yet."""

    def broke(self, invariant: str, detail: str) -> None:
        """Record that *invariant* does not hold now; only the first `BROKEN_MAX` times are kept."""
        if len(self.broken) < self.BROKEN_MAX:
            self.broken.append(Broken(invariant, self.world.now, detail))

    def finish(self) -> None:
        """Report, at the end of the run, what should have happened by now and has not."""
