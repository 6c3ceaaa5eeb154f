"""A keyspace's share at one node, whatever its mode: what routing and serving are made of."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ringpop_py.catalog.assignments import Assignments, read_newest, record
from ringpop_py.errors import ConfigError, KeyspaceError
from ringpop_py.jobs.jobs import Jobs
from ringpop_py.jobs.store import JobStore
from ringpop_py.jobs.sweep import JobSweep
from ringpop_py.logs import log
from ringpop_py.partition.logstore import LogStore
from ringpop_py.partition.partition import Partition
from ringpop_py.partition.server import PartitionServer
from ringpop_py.shares.checkpointer import Checkpointer
from ringpop_py.shares.copies import Copies
from ringpop_py.shares.snapshots import Snapshots
from ringpop_py.steward.ownership import LOOK_S, Ownership
from ringpop_py.stores.layout import KeyspaceKeys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.columns.pages import ColumnsRequest
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.partition.tasks import Spawn, Worker
    from ringpop_py.placing.assignment import Assignment
    from ringpop_py.placing.definition import Definition
    from ringpop_py.placing.table import Table, TableRow
    from ringpop_py.steward.rescale_events import RescaleEvent, RescaleEvents
    from ringpop_py.steward.view import NodeView
    from ringpop_py.stores.store import Store
    from ringpop_py.values.operations import Write
    from ringpop_py.values.requests import ScanRequest

SETTLE_S = 1.0
"""An assignment is recorded once the members have been the same for so long."""


class Host(Protocol):
    """One keyspace at one node."""

    definition: Definition
    generation: int

    @property
    def table(self) -> Table:
        """Who owns which partition, as far as this node knows."""

    @property
    def events(self) -> RescaleEvents:
        """What happens to the partitions of this node."""

    @property
    def copies(self) -> Copies | None:
        """What is read from where an owner does not answer; None if there is no store."""

    @property
    def changed(self) -> trio.Event:
        """Is set when the next thing changes in the table."""

    def members(self) -> Sequence[str]:
        """Who may own partitions now, as far as this node knows."""

    def already(self) -> list[RescaleEvent]:
        """What has happened already, for a new listener."""

    def destination(self, partition: int) -> str:
        """Whom to ask about *partition*; empty if there is nobody."""

    def why_nobody(self, partition: int) -> KeyspaceError:
        """Why there is nobody to ask."""

    def learn(self, row: list[Any]) -> None:
        """Somebody else knew who owns a partition. Raises BodyError."""

    async def apply(self, parts: Sequence[tuple[int, Sequence[Write]]]) -> list[Any]:
        """Write here: of each part its outcomes, or a `PartResult`."""

    async def read(
        self, parts: Sequence[tuple[int, Sequence[str]]], *, stale: bool = False
    ) -> list[Any]:
        """Read here: of each part packed values by key, or a `PartResult`."""

    async def scan(self, request: ScanRequest) -> list[Any]:
        """Scan here: of each part rows and whether there are more, or a `PartResult`."""

    async def columns(self, request: ColumnsRequest) -> list[Any]:
        """Read or scan here: of each part `Columns`, or a `PartResult`."""


class DurableHost:
    """See `Host`: the partitions that are here have their logs in *store*.

    Attributes:
        on_over: called when the store says that this generation was dropped.
        ask: has this node learn what some others know of keyspaces, if they answer.
    """

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        store: Store,
        *,
        worker: Worker,
        make_state: Callable[[Definition], KeyedState],
        members: Callable[[], Sequence[str]],
        spread: Callable[[Sequence[TableRow]], None],
        spawn: Spawn,
    ) -> None:
        self.definition = entry.definition
        self.generation = entry.generation
        self.keys = KeyspaceKeys(node.config.cluster, entry.name, entry.generation)
        self.store = store
        self.worker = worker
        self.assignments = Assignments(entry.definition)
        self.node = node
        self.on_over: Callable[[], None] = lambda: None
        self.ask: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self._make_state = make_state
        self.members = members
        self._spawn = spawn
        self._spread = spread
        self._hinted = trio.Event()
        self.ownership = Ownership(
            node,
            entry,
            self.assignments,
            members=members,
            make_partition=self._make_partition,
            spread=spread,
            is_over=self._is_over,
            spawn=spawn,
        )
        self._server = PartitionServer(self.ownership, node.name, node.config.state.wait_s)
        self.checkpointer = Checkpointer(self.ownership, entry, node.config.state, worker)
        self.apply = self._server.apply
        self.read = self._server.read
        self.scan = self._server.scan
        self.columns = self._server.columns
        self.destination = self.ownership.destination
        self.why_nobody = self.ownership.why_nobody
        self.learn = self.ownership.learn
        self.merge = self.ownership.merge
        self.already = self.ownership.already
        self.snapshots = Snapshots(self.keys, store, worker, self._server)
        self.jobs = Jobs(
            node,
            JobStore(store, self.keys, entry.definition.partitions),
            worker,
            server=self._server,
            destinations=self,
            spawn=spawn,
        )
        self._sweep = JobSweep(self.jobs)
        self.copies = Copies(self._make_copy, spawn)
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

    def wake(self) -> None:
        """Something has happened that may change who should own what."""
        self._wake.set()

    async def run(self) -> None:
        """Have this node's share come and go, and checkpoints written, until cancelled.

        Raises:
            ConfigError: pyarrow, which checkpoints take, is not installed.
        """
        try:
            await self.worker.run(import_module, "ringpop_py.partition.checkpoints")  # loads slowly
        except ModuleNotFoundError as error:
            message = f"durable keyspaces need {error.name}: pip install 'ringpop_py[state]'"
            raise ConfigError(message) from None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.checkpointer.run)
            nursery.start_soon(self._sweep.run, partial(self._acts, "/jobs"))
            if self.assignments.recorded:
                nursery.start_soon(self._follow_assignments)
                nursery.start_soon(self._keep_assigned)
            asked = self.definition.min_cluster_size == 1
            while True:
                self._wake = trio.Event()
                if self.node.ready and not asked:
                    # Where members are too few, others may know that there once were enough.
                    await self.ask()
                    asked = True
                self.ownership.look()
                with trio.move_on_after(LOOK_S):
                    await self._wake.wait()

    def _acts(self, what: str = "") -> bool:
        """Whether it is this node that does *what* any of the members could do for all of them.

        Members without our store could not. Where views differ, two nodes do it, or for a moment
        none.
        """
        key = f"keyspace/{self.definition.name}{what}"
        return self.node.ring.lookup_among(key, self.members()) == self.node.name

    async def _is_over(self) -> bool:
        if await self.worker.run(self.store.get, self.keys.dropped) is None:
            return False
        self.on_over()
        return True

    @property
    def partitions_to_give(self) -> int:
        """How many partitions are here, if there are others that may own them."""
        others = any(name != self.node.name for name in self.members())
        return len(self.ownership.partitions) if others else 0

    async def close(self) -> None:
        """Give up all that is here, in good order."""
        await self.ownership.close()

    async def end(self) -> None:
        """The keyspace was dropped."""
        await self.ownership.end()

    def fail(self, why: str) -> None:
        """Serve nothing from now on."""
        self.ownership.fail(why)

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        self.ownership.let_go()

    def _make_partition(self, number: int, lost: Callable[[Partition, str], None]) -> Partition:
        return Partition(
            number,
            node_name=self.node.name,
            state=self._make_state(self.definition),
            store=LogStore(self.store, self.keys.partition(number), self.worker),
            config=self.node.config.state,
            spawn=self._spawn,
            lost=lost,
        )

    def _make_copy(self, number: int) -> Partition:
        """A partition to read from, which will never be online here."""
        return self._make_partition(number, lambda _partition, _to: None)

    # Recorded assignments.

    @property
    def assignment_version(self) -> int:
        """Of the newest recorded assignment that is known here; 0 if there is none."""
        newest = self.assignments.newest
        return newest.version if newest is not None else 0

    def hint_assignment(self, version: int) -> None:
        """Somebody knows of an assignment of that *version*: see whether the store has it."""
        if self.assignments.recorded and version > self.assignment_version:
            self._hinted.set()

    def learn_assignment(self, assignment: Assignment) -> None:
        """The store has *assignment*; if that is news, follow it, and have others look, too."""
        if self.assignments.learn(assignment):
            self.wake()
            self._spread([])

    async def _follow_assignments(self) -> None:
        """See what is recorded: when somebody hints at it, and from time to time."""
        while True:
            self._hinted = trio.Event()
            try:
                newest = await self.worker.run(read_newest, self.store, self.keys, len(self.table))
                if newest is not None:
                    self.learn_assignment(newest)
            except KeyspaceError as error:
                log.warning("assignment-not-read", keyspace=self.definition.name, text=str(error))
            with trio.move_on_after(SETTLE_S):
                await self._hinted.wait()

    async def _keep_assigned(self) -> None:
        """Record what follows from who is there."""
        seen: Sequence[str] = ()
        while True:
            members = self.members()
            if members == seen:
                try:
                    await self._record_what_follows(members)
                except KeyspaceError as error:
                    name = self.definition.name
                    log.warning("assignment-not-recorded", keyspace=name, text=str(error))
            seen = members
            await trio.sleep(SETTLE_S)

    async def _record_what_follows(self, members: Sequence[str]) -> None:
        is_first = self.assignments.newest is None
        if not self._acts() or (is_first and len(members) < self.definition.min_cluster_size):
            return
        wanted = self.assignments.wanted(members)
        if wanted is None:
            return
        if await self.worker.run(record, self.store, self.keys, wanted):
            self.learn_assignment(wanted)
            log.info("assignment-recorded", keyspace=self.definition.name, version=wanted.version)
