"""Requests about partitions of a keyspace, as nodes receive them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.columns.pages import ColumnsRequest
from ringpop_py.durable.snapshots import SnapshotRequest
from ringpop_py.values.requests import ApplyRequest, ReadRequest, ScanRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

PartsRequest = ApplyRequest | ReadRequest | ScanRequest | ColumnsRequest | SnapshotRequest


def numbers_of(request: PartsRequest) -> Sequence[int]:
    """Return the partitions that *request* is about, in its order: there is a result for each."""
    if isinstance(request, ScanRequest | SnapshotRequest):
        return request.partitions
    return [number for number, _ in request.parts]
