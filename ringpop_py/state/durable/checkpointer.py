"""When the partitions of this node write checkpoints: one after the other, spread over time.

Slots that they cover are then deleted from the journal, which a node that takes over has to read.
So the journal has hardly more slots than `checkpoint_slots_max`, unless checkpoints fail.
"""

from __future__ import annotations

import random
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import KeyspaceError, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.state.journal.records import Reached
from ringpop_py.state.partition.chart import Presence

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.catalog.high_water import ReachedBook
    from ringpop_py.state.durable.driver import DurableDriver
    from ringpop_py.state.durable.partition import Partition
    from ringpop_py.state.durable.writer import Writer
    from ringpop_py.state.journal.records import Slot
    from ringpop_py.state.tasks import Worker

LOOK_S: Final = 0.25
"""The seconds between two looks at which checkpoints are due."""
TRIM_S: Final = 5.0
"""The seconds between two deletions of what checkpoints cover, unless the journal is too long."""
AGAIN_S: Final = 1.0
"""The seconds until the next try after a checkpoint failed, however long the journal is."""


@dataclass(slots=True)
class _Chain:
    """The checkpoints of one partition in *epoch* that the next one may build upon, in order."""

    epoch: int
    due_at: float
    not_before: float = 0.0
    slots: list[Slot] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    mark: int = 0
    trouble: str = ""


@dataclass(slots=True)
class CheckpointCounts:
    """The checkpoints written since the node was started; `bytes_count` is their size."""

    whole_count: int = 0
    incremental_count: int = 0
    failed_count: int = 0
    bytes_count: int = 0


