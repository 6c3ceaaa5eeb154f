"""One partition of a durable keyspace at this node, for the tasks that use it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

import trio

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable, StateDamaged
from ringpop_py.state.durable.settle import pause_before, settle
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import attempt_of
from ringpop_py.state.journal.recovery import Recovery
from ringpop_py.state.partition.arrivals import ATTEMPTS_MAX
from ringpop_py.state.partition.chart import COMING, GIVEN_UP, Presence
from ringpop_py.state.partition.record import LocalPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.base.values.operations import Outcome, PackedWrite, Write
    from ringpop_py.state.catalog.journalstore import JournalStore
    from ringpop_py.state.durable.writer import Writer
    from ringpop_py.state.journal.journal import Journal
    from ringpop_py.state.journal.records import Slot
    from ringpop_py.state.table.keyed import KeyedState

F = TypeVar("F")
_OWNED = Presence.OWNED


class Partition(LocalPartition):
    """See the module.

    Args:
        store: only for the requests of its recovery.
    """

    def __init__(
        self, number: int, *, state: KeyedState, store: JournalStore, writer: Writer
    ) -> None:
        super().__init__(number, state, writer.journal, writer.machine.failed_parts)
        self.store = store
        self._writer = writer

    @property
    def trouble(self) -> KeyspaceError | None:
        """Why the store does not answer, or why its answers cannot be used."""
        if self.presence not in COMING:
            return self._writer.store.trouble
        if self.damage is not None:
            return damage_of(self.damage, self.store)
        return self.store.trouble

    @property
    def position(self) -> Slot:
        """How far the state has come: a checkpoint of it stands there. The partition is held."""
        return self._writer.journal.position(self.number)

    @property
    def behind(self) -> int:
        """See `Journal.behind`; 0 if the partition is not held."""
        journal = self._writer.journal
        return journal.behind(self.number) if self.number in journal.held else 0

    async def write(
        self, writes: Sequence[Write | PackedWrite], deadline: float = inf
    ) -> list[Outcome | KeyspaceError]:
        """Commit *writes*, in order, together with those of other callers and partitions.

        Raises:
            PartitionUnavailable: if this node is not, or no longer, the owner; none took effect.
            StoreUnavailable: if the store fails; none was begun.
            OutcomeUnknown: if *deadline* passes.
        """
        writer = self._writer
        if not writer.working:
            writer.begin_work()  # first: what is refused must not stay queued
        job = writer.desk.write(self, writes)
        await writer.wait(job, deadline)
        return job.outcomes

    async def read(
        self, look: Callable[[KeyedState], F], deadline: float = inf, *, stale: bool = False
    ) -> F:
        """Return what *look* finds in the state: the whole state at a moment during this call.

        Args:
            stale: accept this node's own state, even if another node has gone on with it.

        Raises:
            PartitionUnavailable: if this node is not, or no longer, the owner.
            StoreUnavailable: if the store does not answer, so that ownership is not known.
            OutcomeUnknown: if *deadline* passes.
        """
        if stale and self.presence is _OWNED:
            found = look(self.state)
            await trio.lowlevel.checkpoint()  # a loop of reads lets other tasks run
            return found
        writer = self._writer
        # No other task runs between the look at the journal and the one at the state. If others
        # read at the same time, one look for all takes less than one for each.
        if self.presence is _OWNED and not writer.readers_count and writer.is_whole():
            found = look(self.state)
            writer.readers_count += 1
            try:
                await trio.lowlevel.checkpoint()
            finally:
                writer.readers_count -= 1
            return found
        if not writer.working:
            writer.begin_work()
        job = writer.desk.read(self)
        await writer.wait(job, deadline)
        if self.presence in GIVEN_UP:  # since the job finished; the state is gone
            raise PartitionUnavailable(f"partition {self.number} is {self.presence.value} here")
        return look(self.state)

    # The same for callers without a task of their own.

    def begin_write(
        self, writes: Sequence[Write | PackedWrite], done: Callable[[object], None]
    ) -> object | None:
        """See `ServedPartition`."""
        writer = self._writer
        try:
            writer.begin_work()
            job = writer.desk.write(self, writes)
        except KeyspaceError as error:
            return error

        def wake() -> None:
            job.wake = None  # otherwise the two would hold each other
            done(job.error or job.outcomes)

        job.wake = wake
        return None

    def begin_read(
        self, look: Callable[[KeyedState], F], done: Callable[[object], None], *, stale: bool
    ) -> object | None:
        """See `ServedPartition`."""
        writer = self._writer
        try:
            if stale or (self.presence is _OWNED and writer.is_whole()):
                return look(self.state)
            writer.begin_work()
            job = writer.desk.read(self)
        except KeyspaceError as error:
            return error

        def wake() -> None:
            job.wake = None
            done(job.error or self._found(look))

        job.wake = wake
        return None

    def _found(self, look: Callable[[KeyedState], F]) -> F | Exception:
        # Unlike a task, a caller of `begin_read` looks before a partition whose state could not
        # apply what was committed is given up.
        if self.presence in GIVEN_UP or self.failed is not None:
            return PartitionUnavailable(f"partition {self.number} is {self.presence.value} here")
        try:
            return look(self.state)
        except Exception as error:  # noqa: BLE001 - it is this caller's: others go on
            return error


class PartitionCopy:
    """A partition as it is in the store, for reading only: it never comes to this node."""

    def __init__(
        self, number: int, *, state: KeyedState, store: JournalStore, journal: Journal
    ) -> None:
        self.state = state
        self._store = store
        self._recovery = Recovery(number, state, journal)

    async def read(self) -> None:
        """Bring the state up to date: it then has everything acknowledged before this call.

        Nothing is written. During the call the state is undefined.

        Raises:
            StateDamaged: if something that is needed is damaged or gone.
            KeyspaceError: if the store has failed for long, or the state here cannot hold what was
                written. Call `forget` before the next try.
        """
        effects = self._recovery.follow(miss_nothing=True)
        (fact,) = await settle(self._recovery, effects, self._perform)
        if isinstance(fact, fx.Damaged):
            raise damage_of(fact, self._store)

    async def _perform(self, request: fx.Request) -> fx.Reply:
        trouble = self._store.trouble  # threads of others change it
        if attempt_of(request) > ATTEMPTS_MAX and trouble is not None:
            raise type(trouble)(str(trouble))
        await pause_before(request)
        return await self._store.perform(request)

    def forget(self) -> None:
        """Drop the state."""
        self._recovery.drop()


def damage_of(damage: fx.Damaged, store: JournalStore) -> StateDamaged:
    """Return the error for *damage* that was found in *store*."""
    why = store.error_of(damage)
    return StateDamaged(f"partition {damage.partition} cannot be read: {why}")
