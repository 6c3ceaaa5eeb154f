"""One partition at the node that owns it, or is about to.

Before the partition is online, one task alone works on it: it reads what former owners wrote, and
claims the partition. Afterwards the `Writer`, which all partitions of the keyspace share, does its
jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from ringpop_py.errors import (
    KeyspaceError,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.journal import effects as fx
from ringpop_py.journal.desk import Job, Presence, ReleaseJob, WriteJob
from ringpop_py.journal.heir import Heir
from ringpop_py.partition.settle import attempt_of, pause_before, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.journal.asker import Effects
    from ringpop_py.journal.heir import MayTake
    from ringpop_py.journal.records import Slot
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.partition.journalstore import JournalStore
    from ringpop_py.partition.writer import Writer
    from ringpop_py.values.operations import Outcome, PackedWrite, Write

F = TypeVar("F")
COMING_ATTEMPTS_MAX: Final = 10
"""After this many attempts (about five seconds) an acquisition fails, so that its callers need not
wait and the next one starts over. An owner repeats without limit, because it cannot start over."""


class Partition:
    """See the module.

    Args:
        store: for the requests of this partition alone, while it comes.

    Attributes:
        damage: why the last attempt to read the partition failed; None if it did not.
        failed: why the state cannot apply what is in the journal; None if it can.
        waiting, writes_count: see `Served`.
    """

    def __init__(
        self,
        number: int,
        *,
        state: KeyedState,
        store: JournalStore,
        writer: Writer,
    ) -> None:
        self.number = number
        self.state = state
        self.presence = Presence.COMING
        self.damage: StateDamaged | None = None
        self.failed: KeyspaceError | None = None
        self.waiting: list[Job] = []
        self.writes_count = 0
        self._store = store
        self._writer = writer
        self._heir = Heir(number, self, writer.journal)
        self._comes = False

    def __repr__(self) -> str:
        return f"<Partition {self.number} {self.presence.value}>"

    @property
    def trouble(self) -> KeyspaceError | None:
        """Why the store does not answer, or why its answers cannot be used."""
        if self._writer.has(self):
            return self._writer.store.trouble
        return self.damage or self._store.trouble

    @property
    def epoch(self) -> int:
        """The epoch that this node owns; 0 if it owns none."""
        holding = self._writer.journal.held.get(self.number)
        return 0 if holding is None else holding.epoch

    @property
    def position(self) -> Slot:
        """Up to where the state is: where a checkpoint of it stands. The partition is held."""
        return self._writer.journal.position(self.number)

    @property
    def behind(self) -> int:
        """See `Journal.behind`; 0 if the partition is not held."""
        journal = self._writer.journal
        return journal.behind(self.number) if self.number in journal.held else 0

    @property
    def is_bare(self) -> bool:
        """See `Journal.is_bare`. The partition is held."""
        return self._writer.journal.is_bare(self.number)

    @property
    def checkpointing(self) -> bool:
        """Whether a checkpoint is under way. The partition is held."""
        return self._writer.journal.checkpointing(self.number)

    # As `Fold`, of the heir and then of the journal.

    def reset(self) -> None:
        """See `Fold`."""
        self.state.reset()
        self.failed = None

    def restore(self, checkpoint: Any) -> None:  # noqa: ANN401 - see `Fold`
        """See `Fold`."""
        self.state.restore(checkpoint)

    def apply(self, body: object) -> None:
        """See `Fold`. Raises KeyspaceError unless this node owns the partition."""
        if not self._comes:
            # Other partitions of the same group must not suffer from a state that fails.
            try:
                if self.failed is None:
                    self.state.apply(body)
            except KeyspaceError as error:
                self.failed = error
                self._writer.failed.append(self)
            return
        self.state.apply(body)

    # Coming: one task alone works on the partition.

    async def follow(self) -> None:
        """Read the partition up to its present end, and write nothing. Raises as `acquire` does."""
        self.presence = Presence.COMING
        await self._come(self._heir.follow())

    async def copy(self) -> None:
        """Make the state a copy of the partition as it is now, for reading only.

        The copy has everything acknowledged before this call. Nothing is written, and this node
        will not acquire the partition. During the call the state may be anything. Raises as
        `acquire` does.
        """
        self.presence = Presence.COMING
        await self._come(self._heir.follow(miss_nothing=True))

    def journal_of(self, epoch: int) -> str:
        """Return the journal that the claim of *epoch* names; empty if it was not read."""
        return self._heir.journal_of(epoch)

    async def acquire(self, may_take: MayTake) -> fx.Acquired | fx.NotAcquired:
        """Become the owner, unless there is an owner that *may_take* does not let us replace.

        Raises:
            StateDamaged: if something that is needed is damaged or gone.
            KeyspaceError: if the store has failed for long, or the state here cannot hold what was
                written. Call `leave` before the next try.
        """
        self.presence = Presence.COMING
        claiming = self._writer.claiming
        claiming.add(self.number)
        try:
            fact = await self._come(self._heir.acquire(may_take))
        finally:
            claiming.discard(self.number)
        if isinstance(fact, fx.Acquired):
            if self.presence is Presence.LOST:  # given up while the claim was on its way
                self._writer.leave(self)
                raise PartitionUnavailable(f"partition {self.number} is not wanted here any more")
            return fact
        assert isinstance(fact, fx.NotAcquired)
        return fact

    def answered(self, request_id: int, reply: fx.Reply) -> Effects:
        """Pass the *reply* to a request on to the heir."""
        effects = self._heir.answered(request_id, reply)
        if effects and isinstance(effects[0], fx.Sealed):
            # Not later: what follows may fail, and who sealed the journal must not stay unknown.
            self._writer.has_sealed(effects[0])
            effects = effects[1:]
        if effects and isinstance(effects[-1], fx.Acquired):
            # Not later: the journal has the partition now, and the next step may meet a seal.
            self._comes = False
            self._writer.holds(self)
            if self.presence is not Presence.LOST:
                self.presence = Presence.ONLINE
        return effects

    async def _come(self, effects: Effects) -> fx.Fact:
        self._comes = True
        try:
            (fact,) = await settle(self, effects, self._perform)
        finally:
            self._comes = False
        self.damage = None
        if isinstance(fact, fx.Damaged):
            why = self._store.error_of(fact)
            self.damage = StateDamaged(f"partition {self.number} cannot be read: {why}")
            raise self.damage
        return fact

    async def _perform(self, request: fx.Request) -> fx.Reply:
        attempt = attempt_of(request)
        if attempt:
            # A claim whose outcome is open is pursued: if it took effect, nobody else could tell.
            pursued, trouble = self._heir.pursues, self.trouble  # threads of others change it
            if attempt > COMING_ATTEMPTS_MAX and trouble is not None and not pursued:
                raise type(trouble)(str(trouble))
            await pause_before(attempt)
        return await self._store.perform(request)

    # Online: for all tasks.

    async def write(self, writes: Sequence[Write | PackedWrite]) -> list[Outcome | KeyspaceError]:
        """Commit *writes*, in order, together with those of other callers and partitions.

        Raises:
            PartitionUnavailable: if this node is not, or no longer, the owner; none took effect.
            StoreUnavailable: if the store fails; none was begun.
        """
        if self.presence is not Presence.ONLINE:
            self._refuse_unless_online()
        writer = self._writer
        writer.check()
        job = WriteJob(self, writes)
        writer.desk.add_write(job)
        await writer.wait(job)
        return job.outcomes

    async def read(self, look: Callable[[KeyedState], F], *, stale: bool = False) -> F:
        """Return what *look* finds in the state: the whole state at a moment during this call.

        Args:
            stale: accept this node's own state, even if another node has gone on with it.

        Raises:
            PartitionUnavailable: if this node is not, or no longer, the owner.
            StoreUnavailable: if the store does not answer, so that ownership is not known.
        """
        self._refuse_unless_online()
        if stale:
            return look(self.state)
        writer = self._writer
        if writer.store.quick and not writer.working and not writer.readers_count:
            # Nothing else is under way, and no other task runs before the state was looked at. If
            # others read at the same time, one look for all takes less than one for each.
            writer.look_now(self)
            found = look(self.state)
            writer.readers_count += 1
            try:
                await trio.lowlevel.checkpoint()
            finally:
                writer.readers_count -= 1
            return found
        writer.check()
        job = Job(self)
        writer.desk.add_read(job)
        await writer.wait(job)
        if self.presence is Presence.LOST:  # since the job finished; the state is gone
            self._refuse_unless_online()
        return look(self.state)

    async def release(self, to: str) -> None:
        """Release the partition to *to*, and stop serving it.

        Raises:
            PartitionUnavailable: if this node is not the owner any more, or is releasing already.
        """
        self._refuse_unless_online()
        job = ReleaseJob(self, to)
        self._writer.desk.add_release(job)
        await self._writer.wait(job)

    async def checkpoint(self, slot: Slot, file: bytes, builds_on: Sequence[Slot]) -> bool:
        """Put *file*, the state at *slot*, into the store, and delete the older ones.

        Everything else goes on meanwhile. Return whether the checkpoint is durable; see
        `Journal.checkpoint`.
        """
        return await self._writer.checkpoint(self.number, slot, file, builds_on)

    def leave(self) -> None:
        """Give the partition up. If this node owns it, it is released to nobody in particular."""
        self.presence = Presence.LOST
        self._writer.leave(self)
        # A claim on its way is pursued; the task that acquires the partition releases it.
        if not self._heir.pursues and not self._writer.has(self):
            self._heir.drop()

    def _refuse_unless_online(self) -> None:
        if self.presence is not Presence.ONLINE:
            raise PartitionUnavailable(f"partition {self.number} is {self.presence.value} here")
