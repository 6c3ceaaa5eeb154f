"""A durable keyspace's share at one node: its partitions have their logs in a store."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import ConfigError, StoreUnavailable
from ringpop_py.base.supervision import keep_running
from ringpop_py.state.catalog.high_water import ReachedBook
from ringpop_py.state.catalog.journalstore import JournalStore, KnownRecords, StoreHealth
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.durable.checkpointer import Checkpointer
from ringpop_py.state.durable.copies import Copies
from ringpop_py.state.durable.driver import DurableDriver
from ringpop_py.state.durable.partition import Partition, PartitionCopy
from ringpop_py.state.durable.snapshots import Snapshots
from ringpop_py.state.durable.store_watch import LOOK_S, StoreAccess, StoreWatch
from ringpop_py.state.durable.sweeper import Sweeper
from ringpop_py.state.durable.writer import Writer
from ringpop_py.state.jobs.jobs import Jobs
from ringpop_py.state.jobs.store import JobStore
from ringpop_py.state.partition.machine import Machine
from ringpop_py.state.placement.assignment import Assignments
from ringpop_py.state.placement.keeper import Keeper
from ringpop_py.state.shares.driver import ServersSeen
from ringpop_py.state.shares.host import OwningHost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.shares.driver import Peers
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.tasks import Spawn, Worker


class DurableHost(OwningHost[DurableDriver]):
    """See `Host`.

    Args:
        worker: calls the store.
        make_state: makes an empty state of a partition.
        on_over: called when the store says that this generation was dropped.
    """

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        worker: Worker,
        *,
        make_state: Callable[[Definition], KeyedState],
        peers: Peers,
        spawn: Spawn,
        on_over: Callable[[], None],
    ) -> None:
        self.keys = KeyspaceKeys(node.config.cluster, entry.name, entry.generation)
        self.store = worker.store
        self.worker = worker
        self.assignments = Assignments(entry.definition)
        self._make_state = make_state
        self._on_over = on_over
        state = node.config.state
        reached = ReachedBook(worker.store, self.keys)
        self._known = KnownRecords(reached)
        health = StoreHealth()
        steps, beside = (JournalStore(self.keys, worker, health=health) for _ in range(2))
        self.machine: Machine[Partition] = Machine(
            entry.name,
            entry.generation,
            self.assignments,
            ServersSeen(node, peers.members),
            state,
            steps.make_name,
            self._make_partition,
        )
        self.writer = Writer(self.machine, steps, beside, spawn, node.channel.wheel)
        driver = DurableDriver(
            self.machine,
            Keeper(self.assignments, peers.members, self._acts),
            node,
            peers,
            spawn,
            self,
        )
        super().__init__(node, entry, peers, driver)
        logs = JournalStore(self.keys, worker)
        self.sweeper = Sweeper(self.keys, worker, self.writer, logs, reached)
        self.checkpointer = Checkpointer(driver, self.writer, entry, state, worker, reached)
        access = StoreAccess(node, entry, self.keys, worker, health)
        self.watch = StoreWatch(node.name, self.machine, access, peers.members)
        self.snapshots = Snapshots(self.keys, self.store, worker, self._server)
        self.jobs = Jobs(
            node,
            JobStore(self.store, self.keys, entry.definition.placing),
            worker,
            server=self._server,
            destinations=self,
            spawn=spawn,
        )
        self.copies = Copies(self._make_copy, spawn, self.forget_records)

    async def run(self) -> None:
        """Gain and give partitions, and write checkpoints, until cancelled.

        Raises:
            ConfigError: if pyarrow, which checkpoints need, is not installed.
        """
        try:
            await self.worker.run(
                import_module, "ringpop_py.state.catalog.checkpoints"
            )  # loads slowly
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"durable keyspaces need {error.name}: pip install 'ringpop_py[state]'"
            ) from None
        async with trio.open_nursery() as nursery:
            for what, duty in self._duties().items():
                name = f"{what} of keyspace {self.definition.name}"
                nursery.start_soon(keep_running, name, duty)
            if self.definition.min_cluster_size > 1:
                nursery.start_soon(self._look_for_claims)
                await self.driver.wait_ready()
                # Even if there are too few members, others may know that there were enough.
                await self._peers.ask()
            await self.driver.run()

    def _duties(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the work beside that of the driver: a bug in it leaves the partitions served."""
        return {
            "the checkpoints": self.checkpointer.run,
            "the watch of the store": self.watch.run,
            "the sweep of jobs": partial(self.jobs.run_sweeps, partial(self._acts, "/jobs")),
            "the sweep of journals": partial(self.sweeper.run, partial(self._acts, "/journals")),
        }

    async def _look_for_claims(self) -> None:
        """Find out from the store whether partitions were assigned, if no other member says so."""
        while not self.table.assigned:
            try:
                keys = await self.worker.run(self.store.list, self.keys.all_partitions)
            except StoreUnavailable:
                await trio.sleep(LOOK_S)
                continue
            if any(map(self.keys.is_claim, keys)):
                self.table.note_claims()
                self.driver.wake()
            return

    def _acts(self, what: str = "") -> bool:
        # One member does *what* for all. Members without our store could not. While views differ,
        # two nodes do it, or for a moment no node.
        key = f"keyspace/{self.definition.name}{what}"
        return self.node.placement.holders.lookup_among(key, self.members()) == self.node.name

    async def is_over(self) -> bool:
        """See `KeyspaceLogs`."""
        if await self.worker.run(self.store.get, self.keys.dropped) is None:
            return False
        self._on_over()
        return True

    def _make_partition(self, number: int) -> Partition:
        state, store = self._made()
        return Partition(number, state=state, store=store, writer=self.writer)

    def _make_copy(self, number: int) -> PartitionCopy:
        state, store = self._made()
        journal = self.machine.journal
        return PartitionCopy(number, state=state, store=store, journal=journal)

    def _made(self) -> tuple[KeyedState, JournalStore]:
        store = JournalStore(self.keys, self.worker, self._known, self.watch.access.health)
        return self._make_state(self.definition), store

    def forget_records(self) -> None:
        """See `KeyspaceLogs`."""
        if not self.machine.arriving and not self.copies:
            self._known.clear()

    @property
    def assignment_version(self) -> int:
        """The version of the newest recorded assignment known here; 0 if there is none."""
        return self.driver.keeper.version

    def hint_assignment(self, version: int) -> None:
        """See `Keeper.hint`."""
        self.driver.hint(version)