class Checkpointer:
    """Writes the checkpoints of one keyspace's partitions at this node, and trims its journal.

    It also notes in *reached* how far the journal has come.
    """

    def __init__(
        self,
        driver: DurableDriver,
        writer: Writer,
        entry: CatalogEntry,
        config: StateConfig,
        worker: Worker,
        reached: ReachedBook,
    ) -> None:
        self._reached = reached
        self._note_at = 0.0
        self.counts = CheckpointCounts()
        self._writer = writer
        self._trim_at = 0.0
        self._trim_pause_s = LOOK_S
        self._said = ""
        self._driver = driver
        self._entry = entry
        self._config = config
        self._worker = worker
        self._interval_s = entry.definition.checkpoint_interval_s
        self._chains: dict[Partition, _Chain] = {}
        self._rng = random.Random(secrets.randbits(64))
        self._turn = trio.Lock()

    @property
    def trouble(self) -> str:
        """Why the last checkpoint of a partition here has failed; empty if that of each did not."""
        return next((chain.trouble for chain in self._chains.values() if chain.trouble), "")

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            partitions = self._driver.online()
            here = set(partitions)
            self._chains = {p: chain for p, chain in self._chains.items() if p in here}
            for partition in partitions:
                if partition.state.failed:  # such as from a local disk that cannot be read
                    self._writer.give_up(partition)
            # First what keeps the journal from being trimmed: its oldest entry is furthest back.
            for partition in sorted(partitions, key=lambda each: each.behind, reverse=True):
                if self._is_due(partition):
                    await self.write(partition)
            await self._trim()
            await self._note_reached()

    async def _note_reached(self) -> None:
        """Write down how far the journal has come, so that others notice if its end is lost."""
        now, journal = trio.current_time(), self._writer.journal
        if now < self._note_at:
            return
        self._note_at = now + TRIM_S
        claims = {number: holding.epoch for number, holding in journal.held.items()}
        reached = Reached(journal.next_slot - 1, claims)
        if reached.slot or claims:
            with suppress(StoreUnavailable):  # commits report that; the next note comes soon
                await self._worker.run(self._reached.note, journal.name, reached)

    async def _trim(self) -> None:
        now, writer = trio.current_time(), self._writer
        too_long = writer.journal.length > self._config.checkpoint_slots_max
        soon_at = self._trim_at - TRIM_S + self._trim_pause_s
        if now >= (soon_at if too_long else self._trim_at) and not writer.journal.trimming:
            before = writer.journal.marked
            self._trim_at = now + TRIM_S
            helped = (await writer.trim()).first > before
            # A partition that was released, and that no node claims, may delay it for long.
            self._trim_pause_s = LOOK_S if helped else min(2 * self._trim_pause_s, TRIM_S)

    def _is_due(self, partition: Partition) -> bool:
        now = trio.current_time()
        chain = self._chains.get(partition)
        if chain is None or chain.epoch != partition.epoch:
            # Partitions that came here together do not write their checkpoints together.
            first_at = now + self._interval_s * self._rng.uniform(0.5, 1.0)
            chain = self._chains[partition] = _Chain(partition.epoch, first_at)
        if partition.presence is not Presence.OWNED or now < chain.not_before:
            return False
        behind = partition.behind
        many = behind >= self._config.checkpoint_slots_max
        is_bare = self._writer.journal.is_bare(partition.number)
        return many or ((behind > 0 or is_bare) and now >= chain.due_at)

    async def write(self, partition: Partition) -> Slot | None:
        """Write a checkpoint of *partition* as it is now; return its slot, or None if it failed."""
        async with self._turn:  # a checkpoint is in memory as a whole, so one is made at a time
            try:
                return await self._write(partition)
            except KeyspaceError as error:  # the state could not be read, as from a broken disk
                self._failed(partition, error)
                return None

    async def _write(self, partition: Partition) -> Slot | None:
        from ringpop_py.state.catalog.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
            Checkpoint,
            encode_checkpoint,
            whole_is_due,
        )

        number, writer = partition.number, self._writer
        if partition.presence is not Presence.OWNED or writer.journal.checkpointing(number):
            return None
        chain = self._chains.get(partition)
        if chain is None or chain.epoch != partition.epoch:
            # Not due while it is made: a second one at the same slot would build on itself.
            chain = self._chains[partition] = _Chain(partition.epoch, self._next_at())
        since = None if whole_is_due(chain.sizes_bytes) else chain.mark
        # No await between them: snapshot and slot are of the same moment.
        snapshot = partition.state.snapshot(since)
        slot = partition.position
        builds_on = tuple(chain.slots) if snapshot.since is not None else ()
        name, generation = self._entry.name, self._entry.generation
        checkpoint = Checkpoint(name, generation, number, slot, builds_on, snapshot)
        try:
            file = await self._worker.maker.run(encode_checkpoint, checkpoint)
        finally:
            snapshot.entries.close()
        chain.due_at = self._next_at()
        if partition.epoch != slot.epoch:  # it was lost while the file was made
            return None
        if not await writer.checkpoint(number, slot, file, builds_on):
            self._failed(partition, writer.beside.trouble)
            return None
        self._said = chain.trouble = ""
        if not builds_on:
            chain.slots, chain.sizes_bytes = [], []
            self.counts.whole_count += 1
        else:
            self.counts.incremental_count += 1
        chain.slots.append(slot)
        # Without the changes for watchers, which stand in each file twice, as base64.
        chain.sizes_bytes.append(len(file) - 3 * len(snapshot.changes))
        chain.mark = snapshot.mark
        self.counts.bytes_count += len(file)
        self._driver.steward.checkpointed(number, slot)
        return slot

    def _failed(self, partition: Partition, why: KeyspaceError | None) -> None:
        self.counts.failed_count += 1
        if why is not None and str(why) != self._said:  # once, not for each partition and try
            self._said = str(why)
            name, number = self._entry.name, partition.number
            text = f"no checkpoint of partition {number} of keyspace {name!r}: {why}"
            log.warning("checkpoint-failed", keyspace=name, partition=number, text=text)
        # The next one is a whole one.
        self._chains[partition] = _Chain(
            partition.epoch,
            self._next_at(),
            trio.current_time() + AGAIN_S,
            trouble="" if why is None else str(why),
        )

    def _next_at(self) -> float:
        return trio.current_time() + self._interval_s * self._rng.uniform(0.9, 1.1)
