"""A partition's whole state as a file, at its owner: what a checkpoint of the whole is made of.

The files have nothing to do with the checkpoints of the partitions' logs, which come and go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.catalog.manifests import EpochFile
from ringpop_py.errors import BodyError, StoreUnavailable
from ringpop_py.values.declared import Natural, convert, encode
from ringpop_py.values.packed import decode_value
from ringpop_py.values.requests import KeyspaceRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.partition.checkpoints import Checkpoint
    from ringpop_py.partition.partition import Partition
    from ringpop_py.partition.server import PartitionServer
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.stores.layout import KeyspaceKeys
    from ringpop_py.stores.store import Store

SNAPSHOT: Final = "/keyspace/snapshot"
AT_ONCE: Final = 2
"""Files that a node makes at a time: each is in memory as a whole."""


class SnapshotRequest(KeyspaceRequest, frozen=True):
    """Have the states of *partitions* in the files of the checkpoint *number* of the whole."""

    number: Natural
    partitions: tuple[Natural, ...]


class Snapshots:
    """Makes files of one keyspace at one node, a few at a time."""

    def __init__(
        self, keys: KeyspaceKeys, store: Store, worker: Worker, server: PartitionServer[Partition]
    ) -> None:
        self.keys = keys
        self._store = store
        self._worker = worker
        self._server = server
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    async def take(self, number: int, partitions: Sequence[int]) -> list[Any]:
        """Put the file of each partition; of each its `EpochFile`, or a `PartResult`.

        A file that is there was put by an earlier try of the same checkpoint, and stays.
        """

        async def one(partition: Partition) -> object:
            async with self._limiter:
                return await self._put(number, partition)

        return await self._server.each(partitions, one)

    async def _put(self, number: int, partition: Partition) -> EpochFile:
        from ringpop_py.partition.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
            Checkpoint,
            decode_checkpoint,
            encode_checkpoint,
        )

        # Not stale: what we know was the whole state at some moment since we were asked.
        snapshot, slot = await partition.read(lambda state: (state.whole(), partition.log.position))
        name, generation = self.keys.name, self.keys.generation
        checkpoint = Checkpoint(name, generation, partition.number, slot, (), snapshot)
        count = len(snapshot.entries)
        try:
            file = await self._worker.run(encode_checkpoint, checkpoint)
        finally:
            snapshot.entries.close()
        key = self.keys.epoch_file(number, partition.number)
        if await self._worker.run(self._store.put_if_absent, key, file):
            return _described(checkpoint, len(file), count)
        there = await self._worker.run(self._store.get, key)
        if there is None:
            raise StoreUnavailable(f"{key} was there, and is gone")
        checkpoint = await self._worker.run(decode_checkpoint, there)
        return _described(checkpoint, len(there), len(checkpoint.snapshot.entries))


def _described(checkpoint: Checkpoint, size_bytes: int, keys_count: int) -> EpochFile:
    offsets = {
        name: decode_value("msgpack", packed)
        for name, packed in checkpoint.snapshot.offsets.items()
    }
    return EpochFile(checkpoint.partition, *checkpoint.slot, size_bytes, keys_count, offsets)


class SnapshotAsking:
    """The request as the router takes it."""

    endpoint = SNAPSHOT
    changes_state = False  # a second time changes nothing

    def __init__(self, snapshots: Snapshots, number: int) -> None:
        self._snapshots = snapshots
        self._number = number

    def encode(self, numbers: Sequence[int]) -> bytes:
        """See `routing.Request`."""
        keys = self._snapshots.keys
        return encode(SnapshotRequest(keys.name, keys.generation, self._number, tuple(numbers)))

    def decode(self, number: int, result: Any) -> EpochFile:  # noqa: ANN401 - as it came
        """See `routing.Request`."""
        file = convert(EpochFile, result)
        if file.partition != number:
            raise BodyError(f"partition {number} was asked for, not {file.partition}")
        return file

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `routing.Request`."""
        return await self._snapshots.take(self._number, numbers)
