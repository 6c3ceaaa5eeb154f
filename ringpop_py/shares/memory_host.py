"""A keyspace in memory mode at one node: no store, both sides of a cut serve, and are merged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.catalog.assignments import Assignments
from ringpop_py.errors import ConfigError
from ringpop_py.keyed.versioned import TOMBSTONES_MAX
from ringpop_py.logs import log
from ringpop_py.partition.memory_partition import MemoryPartition
from ringpop_py.partition.server import PartitionServer
from ringpop_py.placing.strategies import strategy_named
from ringpop_py.steward.memory_ownership import MemoryOwnership
from ringpop_py.steward.ownership import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.keyed.joins import Rule
    from ringpop_py.keyed.mergeable import MergeableState
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.placing.definition import Definition
    from ringpop_py.placing.table import Table, TableRow
    from ringpop_py.shares.merge_rules import MergeRules
    from ringpop_py.steward.rescale_events import RescaleEvents
    from ringpop_py.steward.view import NodeView

COLLECT_S: Final = 60.0
"""How often deletes that are old enough are forgotten."""


class MemoryHost:
    """See `Host`.

    Args:
        make_state: makes the state of a partition, empty.
        find_rule: the rule by which copies are merged; raises ConfigError if nobody knows it.
        ask: has this node learn what some others know of keyspaces, if they answer.
    """

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        *,
        make_state: Callable[[Definition], MergeableState],
        members: Callable[[], Sequence[str]],
        find_rule: Callable[[], Rule],
        ask: Callable[[], Awaitable[None]],
        spread: Callable[[Sequence[TableRow]], None],
        spawn: Spawn,
    ) -> None:
        definition = entry.definition
        self.definition = definition
        self.generation = entry.generation
        now_ms = _clock_ms()
        self._name = node.name
        self._ask = ask
        self.members = members

        def make_partition(number: int) -> MemoryPartition:
            return MemoryPartition(number, make_state(definition), now_ms)

        self.ownership = MemoryOwnership(
            node,
            entry,
            Assignments(definition),
            members=self.members,
            make_partition=make_partition,
            find_rule=find_rule,
            spread=spread,
            spawn=spawn,
        )
        server = PartitionServer(self.ownership, node.name, node.config.state.wait_s)
        self.apply = server.apply
        self.read = server.read
        self.scan = server.scan
        self.columns = server.columns
        self.destination = self.ownership.destination
        self.why_nobody = self.ownership.why_nobody
        self.learn = self.ownership.learn
        self.merge = self.ownership.merge
        self.already = self.ownership.already
        self.copies = None
        self._wake = trio.Event()

    @property
    def table(self) -> Table:
        """See `Host`."""
        return self.ownership.table

    @property
    def events(self) -> RescaleEvents:
        """See `Host`."""
        return self.ownership.events

    @property
    def changed(self) -> trio.Event:
        """See `Host`."""
        return self.ownership.changed

    @property
    def assignment_version(self) -> int:
        """None is recorded."""
        return 0

    def hint_assignment(self, version: int) -> None:
        """None is recorded."""

    def wake(self) -> None:
        """Something has happened that may change who should own what."""
        self._wake.set()

    async def run(self) -> None:
        """Have this node's share come and go, until cancelled."""
        # Whoever has just learnt of the keyspace may not know yet who serves it. It would take
        # partitions for nobody's that others have, and not wait for what they have to hand over.
        await self._ask()
        collect_at = trio.current_time() + COLLECT_S
        while True:
            self._wake = trio.Event()
            self.ownership.look()
            if trio.current_time() >= collect_at:
                collect_at += COLLECT_S
                await self._collect()
            with trio.move_on_after(LOOK_S):
                await self._wake.wait()

    async def _collect(self) -> None:
        """Forget deletes that are old enough; say if others had to be forgotten before that."""
        forgotten_count = 0
        for partition in self.ownership.online():
            forgotten_count += partition.collect()
            await trio.lowlevel.checkpoint()
        if forgotten_count:
            name = self.definition.name
            text = (
                f"keyspace {name}: {forgotten_count} deletes were forgotten early, for a partition "
                f"remembers {TOMBSTONES_MAX}: after a cut, another side may bring their keys back"
            )
            log.warning("deletes-forgotten", keyspace=name, count=forgotten_count, text=text)

    @property
    def partitions_to_give(self) -> int:
        """How many partitions are here, if there are others that may own them."""
        others = any(name != self._name for name in self.members())
        return len(self.ownership.partitions) if others else 0

    async def close(self) -> None:
        """Hand over all that is here."""
        await self.ownership.close()

    async def end(self) -> None:
        """The keyspace was dropped: let go of everything."""
        self.ownership.dropped = True
        self.ownership.let_go()
        await trio.lowlevel.checkpoint()

    def fail(self, why: str) -> None:
        """Serve nothing from now on."""
        self.ownership.fail(why)

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        self.ownership.let_go()


def check_settings(definition: Definition, rules: MergeRules) -> None:
    """See that a keyspace in memory mode can be like that. Raises ConfigError."""
    if strategy_named(definition.strategy).recorded or not definition.automatic:
        which = definition.strategy if definition.automatic else "automatic=False"
        message = (
            f"a keyspace in memory mode has no store to record an assignment in, which {which} "
            "needs: choose balanced, ring or range, and automatic=True"
        )
        raise ConfigError(message)
    rules.find(definition.merge)


def _clock_ms() -> Callable[[], int]:
    """The wall clock, but while the process lives it is never slower than its own time."""
    started_at = time.time() - trio.current_time()
    return lambda: int(max(time.time(), started_at + trio.current_time()) * 1000)
