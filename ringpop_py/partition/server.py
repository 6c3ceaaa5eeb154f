"""Requests for partitions at their owner: writes, reads and scans, part by part.

A request waits, for a limited time, for a partition that is on its way to this node. A request for
a partition at another node is answered with the row of the table that names its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import trio

from ringpop_py.columns.pages import Room
from ringpop_py.errors import (
    KeyspaceError,
    KeyspaceUnknown,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.partition.partition import Presence
from ringpop_py.placing.table import PartitionStatus
from ringpop_py.values.requests import Moved, Scanned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ringpop_py.columns.pages import ColumnsRequest, Wanted
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.placing.table import Table
    from ringpop_py.values.operations import Outcome, Write
    from ringpop_py.values.requests import ScanRequest

F = TypeVar("F")
SCAN_ROWS_MAX: Final = 9_999
SCAN_BYTES_MAX: Final = 2 << 20
"""The most bytes in one part of a reply; the caller then asks for the next page."""


class Held(Protocol):
    """A partition at this node, of either mode."""

    @property
    def presence(self) -> Presence:
        """Whether it is served here."""

    async def write(self, writes: Sequence[Write]) -> list[Outcome | KeyspaceError]:
        """Return the outcome of each of *writes*. Raises KeyspaceError."""

    async def read(self, look: Callable[[KeyedState], F], *, stale: bool = False) -> F:
        """Return what *look* finds in the state. Raises KeyspaceError."""


H = TypeVar("H", bound=Held)
H_co = TypeVar("H_co", bound=Held, covariant=True)


class Holder(Protocol[H_co]):
    """The partitions of a keyspace that are at this node."""

    table: Table
    changed: trio.Event
    dropped: bool
    failure: str

    @property
    def partitions(self) -> Mapping[int, H_co]:
        """The partitions at this node, by number."""

    def row_of(self, number: int) -> list[Any]:
        """Return the row of a partition, for a caller that asked the wrong node."""

    def damage(self, number: int) -> StateDamaged | None:
        """Return why a partition that is to come here cannot be read; None if it can."""


class PartitionServer(Generic[H]):
    """Serves the partitions of one keyspace that are at this node."""

    def __init__(self, ownership: Holder[H], name: str, wait_s: float) -> None:
        self._ownership = ownership
        self._name = name
        self._wait_s = wait_s

    async def apply(self, parts: Sequence[tuple[int, Sequence[Write]]]) -> list[Any]:
        """Commit writes; return for each part its outcomes, or a `PartResult` as elsewhere here."""

        async def one(part: tuple[int, Sequence[Write]]) -> object:
            number, writes = part
            partition = await self._find(number)
            return await partition.write(writes)

        return await _each(one, parts)

    async def read(
        self, parts: Sequence[tuple[int, Sequence[str]]], *, stale: bool = False
    ) -> list[Any]:
        """Return packed values by key; None for absent keys."""

        async def one(part: tuple[int, Sequence[str]]) -> object:
            number, keys = part
            partition = await self._find(number)
            return await partition.read(lambda state: state.packed(keys), stale=stale)

        return await _each(one, parts)

    async def scan(self, request: ScanRequest) -> list[Any]:
        """Return keys and packed values in order for each part, and whether there are more."""

        async def one(number: int) -> object:
            partition = await self._find(number)
            return await partition.read(lambda state: scanned(state, request), stale=request.stale)

        return await _each(one, request.partitions)

    async def columns(self, request: ColumnsRequest) -> list[Any]:
        """Return the wanted `Columns` of each partition, within the limit of a reply."""
        room = Room(request.bytes_max)

        async def one(part: tuple[int, Wanted]) -> object:
            number, wanted = part
            partition = await self._find(number)
            return await partition.read(
                lambda state: room.columns_of(state, wanted), stale=request.stale
            )

        return await _each(one, request.parts)

    async def each(
        self, numbers: Sequence[int], serve: Callable[[H], Awaitable[object]]
    ) -> list[Any]:
        """Return the result of *serve* for each of those partitions, once it is online here."""

        async def one(number: int) -> object:
            return await serve(await self._find(number))

        return await _each(one, numbers)

    async def _find(self, number: int) -> H:
        """Return the partition, online here.

        Raises:
            _Elsewhere: if another node serves it.
            StateDamaged: if it is to come here, but its log in the store cannot be read.
            PartitionUnavailable: if it did not come online in time.
        """
        ownership = self._ownership
        if not 0 <= number < len(ownership.table):
            raise PartitionUnavailable(
                f"keyspace {ownership.table.keyspace!r} has no partition {number}"
            )
        self._refuse_if_failed(number)
        partition = ownership.partitions.get(number)
        if partition is not None and partition.presence is Presence.ONLINE:
            return partition
        with trio.move_on_after(self._wait_s):
            while True:
                self._refuse_if_dropped()
                self._refuse_if_failed(number)
                row = ownership.table[number]
                if row.status is PartitionStatus.ONLINE and row.owner != self._name:
                    raise _Elsewhere(ownership.row_of(number))
                if row.desired != self._name and number not in ownership.partitions:
                    break
                damage = ownership.damage(number)
                if damage is not None:
                    raise StateDamaged(str(damage))
                await ownership.changed.wait()
                partition = ownership.partitions.get(number)
                if partition is not None and partition.presence is Presence.ONLINE:
                    return partition
        raise PartitionUnavailable(f"partition {number} is not online at {self._name}; retry")

    def _refuse_if_failed(self, number: int) -> None:
        ownership = self._ownership
        if ownership.failure:
            row = ownership.table[number]
            if row.status is PartitionStatus.ONLINE and row.owner != self._name:
                raise _Elsewhere(ownership.row_of(number))
            raise PartitionUnavailable(ownership.failure)

    def _refuse_if_dropped(self) -> None:
        if self._ownership.dropped:
            raise KeyspaceUnknown(f"keyspace {self._ownership.table.keyspace!r} was dropped")


class _Elsewhere(Exception):
    def __init__(self, row: list[Any]) -> None:
        super().__init__()
        self.row = row


def scanned(state: KeyedState, request: ScanRequest) -> Scanned:
    """Return one page of *state*."""
    rows: list[tuple[str, bytes]] = []
    size = 0
    limit = min(request.limit, SCAN_ROWS_MAX)
    found = state.scan_packed(request.prefix, request.start, request.end, limit + 1)
    for key, packed in found[:limit]:
        size += len(key) + len(packed)
        if rows and size > SCAN_BYTES_MAX:
            return Scanned(rows, more=True)
        rows.append((key, packed))
    return Scanned(rows, more=len(found) > len(rows))


async def _each(one: Callable[[Any], Awaitable[object]], parts: Sequence[Any]) -> list[Any]:
    """Return the result of *one* for each of *parts*, run concurrently; errors are results, too."""
    results: list[Any] = [None] * len(parts)

    async def at(index: int) -> None:
        try:
            results[index] = await one(parts[index])
        except _Elsewhere as moved:
            results[index] = Moved(moved.row)
        except KeyspaceError as error:
            results[index] = error

    if len(parts) == 1:
        await at(0)
        return results
    async with trio.open_nursery() as nursery:
        for index in range(len(parts)):
            nursery.start_soon(at, index)
    return results
