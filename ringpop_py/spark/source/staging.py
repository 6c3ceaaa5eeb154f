"""Packed rows as stage files: a file for the partitions of one owner only.

Whoever has the file is then the one that needs it. If the owner is another by the time the job is
committed, all that is lost is a way over the store.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.jobs.stagefile import FILE_BYTES_MAX, Chunk, encode_stage
from ringpop_py.spark.arrow.columns import chunks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.spark.arrow.columns import Changes

FILE_ROOM_BYTES: Final = FILE_BYTES_MAX - (64 << 10)
"""What keys, values and their offsets may come to in one file."""
OFFSET_BYTES: Final = 8
CHUNK_HEAD_BYTES: Final = 16


class StagedRows(NamedTuple):
    """One file. *owner* serves its partitions, by all that is known; empty if nobody is known."""

    owner: str
    partitions: tuple[int, ...]
    file: bytes


def staged_files(
    changes: Changes, *, partitions_count: int, owners: Mapping[int, str]
) -> Iterator[StagedRows]:
    """*changes* as files, in the order of their owners; only the current one is held.

    Rows of one partition keep their order.

    Raises:
        BadOperation: a key or a value is too large.
    """
    by_owner: dict[str, list[Chunk]] = {}
    for chunk in chunks_of(changes, partitions_count):
        by_owner.setdefault(owners.get(chunk.partition, ""), []).append(chunk)
    for owner, theirs in sorted(by_owner.items()):
        for group in _groups(theirs):
            partitions = tuple(dict.fromkeys(map(attrgetter("partition"), group)))
            yield StagedRows(owner, partitions, encode_stage(changes.operation, group))


def _groups(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """*chunks* in their order, as many in one file as it holds."""
    group: list[Chunk] = []
    room = FILE_ROOM_BYTES
    for chunk in chunks:
        needed = CHUNK_HEAD_BYTES + _size_of(chunk)
        if group and needed > room:
            yield group
            group, room = [], FILE_ROOM_BYTES
        group.append(chunk)
        room -= needed
    if group:
        yield group


def _size_of(chunk: Chunk) -> int:
    """What it comes to in a file, where offsets have half the bytes that they have here."""
    rows_count = len(chunk.keys)
    contents = chunk.keys.nbytes + chunk.values.nbytes
    return int(contents) - rows_count * OFFSET_BYTES
