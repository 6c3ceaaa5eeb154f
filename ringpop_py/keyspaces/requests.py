"""Requests for partitions of a keyspace that this node may serve itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringpop_py.client.requests import ReadsOf, ScansOf, WritesOf
from ringpop_py.columns.pages import ColumnsOf, ColumnsRequest
from ringpop_py.partition.server import scanned
from ringpop_py.shares.snapshots import SnapshotRequest
from ringpop_py.values.requests import ApplyRequest, ReadRequest, ScanRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.shares.host import Host

PartsRequest = ApplyRequest | ReadRequest | ScanRequest | ColumnsRequest | SnapshotRequest


def numbers_of(request: PartsRequest) -> Sequence[int]:
    """Return the partitions that *request* is about, in its order: there is a result for each."""
    if isinstance(request, ScanRequest | SnapshotRequest):
        return request.partitions
    return [number for number, _ in request.parts]


@dataclass(frozen=True, slots=True)
class WritesHere(WritesOf):
    """Writes, which this node may serve as well."""

    host: Host

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `PartitionRequest`."""
        return await self.host.apply([(number, self.parts[number]) for number in numbers])


@dataclass(frozen=True, slots=True)
class ReadsHere(ReadsOf):
    """Reads, which this node may serve as well."""

    host: Host

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `PartitionRequest`."""
        parts = [(number, self.parts[number]) for number in numbers]
        return await self.host.read(parts, stale=self.stale)

    def look(self, number: int) -> Callable[[KeyedState], Any]:
        """See `StaleRequest`."""
        keys = self.parts[number]
        return lambda state: state.packed(keys)


@dataclass(frozen=True, slots=True)
class ScansHere(ScansOf):
    """Scans, which this node may serve as well."""

    host: Host

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `PartitionRequest`."""
        return await self.host.scan(self.only(numbers))

    def look(self, _number: int) -> Callable[[KeyedState], Any]:
        """See `StaleRequest`."""
        return lambda state: scanned(state, self.request)


class ColumnsHere(ColumnsOf):
    """Columns, which this node may serve as well."""

    def __init__(self, host: Host, head: ColumnsRequest) -> None:
        super().__init__(head)
        self._host = host

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `PartitionRequest`."""
        return await self._host.columns(self.only(numbers))
