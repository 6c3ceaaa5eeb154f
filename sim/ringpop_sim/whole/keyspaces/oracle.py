"""The base class of the oracles of keyspaces, and of those that know which nodes are hindered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from ringpop_sim.checks import Check
from ringpop_sim.plans.plan import Clock, Crash, FailStore, Pause, Slow, Stop
from ringpop_sim.whole.keyspaces.shares import ShareWatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.whole.keyspaces.clients import DaemonClients
    from ringpop_sim.whole.keyspaces.shares import DaemonShares
    from ringpop_sim.world.world import World

HINDERS = (Clock, Crash, Pause, Slow, Stop)
"""Faults of a node that keep it from acting in time; a cut network does not, nor does a drain."""


class KeyspaceOracle(Check, ShareWatcher):
    """An oracle of keyspaces."""

    def __init__(self, world: World, shares: DaemonShares, clients: DaemonClients) -> None:
        self.shares = shares
        self.clients = clients
        shares.watchers.append(self)
        super().__init__(world)


class HinderedCheck(Check):
    """A check that knows which nodes cannot act in time at present, and since when the others can.

    Attributes:
        BY_STORE: whether a store that fails hinders the nodes for which it fails.
    """

    BY_STORE: ClassVar[bool] = False

    def begin(self) -> None:
        self._active: Counter[int] = Counter()
        self._well_since: dict[int, int] = {}

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        for node in self._concerned(operation, nodes):
            self._active[node] += 1

    def fault_ended(self, operation: Operation, nodes: Sequence[int]) -> None:
        for node in self._concerned(operation, nodes):
            self._active[node] -= 1
            self._well_since[node] = self.world.now

    def _concerned(self, operation: Operation, nodes: Sequence[int]) -> Sequence[int]:
        if isinstance(operation, FailStore) and self.BY_STORE:
            return nodes or range(self.world.plan.nodes)
        return nodes if isinstance(operation, HINDERS) else ()

    def well_since(self, node: int) -> int | None:
        """Return the instant since which nothing has hindered *node*; None if something does."""
        return None if self._active[node] > 0 else self._well_since.get(node, 0)
