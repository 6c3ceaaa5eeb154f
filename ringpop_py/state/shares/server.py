"""Requests for partitions at their owner: writes, reads and scans, part by part.

A request waits, for a limited time, for a partition that is on its way to this node. A request for
a partition at another node is answered with the row of the table that names its owner.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import trio

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable, StateDamaged
from ringpop_py.base.metering import TIMED_MASK
from ringpop_py.base.values.requests import Moved, PartResult
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.placement.table import ServedElsewhere
from ringpop_py.state.rows.pages import Room

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from ringpop_py.base.metering import Operations, Tally
    from ringpop_py.base.values.operations import Outcome, Write
    from ringpop_py.base.values.requests import ScanRequest
    from ringpop_py.state.placement.table import Table
    from ringpop_py.state.rows.pages import ColumnsRequest
    from ringpop_py.state.table.keyed import KeyedState

F = TypeVar("F")
W = TypeVar("W")


class Held(Protocol):
    """A partition at this node, of either mode."""

    number: int

    @property
    def state(self) -> KeyedState:
        """What it holds."""

    @property
    def presence(self) -> Presence:
        """Whether it is served here."""

    async def write(
        self, writes: Sequence[Write], deadline: float = inf
    ) -> list[Outcome | KeyspaceError]:
        """Return the outcome of each of *writes*. Raises KeyspaceError."""

    async def read(
        self, look: Callable[[KeyedState], F], deadline: float = inf, *, stale: bool = False
    ) -> F:
        """Return what *look* finds in the state. Raises KeyspaceError."""


class ServedPartition(Held, Protocol):
    """A partition at this node for callers without a task of their own: requests of others.

    A result is what `write` or `read` returns or, where they raise it, an error.
    """

    def begin_write(self, writes: Sequence[Write], done: Callable[[object], None]) -> object | None:
        """Begin to commit *writes*; return the result if it is there now.

        Otherwise return None, and call *done* with the result later. It must not raise.
        """

    def begin_read(
        self, look: Callable[[KeyedState], F], done: Callable[[object], None], *, stale: bool
    ) -> object | None:
        """Begin to read, as `begin_write` does."""


ONLINE: Final = Presence.OWNED  # looked up once: each request asks

H = TypeVar("H", bound=Held)
H_co = TypeVar("H_co", bound=Held, covariant=True)


class Holder(Protocol[H_co]):
    """The partitions of a keyspace that are at this node.

    Attributes:
        failure: why nothing is served here any longer; empty while the share has not failed.
    """

    table: Table
    changed: trio.Event
    failure: str

    @property
    def partitions(self) -> Mapping[int, H_co]:
        """The partitions at this node, by number."""

    def is_coming(self, number: int) -> bool:
        """Return whether to wait for a partition; see `Holdings`."""

    def obstacle(self, number: int) -> KeyspaceError | None:
        """Return why the last try to bring a partition here failed; None if it did not."""


class PartitionServer(Generic[H]):
    """Serves the partitions of one keyspace that are at this node.

    Attributes:
        operations: counts what it has served. Errors that do not settle a request are not counted
            here: it goes on elsewhere, and the node that gives it up counts it.
    """

    def __init__(self, holder: Holder[H], name: str, wait_s: float, operations: Operations) -> None:
        self.operations = operations
        self._holder = holder
        self._name = name
        self._wait_s = wait_s

    async def apply(
        self, parts: Sequence[tuple[int, Sequence[Write]]], *, counts: bool = True
    ) -> list[Any]:
        """Commit writes; return for each part its outcomes, or a `PartResult` as elsewhere here."""
        began_at, tally = trio.current_time(), self.operations.write
        results = await self._each(parts, lambda partition, writes: partition.write(writes))
        if counts:
            for part in results:
                if isinstance(part, list):
                    tally.add(part)
            _time(tally, began_at)
        return results

    async def read(
        self,
        parts: Sequence[tuple[int, Sequence[str]]],
        *,
        stale: bool = False,
        stored: bool = False,
        counts: bool = True,
    ) -> list[Any]:
        """Return packed values by key; None for absent keys."""
        began_at, tally = trio.current_time(), self.operations.read
        results = await self._each(
            parts,
            lambda partition, keys: partition.read(
                lambda state: state.packed(keys, stored=stored), stale=stale
            ),
        )
        if counts:
            tally.done += sum(len(part) for part in results if isinstance(part, list))
            _time(tally, began_at)
        return results

    async def scan(self, request: ScanRequest) -> list[Any]:
        """Return keys and packed values in order for each part, and whether there are more."""
        began_at, tally = trio.current_time(), self.operations.scan
        results = await self.each(
            request.partitions,
            lambda partition: partition.read(
                lambda state: state.page(request), stale=request.stale
            ),
        )
        tally.done += not all(isinstance(part, PartResult) for part in results)
        _time(tally, began_at)
        return results

    async def columns(self, request: ColumnsRequest) -> list[Any]:
        """Return the wanted `Columns` of each partition, within the limit of a reply."""
        room = Room(request.bytes_max)
        results = await self._each(
            request.parts,
            lambda partition, wanted: partition.read(
                lambda state: room.columns_of(state, wanted), stale=request.stale
            ),
        )
        served = [part for part in results if not isinstance(part, PartResult)]
        if request.scans:
            self.operations.scan.done += bool(served)
        else:
            self.operations.read.done += sum(columns.rows_count for columns in served)
        return results

    def each(
        self, numbers: Sequence[int], serve: Callable[[H], Awaitable[object]]
    ) -> Coroutine[Any, Any, list[Any]]:
        """Return the result of *serve* for each of those partitions, once it is online here."""
        parts = [(number, None) for number in numbers]
        return self._each(parts, lambda partition, _: serve(partition))

    async def _each(
        self,
        parts: Sequence[tuple[int, W]],
        serve: Callable[[H, W], Awaitable[object]],
        results: list[Any] | None = None,
        index: int = 0,
    ) -> list[Any]:
        """Return a result for each of *parts*; with *results*, fill in only that at *index*."""
        if results is None:
            results = [None] * len(parts)
            if len(parts) != 1:  # one part, the usual case, needs no nursery
                async with trio.open_nursery() as nursery:
                    for each in range(len(parts)):
                        nursery.start_soon(self._each, parts, serve, results, each)
                return results
        number, wanted = parts[index]
        holder = self._holder
        partition = holder.partitions.get(number)
        # One part that fails does not spoil the others: its error is its result.
        try:
            if partition is None or partition.presence is not ONLINE or holder.failure:
                partition = await self._wait_for(number)
            results[index] = await serve(partition, wanted)
        except ServedElsewhere as moved:
            results[index] = Moved(moved.row)
        except KeyspaceError as error:
            results[index] = error
        return results

    async def _wait_for(self, number: int) -> H:
        holder = self._holder
        with trio.move_on_after(self._wait_s):
            while holder.is_coming(number):
                if holder.obstacle(number) is not None:
                    break
                await holder.changed.wait()
                partition = holder.partitions.get(number)
                if partition is not None and partition.presence is ONLINE:
                    return partition
        obstacle = holder.obstacle(number)
        if isinstance(obstacle, StateDamaged):
            raise StateDamaged(str(obstacle))  # a new one: many callers raise it
        if obstacle is not None:
            text = f"partition {number} cannot come to {self._name} yet: {obstacle}"
            raise PartitionUnavailable(text)
        raise PartitionUnavailable(f"partition {number} is not online at {self._name}; retry")


def _time(tally: Tally, began_at: float) -> None:
    if tally.done & TIMED_MASK == 1:
        tally.seconds.observe(trio.current_time() - began_at)
