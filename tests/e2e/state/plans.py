"""What is done to a cluster during a run, as data; a random plan from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

KINDS = (
    "kill",
    "stop",
    "pause",
    "drain",
    "leave",
    "isolate",
    "deafen",
    "move",
    "store",
    "full",
)
"""What can happen to a node: it is killed; ended in good order; stopped by SIGSTOP; drained; taken
out of the ring; cut off from all others; unable to reach one other; killed and started at another
address. Or to the store: nobody can use it; there is no room left."""

FREE_OF_CUTS = tuple(kind for kind in KINDS if kind not in {"isolate", "deafen", "full"})
"""Those that need no rights."""

OF_THE_STORE = {"store", "full"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to a node at a time, and is undone later.

    Attributes:
        other: of ``deafen``: whom the node does not reach.
        clock_ahead_s: of what starts the node anew: the error of its clock afterwards.
    """

    kind: str
    node: int
    at_s: float
    lasts_s: float
    other: int = 0
    clock_ahead_s: float = 0.0

    def __str__(self) -> str:
        whom = f"{self.node}-{self.other}" if self.kind == "deafen" else f"{self.node}"
        what = "" if self.kind in OF_THE_STORE else f" {whom}"
        return f"{self.kind}{what} {self.at_s:.1f}+{self.lasts_s:.1f}s"


def random_plan(
    rng: random.Random, *, nodes: int, duration_s: float, kinds: Collection[str] = KINDS
) -> list[Fault]:
    """Faults within *duration_s*, by time. One node has one at a time, and some nodes have none."""
    faults: list[Fault] = []
    busy_until = [0.0] * nodes
    at_s = rng.uniform(0.2, 0.8)
    while at_s < duration_s - 0.5:
        free = [n for n in range(nodes) if busy_until[n] <= at_s]
        if len(free) > nodes // 2:
            node = free[rng.randrange(len(free))]
            kind = sorted(kinds)[rng.randrange(len(kinds))]
            # Often around the time that it takes to be given up.
            longest = 0.8 if kind in OF_THE_STORE else min(3.5, duration_s - at_s)
            lasts_s = rng.uniform(0.1, longest)
            ahead_s = rng.uniform(-3600, 3600) if rng.random() < 0.3 else 0.0
            other = (node + rng.randrange(1, nodes)) % nodes
            faults.append(Fault(kind, node, at_s, lasts_s, other, ahead_s))
            busy_until[node] = at_s + lasts_s + 0.3
        at_s += rng.expovariate(1.6)
    return faults
