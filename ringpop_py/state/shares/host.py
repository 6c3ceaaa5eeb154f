"""One keyspace at one node, in either mode: what routing and serving need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ringpop_py.state.shares.server import ONLINE, PartitionServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import trio

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.base.values.operations import Write
    from ringpop_py.base.values.requests import ScanRequest
    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.placement.table import Table
    from ringpop_py.state.rows.pages import ColumnsRequest
    from ringpop_py.state.shares.driver import Peers, StewardDriver
    from ringpop_py.state.shares.rescale_events import RescaleEvent, RescaleEvents
    from ringpop_py.state.shares.server import Held, ServedPartition
    from ringpop_py.state.shares.stale_reads import CopiesHere
    from ringpop_py.state.shares.view import NodeView

DriverT = TypeVar("DriverT", bound="StewardDriver[Any, Any]")


class Host(Protocol):
    """One keyspace at one node."""

    definition: Definition
    generation: int

    @property
    def table(self) -> Table:
        """The owner of each partition, as far as this node knows."""

    @property
    def events(self) -> RescaleEvents:
        """The events of the partitions of this node."""

    @property
    def copies(self) -> CopiesHere | None:
        """The copies to read from if an owner does not answer; None if there is no store."""

    @property
    def changed(self) -> trio.Event:
        """An event that is set at the next change of the table, and replaced then."""

    @property
    def ending(self) -> bool:
        """Whether the node is about to end, so that nobody waits here for news any more."""

    def members(self) -> Sequence[str]:
        """Return the members that may own partitions now, as far as this node knows."""

    def already(self) -> list[RescaleEvent]:
        """Return the events that a new listener has missed."""

    def destination(self, partition: int) -> str:
        """Return the member to ask about *partition*; empty if there is none."""

    def why_nobody(self, partition: int) -> KeyspaceError:
        """Return why there is no member to ask."""

    def learn(self, row: list[Any]) -> None:
        """Merge a row that another node sent. Raises BodyError."""

    def served(self, partition: int) -> Held | None:
        """Return *partition* if this node serves it now: its requests need no errand then."""

    async def each(
        self, numbers: Sequence[int], serve: Callable[[Any], Awaitable[object]]
    ) -> list[Any]:
        """Return what *serve* returns of each of those partitions, or a `PartResult`."""

    async def apply(
        self, parts: Sequence[tuple[int, Sequence[Write]]], *, counts: bool = True
    ) -> list[Any]:
        """Write here; return for each part its outcomes, or a `PartResult`.

        Args:
            counts: whether this is an operation of its own, and not a step of another one.
        """

    async def read(
        self,
        parts: Sequence[tuple[int, Sequence[str]]],
        *,
        stale: bool = False,
        stored: bool = False,
        counts: bool = True,
    ) -> list[Any]:
        """Read here, as `apply`; return for each part the packed values by key."""

    async def scan(self, request: ScanRequest) -> list[Any]:
        """Scan here; return for each part a `Scanned`, or a `PartResult`."""

    async def columns(self, request: ColumnsRequest) -> list[Any]:
        """Read or scan here; return for each part `Columns`, or a `PartResult`."""


class OwningHost(Generic[DriverT]):
    """A `Host` in either mode: partitions come and go by *driver*, and are served."""

    def __init__(self, node: NodeView, entry: CatalogEntry, peers: Peers, driver: DriverT) -> None:
        self.definition = entry.definition
        self.generation = entry.generation
        self.node = node
        self.driver = driver
        self.members = peers.members
        self._peers = peers
        self._server: PartitionServer[Any] = PartitionServer(
            driver, node.name, node.config.state.wait_s, node.proxying.operations
        )
        # Attributes instead of methods: one call less for each request.
        self.apply = self._server.apply
        self.read = self._server.read
        self.scan = self._server.scan
        self.columns = self._server.columns
        self.destination = driver.steward.destination
        self.why_nobody = driver.steward.why_nobody
        self.learn = driver.learn
        self.already = driver.already
        self.table = driver.table
        self.events = driver.events

    @property
    def changed(self) -> trio.Event:
        """See `Host`."""
        return self.driver.changed

    @property
    def ending(self) -> bool:
        """See `Host`."""
        return self.driver.ending

    def served(self, partition: int) -> ServedPartition | None:
        """See `Host`."""
        driver = self.driver
        found: ServedPartition | None = driver.partitions.get(partition)
        if found is None or found.presence is not ONLINE or driver.failure:
            return None
        return found

    async def each(
        self, numbers: Sequence[int], serve: Callable[[Any], Awaitable[object]]
    ) -> list[Any]:
        """See `Host`."""
        return await self._server.each(numbers, serve)

    def redefine(self, entry: CatalogEntry) -> bool:
        """Go by *entry*, if it is a revision of this generation; return whether it is."""
        if entry.dropped or entry.generation != self.generation:
            return False
        self.definition = self.driver.steward.assignments.definition = entry.definition
        self.driver.wake()
        return True

    @property
    def partitions_to_give(self) -> int:
        """The number of partitions here, if there are other members that may own them."""
        others = any(name != self.node.name for name in self.members())
        return len(self.driver.steward.holding) if others else 0
