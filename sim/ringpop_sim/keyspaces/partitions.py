"""One durable partition at a simulated node, as `ringpop_py.partition.partition` has it on trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.errors import KeyspaceError, StoreUnavailable
from ringpop_py.journal import effects as fx
from ringpop_py.journal.desk import Job, Presence, ReleaseJob, WriteJob
from ringpop_py.journal.heir import Heir, MayTake
from ringpop_py.steward import duties as do
from ringpop_sim.keyspaces.journals import TROUBLES, StoreAsker, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.journal.asker import Effects
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.values.operations import Write
    from ringpop_sim.keyspaces.journals import JournalDriver

    End = Callable[[Any], None]

ATTEMPTS_MAX: Final = 10
"""After this many attempts a node that does not own the partition yet gives up for a while."""


class PartitionHome(StoreAsker, Protocol):
    """What a partition needs of the process that it is in."""

    def told(self, fact: fx.Fact, /) -> None:
        """A seal was put."""

    def ask_dropped(self, answer: Callable[[fx.StoreAnswer], None], /) -> None:
        """Ask the store for the mark of a drop; *answer* gets ABSENT, or FAILED."""


class PartitionDriver:
    """One partition on its way to a node, or at it; the desk sees it as `Served`."""

    def __init__(
        self, home: PartitionHome, writer: JournalDriver, number: int, state: KeyedState
    ) -> None:
        self.number = number
        self.presence = Presence.COMING
        self.state = state
        self.waiting: list[Job] = []
        self.writes_count = 0
        self._home = home
        self._writer = writer
        self._heir = Heir(number, state, writer.journal)
        self._end: End | None = None  # of what the steward has asked for
        self._in_trouble = False

    def __repr__(self) -> str:
        return f"<PartitionDriver {self.number} {self.presence.value} {self._heir!r}>"

    @property
    def epoch(self) -> int:
        """The epoch that this node owns; 0 if it owns none."""
        holding = self._writer.journal.held.get(self.number)
        return 0 if holding is None else holding.epoch

    def journal_of(self, epoch: int) -> str:
        """Return the journal that the claim of *epoch* names; empty if it was not read."""
        return self._heir.journal_of(epoch)

    # Coming.

    def follow(self, end: End) -> None:
        """Read up to the present end; call *end* with a `Got` or a `Trouble`."""
        self.presence, self._end = Presence.COMING, end
        self._do(self._heir.follow())

    def acquire(self, may_take: MayTake, end: End) -> None:
        """Become the owner; call *end* with the result of an `Acquire`."""
        self.presence, self._end = Presence.COMING, end
        self._writer.claiming.add(self.number)
        self._do(self._heir.acquire(may_take))

    def _do(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, fx.Request):
                self._ask(effect)
            else:
                self._told(effect)

    def _ask(self, request: fx.Request) -> None:
        # A claim whose outcome is open is pursued: if it took effect, nobody else could tell.
        pursued = self._heir.pursues
        many = getattr(request, "attempt", 0) > ATTEMPTS_MAX
        if many and self._in_trouble and not pursued:
            if self._end is not None:  # otherwise another of its requests has given up
                self._give_up()
            return

        def answered(reply: fx.Reply) -> None:
            self._in_trouble = reply in TROUBLES
            self._do(self._heir.answered(request.id, reply))

        ask(self._home, request, answered)

    def _told(self, fact: fx.Fact) -> None:
        match fact:
            case fx.Followed():
                self._come_to(do.Got())
            case fx.NotAcquired(_, epoch, holder):
                self._come_to(do.HeldBy(holder.owner, epoch))
            case fx.Damaged():
                self._give_up(damaged=True)
            case fx.Acquired():
                self._acquired()
            case fx.Sealed():
                self._home.told(fact)
            case _:
                raise AssertionError(fact)

    def _come_to(self, result: object) -> None:
        self._writer.claiming.discard(self.number)
        end, self._end = self._end, None
        assert end is not None
        end(result)

    def _give_up(self, *, damaged: bool = False) -> None:
        """End the try for want of the store."""
        self.leave()
        self._come_to(do.Trouble(damaged))

    def _acquired(self) -> None:
        writer = self._writer
        writer.claiming.discard(self.number)
        writer.holds(self)
        if self.presence is Presence.LOST:  # given up while the claim was on its way
            self._give_up()
            return
        self.presence = Presence.ONLINE
        # A drop marks the generation first, and then fences each partition.
        self._home.ask_dropped(self._not_over)

    def _not_over(self, mark: fx.StoreAnswer) -> None:
        if mark is fx.StoreAnswer.ABSENT:
            # The journal may have been sealed since.
            self._writer.when_claimed(self.number, self._taken)
        else:
            self._give_up()

    def _taken(self) -> None:
        if self.presence is Presence.ONLINE:
            self._come_to(do.Taken(self.epoch))
        else:
            self._give_up()

    # Online.

    def write(self, writes: Sequence[Write], end: End) -> None:
        """Commit *writes*; call *end* with their outcomes, or an error."""
        writer = self._writer
        if writer.working and writer.in_trouble:
            end(StoreUnavailable("the store does not answer"))
            return
        job = WriteJob(self, writes)
        job.wake = lambda: end(job.outcomes if job.error is None else job.error)
        try:
            writer.desk.add_write(job)
        except KeyspaceError as error:
            end(error)
        else:
            writer.work()

    def read(self, keys: Sequence[str], end: End) -> None:
        """Call *end* with the packed values of *keys*, or an error."""
        job = Job(self)
        job.wake = lambda: end(self.state.packed(keys) if job.error is None else job.error)
        self._writer.desk.add_read(job)
        self._writer.work()

    def release(self, to: str, end: End) -> None:
        """Release the partition for *to*; call *end* with a `ReleaseSaid`."""
        if self.presence is not Presence.ONLINE:
            end(self._not_released())
            return
        job = ReleaseJob(self, to)
        job.wake = lambda: end(do.ReleaseSaid.SEALED if job.error is None else self._not_released())
        self._writer.desk.add_release(job)
        self._writer.work()

    def _not_released(self) -> do.ReleaseSaid:
        # Who hears NOT_MINE may seal the journal, and with it all partitions of this node.
        here = self.epoch != 0 or self._writer.journal.reclaims(self.number)
        return do.ReleaseSaid.NOT_YET if here else do.ReleaseSaid.NOT_MINE

    def leave(self) -> None:
        """Give the partition up. If this node owns it, it is released to nobody in particular."""
        self.presence = Presence.LOST
        self._writer.leave(self)
        # A claim on its way is pursued; it is released once it is known.
        if not self._heir.pursues and self.epoch == 0:
            self._heir.drop()
