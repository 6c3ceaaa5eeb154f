"""A partition's whole state as a file, made by its owner: part of a checkpoint of the keyspace.

The files are independent of the checkpoints of the partitions' logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import BodyError, StoreUnavailable
from ringpop_py.base.values.declared import Natural, convert, encode
from ringpop_py.base.values.packed import decode_value
from ringpop_py.base.values.requests import KeyspaceRequest
from ringpop_py.state.catalog.manifests import EpochFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.catalog.checkpoints import Checkpoint
    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.durable.partition import Partition
    from ringpop_py.state.shares.server import PartitionServer
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.tasks import Worker

SNAPSHOT: Final = "/keyspace/snapshot"
FILES_AT_A_TIME: Final = 2
"""The most files that a node makes at the same time: each is in memory as a whole."""


class SnapshotRequest(KeyspaceRequest, frozen=True):
    """Put the states of *partitions* into files of the checkpoint *number* of the keyspace."""

    number: Natural
    partitions: tuple[Natural, ...]

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return self.partitions


class Snapshots:
    """Makes files of one keyspace at one node, a few at a time."""

    def __init__(
        self, keys: KeyspaceKeys, store: Store, worker: Worker, server: PartitionServer[Partition]
    ) -> None:
        self.keys = keys
        self._store = store
        self._worker = worker
        self._server = server
        self._limiter = trio.CapacityLimiter(FILES_AT_A_TIME)

    async def take(self, number: int, partitions: Sequence[int]) -> list[Any]:
        """Put the file of each partition; return for each its `EpochFile`, or a `PartResult`."""

        async def one(partition: Partition) -> object:
            async with self._limiter:
                return await self._put(number, partition)

        return await self._server.each(partitions, one)

    async def _put(self, number: int, partition: Partition) -> EpochFile:
        from ringpop_py.state.catalog.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
            Checkpoint,
            decode_checkpoint,
            encode_checkpoint,
        )

        # Not a stale read: the state must be the owner's at some moment after the request.
        snapshot, slot = await partition.read(lambda state: (state.whole(), partition.position))
        name, generation = self.keys.name, self.keys.generation
        checkpoint = Checkpoint(name, generation, partition.number, slot, (), snapshot)
        count = len(snapshot.entries)  # before they are closed
        try:
            file = await self._worker.maker.run(encode_checkpoint, checkpoint)
        finally:
            snapshot.entries.close()
        key = self.keys.epoch_file(number, partition.number)
        if await self._worker.run(self._store.put_if_absent, key, file):
            return _described(checkpoint, len(file), count)
        # An earlier attempt at the same checkpoint has put the file, which stays as it is.
        there = await self._worker.run(self._store.get, key)
        if there is None:
            raise StoreUnavailable(f"{key} was in the store, and is gone")
        checkpoint = await self._worker.maker.run(decode_checkpoint, there)
        return _described(checkpoint, len(there), len(checkpoint.snapshot.entries))


def _described(checkpoint: Checkpoint, size_bytes: int, keys_count: int) -> EpochFile:
    offsets = {
        name: decode_value("msgpack", packed)
        for name, packed in checkpoint.snapshot.offsets.items()
    }
    return EpochFile(checkpoint.partition, *checkpoint.slot, size_bytes, keys_count, offsets)


@dataclass(frozen=True, slots=True)
class SnapshotAsking:
    """A `SnapshotRequest` for a dispatcher."""

    snapshots: Snapshots
    number: int
    endpoint = SNAPSHOT
    changes_state = False  # a repetition changes nothing
    kind = ""

    def size(self, _number: int) -> int:
        """See `MemberRequest`."""
        return 1

    def encode(self, numbers: Sequence[int]) -> bytes:
        """See `PartitionRequest`."""
        keys = self.snapshots.keys
        return encode(SnapshotRequest(keys.name, keys.generation, self.number, tuple(numbers)))

    def decode(self, number: int, result: Any) -> EpochFile:  # noqa: ANN401 - as it came
        """See `PartitionRequest`."""
        file = convert(EpochFile, result)
        if file.partition != number:
            raise BodyError(f"partition {number} was asked for, not {file.partition}")
        return file

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `MemberRequest`."""
        return await self.snapshots.take(self.number, numbers)
