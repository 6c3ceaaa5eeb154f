"""What the oracles of keyspaces are told, and what they look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_sim.checks import Check
from ringpop_sim.keyspaces.homes import HomeWatcher

if TYPE_CHECKING:
    from ringpop_sim.keyspaces.clients import Clients
    from ringpop_sim.keyspaces.homes import Homes
    from ringpop_sim.world.world import World


class KeyspaceOracle(Check, HomeWatcher):
    """An oracle of keyspaces."""

    def __init__(self, world: World, homes: Homes, clients: Clients) -> None:
        super().__init__(world)
        self.homes = homes
        self.clients = clients
        homes.watchers.append(self)
