"""When the partitions of this node write checkpoints: one after the other, spread over time."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.errors import KeyspaceError
from ringpop_py.logs import log
from ringpop_py.partition.desk import Presence

if TYPE_CHECKING:
    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.config.settings import StateConfig
    from ringpop_py.partition.partition import Partition
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.shares.durable_driver import DurableDriver
    from ringpop_py.slotlog.slots import Slot

LOOK_S: Final = 0.25
"""The seconds between two looks at which checkpoints are due."""


@dataclass(slots=True)
class _Chain:
    """The checkpoints of one partition that the next one may build upon, the whole one first."""

    due_at: float
    slots: list[Slot] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    mark: int = 0


@dataclass(slots=True)
class CheckpointCounts:
    """The checkpoints written since the node was started; `bytes_count` is their size."""

    whole_count: int = 0
    incremental_count: int = 0
    failed_count: int = 0
    bytes_count: int = 0


class Checkpointer:
    """Writes the checkpoints of one keyspace's partitions at this node."""

    def __init__(
        self, driver: DurableDriver, entry: CatalogEntry, config: StateConfig, worker: Worker
    ) -> None:
        self.counts = CheckpointCounts()
        self._driver = driver
        self._entry = entry
        self._config = config
        self._worker = worker
        self._interval_s = entry.definition.checkpoint_interval_s
        self._chains: dict[Partition, _Chain] = {}
        self._rng = random.Random(secrets.randbits(64))
        self._turn = trio.Lock()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            partitions = self._driver.online()
            here = set(partitions)
            self._chains = {p: chain for p, chain in self._chains.items() if p in here}
            for partition in partitions:
                if self._is_due(partition):
                    await self.write(partition)

    def _is_due(self, partition: Partition) -> bool:
        now = trio.current_time()
        chain = self._chains.get(partition)
        if chain is None:
            # Partitions that came here together do not write their checkpoints together.
            first_at = now + self._interval_s * self._rng.uniform(0.5, 1.0)
            chain = self._chains[partition] = _Chain(first_at)
        if not partition.commits_since_checkpoint or partition.presence is not Presence.ONLINE:
            return False
        many = partition.commits_since_checkpoint >= self._config.checkpoint_slots_max
        return many or now >= chain.due_at

    async def write(self, partition: Partition) -> Slot | None:
        """Write a checkpoint of *partition* as it is now; return its slot, or None if it failed."""
        async with self._turn:  # a checkpoint is in memory as a whole, so one is made at a time
            try:
                return await self._write(partition)
            except KeyspaceError as error:  # the state could not be read, as from a broken disk
                name, number = self._entry.name, partition.number
                text = f"no checkpoint of partition {number} of keyspace {name!r}: {error}"
                log.warning("checkpoint-failed", keyspace=name, partition=number, text=text)
                self._failed(partition)
                return None

    async def _write(self, partition: Partition) -> Slot | None:
        from ringpop_py.partition.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
            Checkpoint,
            encode_checkpoint,
            whole_is_due,
        )

        if partition.presence is not Presence.ONLINE or partition.checkpointing:
            return None
        chain = self._chains.setdefault(partition, _Chain(0.0))
        since = None if whole_is_due(chain.sizes_bytes) else chain.mark
        # No await before the count is reset: snapshot, slot and count are of the same moment.
        snapshot = partition.state.snapshot(since)
        slot = partition.position
        partition.commits_since_checkpoint = 0
        builds_on = tuple(chain.slots) if snapshot.since is not None else ()
        name, generation = self._entry.name, self._entry.generation
        checkpoint = Checkpoint(name, generation, partition.number, slot, builds_on, snapshot)
        try:
            file = await self._worker.run(encode_checkpoint, checkpoint)
        finally:
            snapshot.entries.close()
        chain.due_at = self._next_at()
        if partition.presence is not Presence.ONLINE:  # it was lost while the file was made
            return None
        if not await partition.checkpoint(slot, file, builds_on):
            self._failed(partition)
            return None
        if not builds_on:
            chain.slots, chain.sizes_bytes = [], []
            self.counts.whole_count += 1
        else:
            self.counts.incremental_count += 1
        chain.slots.append(slot)
        chain.sizes_bytes.append(len(file))
        chain.mark = snapshot.mark
        self.counts.bytes_count += len(file)
        self._driver.steward.checkpointed(partition.number, slot)
        return slot

    def _failed(self, partition: Partition) -> None:
        self.counts.failed_count += 1
        self._chains[partition] = _Chain(self._next_at())  # the next one is a whole one
        # With no commit since the checkpoint, none would be due; but the one that failed is.
        partition.commits_since_checkpoint = max(1, partition.commits_since_checkpoint)

    def _next_at(self) -> float:
        return trio.current_time() + self._interval_s * self._rng.uniform(0.9, 1.1)
