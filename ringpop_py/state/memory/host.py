"""A keyspace in memory mode at one node: no store; both sides of a cut serve, and are merged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running
from ringpop_py.state.memory.driver import MemoryDriver
from ringpop_py.state.memory.partition import MemoryPartition
from ringpop_py.state.memory.steward import MemorySteward
from ringpop_py.state.memory.versioned import TOMBSTONES_MAX
from ringpop_py.state.placement.assignment import Assignments
from ringpop_py.state.placement.strategies import strategy_named
from ringpop_py.state.shares.driver import MembersSeen
from ringpop_py.state.shares.host import OwningHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.memory.merge_rules import MergeRules
    from ringpop_py.state.memory.mergeable import MergeableState
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.shares.driver import Peers
    from ringpop_py.state.shares.server import ServedPartition
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.table.joins import Rule
    from ringpop_py.state.tasks import Spawn

COLLECT_S: Final = 60.0
"""The seconds between two times at which old deletes are forgotten."""


class MemoryHost(OwningHost[MemoryDriver]):
    """See `Host`.

    Args:
        make_state: makes an empty state of a partition.
        find_rule: returns the rule by which copies are merged. Raises ConfigError if this node
            does not know it.
    """

    copies = None

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        *,
        make_state: Callable[[Definition], MergeableState],
        peers: Peers,
        find_rule: Callable[[], Rule],
        spawn: Spawn,
    ) -> None:
        started_at = time.time() - trio.current_time()

        def now_ms() -> int:
            # Versions of values come from it: if the wall clock is set back, a later write still
            # has to win.
            return int(max(time.time(), started_at + trio.current_time()) * 1000)

        steward = MemorySteward(
            entry.name,
            entry.generation,
            Assignments(entry.definition),
            MembersSeen(node, peers.members),
            handoffs_max=node.config.state.handoffs_max,
        )
        driver = MemoryDriver(
            steward,
            node,
            peers,
            spawn,
            make_partition=lambda n: MemoryPartition(n, make_state(entry.definition), now_ms),
            find_rule=find_rule,
        )
        super().__init__(node, entry, peers, driver)

    def served(self, partition: int) -> ServedPartition | None:
        """See `Host`. After a cut, a copy may be here whose owner, by the table, is elsewhere."""
        is_here = self.destination(partition) == self.node.name
        return super().served(partition) if is_here else None

    @property
    def assignment_version(self) -> int:
        """0, because nothing is recorded without a store."""
        return 0

    def hint_assignment(self, version: int) -> None:
        """Do nothing: see `assignment_version`."""

    async def run(self) -> None:
        """Gain and give partitions, until cancelled."""
        # A node that has just learnt of the keyspace may not know which members serve it. Without
        # asking, it would serve partitions that others have, not wait until they are handed over.
        await self._peers.ask()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.driver.run)
            # The share may be all that holds the values: what only tidies does not end it.
            await keep_running(f"the tidying of keyspace {self.definition.name}", self._tidy)

    async def _tidy(self) -> None:
        while True:
            await trio.sleep(COLLECT_S)
            await self._collect()

    async def _collect(self) -> None:
        forgotten_count = 0
        for partition in list(self.driver.partitions.values()):
            forgotten_count += partition.collect()  # those that had to go before their time
            await trio.lowlevel.checkpoint()
        if forgotten_count:
            name = self.definition.name
            text = (
                f"keyspace {name}: {forgotten_count} deletes were forgotten early, because a"
                f" partition remembers {TOMBSTONES_MAX}: after a network cut, their keys may return"
            )
            log.warning("deletes-forgotten", keyspace=name, count=forgotten_count, text=text)


def check_settings(definition: Definition, rules: MergeRules) -> None:
    """Check the settings of a keyspace in memory mode. Raises ConfigError."""
    if strategy_named(definition.strategy).recorded or not definition.automatic:
        which = definition.strategy if definition.automatic else "automatic=False"
        raise ConfigError(
            f"a keyspace in memory mode has no store to record an assignment in, which {which} "
            "needs: choose balanced, ring or range, and automatic=True"
        )
    rules.find(definition.merge, definition.name)
