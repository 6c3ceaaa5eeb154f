"""Packed rows as stage files: by partition, and a file for one owner's partitions only.

No row is looked at alone: rows are put into the order of their partitions at once, and what is cut
then are slices.
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.partitions.hashes import partitions_of
from ringpop_py.state.stagefile import (
    CHUNK_BYTES_MAX,
    CHUNK_ROWS_MAX,
    FILE_BYTES_MAX,
    Chunk,
    encode_stage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

FILE_ROOM_BYTES: Final = FILE_BYTES_MAX - (64 << 10)
"""What keys, values and their offsets may come to in one file."""
ROW_BYTES: Final = 8
"""Of the offsets of a key and a value."""
CHUNK_HEAD_BYTES: Final = 16


class StagedRows(NamedTuple):
    """One file. *owner* serves its partitions, by all that is known; empty if nobody is known."""

    owner: str
    partitions: tuple[int, ...]
    file: bytes


class _Cut(NamedTuple):
    """Rows *first* to *end* of what is sorted by partition, as one chunk."""

    partition: int
    first: int
    end: int
    size_bytes: int


def staged_files(
    operation: str,
    keys: pa.Array,
    values: pa.Array,
    *,
    partitions_count: int,
    owners: Mapping[int, str],
) -> Iterator[StagedRows]:
    """*keys* and packed *values*, neither of them NULL, as files.

    Rows of one partition keep their order. Files come in the order of their owners, and one after
    the other: only the current one is held.

    Raises:
        BadOperation: a key or a value is too large.
    """
    if not len(keys):
        return
    keys, values = keys.cast(pa.large_string()), values.cast(pa.large_binary())
    partitions = _partitions_of(keys, partitions_count)
    order = np.argsort(partitions, kind="stable")
    keys, values = keys.take(pa.array(order)), values.take(pa.array(order))
    sizes = pc.add(pc.binary_length(keys), pc.binary_length(values)).to_numpy()
    cuts = list(_cuts(partitions[order], sizes))
    by_owner: dict[str, list[_Cut]] = {}
    for cut in cuts:
        by_owner.setdefault(owners.get(cut.partition, ""), []).append(cut)
    for owner, theirs in sorted(by_owner.items()):
        for group in _groups(theirs):
            chunks = [
                Chunk(cut.partition, keys[cut.first : cut.end], values[cut.first : cut.end])
                for cut in group
            ]
            some = tuple(dict.fromkeys(map(attrgetter("partition"), group)))
            yield StagedRows(owner, some, encode_stage(operation, chunks))


def _partitions_of(keys: pa.LargeStringArray, count: int) -> NDArray[np.int64]:
    _, offsets, data = keys.buffers()
    found = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    return partitions_of(found, memoryview(data) if data is not None else b"", count)


def _cuts(partitions: NDArray[np.int64], sizes: NDArray[Any]) -> Iterator[_Cut]:
    """Chunks of what is sorted by *partitions*, whose rows have *sizes*, of as many as may be."""
    ends_bytes = np.cumsum(sizes, dtype=np.int64)
    borders = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(borders):
        first = start
        while first < end:
            before = int(ends_bytes[first - 1]) if first else 0
            fits = int(np.searchsorted(ends_bytes, before + CHUNK_BYTES_MAX, side="right"))
            # One row goes along whatever its size: it may be larger than several may be together.
            until = max(first + 1, min(end, first + CHUNK_ROWS_MAX, fits))
            yield _Cut(int(partitions[first]), first, until, int(ends_bytes[until - 1]) - before)
            first = until


def _groups(cuts: Sequence[_Cut]) -> Iterator[list[_Cut]]:
    """*cuts* in their order, as many in one file as it holds."""
    group: list[_Cut] = []
    room = FILE_ROOM_BYTES
    for cut in cuts:
        needed = cut.size_bytes + ROW_BYTES * (cut.end - cut.first) + CHUNK_HEAD_BYTES
        if group and needed > room:
            yield group
            group, room = [], FILE_ROOM_BYTES
        group.append(cut)
        room -= needed
    if group:
        yield group
