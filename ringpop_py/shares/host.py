"""A keyspace's share at one node, whatever its mode: what routing and serving are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from ringpop_py.partition.server import PartitionServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.columns.pages import ColumnsRequest
    from ringpop_py.errors import KeyspaceError
    from ringpop_py.placing.definition import Definition
    from ringpop_py.placing.table import Table, TableRow
    from ringpop_py.shares.copies import Copies
    from ringpop_py.steward.memory_ownership import MemoryOwnership
    from ringpop_py.steward.ownership import Ownership
    from ringpop_py.steward.rescale_events import RescaleEvent, RescaleEvents
    from ringpop_py.steward.view import NodeView
    from ringpop_py.values.operations import Write
    from ringpop_py.values.requests import ScanRequest

OwnershipT = TypeVar("OwnershipT", bound="Ownership | MemoryOwnership")


class Peers(NamedTuple):
    """How the share of one keyspace sees the other members, and what it tells them.

    Attributes:
        members: who may own partitions now, as far as this node knows.
        spread: has others told of these rows, and of what else there is to know of the keyspace.
        ask: has this node learn what some others know of keyspaces, if they answer.
    """

    members: Callable[[], Sequence[str]]
    spread: Callable[[Sequence[TableRow]], None]
    ask: Callable[[], Awaitable[None]]


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


class OwningHost(Generic[OwnershipT]):
    """A `Host` in either mode: partitions come and go by *ownership*, and are served."""

    def __init__(
        self, node: NodeView, entry: CatalogEntry, peers: Peers, ownership: OwnershipT
    ) -> None:
        self.definition = entry.definition
        self.generation = entry.generation
        self.node = node
        self.ownership = ownership
        self.members = peers.members
        self._peers = peers
        self._server: PartitionServer[Any] = PartitionServer(
            ownership, node.name, node.config.state.wait_s
        )
        self.apply = self._server.apply
        self.read = self._server.read
        self.scan = self._server.scan
        self.columns = self._server.columns
        self.destination = ownership.destination
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

    def already(self) -> list[RescaleEvent]:
        """See `Host`."""
        return self.ownership.already()

    def why_nobody(self, partition: int) -> KeyspaceError:
        """See `Host`."""
        return self.ownership.why_nobody(partition)

    def learn(self, row: list[Any]) -> None:
        """See `Host`."""
        self.ownership.learn(row)

    def merge(self, rows: list[TableRow]) -> None:
        """Take over what others know of the table, as far as it is news."""
        self.ownership.merge(rows)

    def wake(self) -> None:
        """Something has happened that may change who should own what."""
        self._wake.set()

    @property
    def partitions_to_give(self) -> int:
        """How many partitions are here, if there are others that may own them."""
        others = any(name != self.node.name for name in self.members())
        return len(self.ownership.partitions) if others else 0

    async def close(self) -> None:
        """Give up all that is here, in good order."""
        await self.ownership.close()

    def fail(self, why: str) -> None:
        """Serve nothing from now on."""
        self.ownership.fail(why)

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        self.ownership.let_go()
