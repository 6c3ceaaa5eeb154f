"""The base class of the oracles of keyspaces, and which nodes are hindered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

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
        super().__init__(world)
        self.shares = shares
        self.clients = clients
        shares.watchers.append(self)


class Hindered:
    """Which nodes of *world* cannot act in time at present, and since when the others can.

    Args:
        by_store: whether a store that fails hinders the nodes for which it fails.
    """

    def __init__(self, world: World, *, by_store: bool) -> None:
        self._world = world
        self._by_store = by_store
        self._active: Counter[int] = Counter()
        self._well_since: dict[int, int] = {}

    def began(self, operation: Operation, nodes: Sequence[int]) -> None:
        """Note that *operation* affects *nodes* from now on."""
        for node in self._concerned(operation, nodes):
            self._active[node] += 1

    def ended(self, operation: Operation, nodes: Sequence[int]) -> None:
        """Note that *operation* no longer affects *nodes*."""
        for node in self._concerned(operation, nodes):
            self._active[node] -= 1
            self._well_since[node] = self._world.now

    def _concerned(self, operation: Operation, nodes: Sequence[int]) -> Sequence[int]:
        if isinstance(operation, FailStore) and self._by_store:
            return nodes or range(self._world.plan.nodes)
        return nodes if isinstance(operation, HINDERS) else ()

    def well_since(self, node: int) -> int | None:
        """Return the instant since which nothing has hindered *node*; None if something does."""
        return None if self._active[node] > 0 else self._well_since.get(node, 0)
