"""The oracles: each watches a run, and says when the protocol has broken its word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ringpop_sim.world.watcher import Watcher

if TYPE_CHECKING:
    from ringpop_sim.world.world import World


@dataclass(frozen=True, slots=True)
class Broken:
    """*invariant* (for example ``S4``) did not hold at *at_us*; *detail* is for a person."""

    invariant: str
    at_us: int
    detail: str


class Check(Watcher):
    """One oracle: it looks, and changes nothing.

    Attributes:
        invariants: what it watches, by the names of ``docs/simulator.md``.
    """

    invariants: ClassVar[tuple[str, ...]] = ()
    BROKEN_MAX: ClassVar[int] = 20

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[Broken] = []

    def broke(self, invariant: str, detail: str) -> None:
        """Note that *invariant* does not hold now; the first few times it does not."""
        if len(self.broken) < self.BROKEN_MAX:
            self.broken.append(Broken(invariant, self.world.now, detail))

    def finish(self) -> None:
        """The run is over: say what has not come true."""
