"""The partitions of a durable keyspace at one simulated process: does what `Ownership` puts out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import pause_us
from ringpop_py.state.ownership.local import (
    Came,
    CameBack,
    JournalLost,
    LocalPartition,
    LookDropped,
    Perform,
    Replaces,
)
from ringpop_py.state.ownership.ownership import Ownership
from ringpop_py.state.placement import duties
from ringpop_py.state.table.entries import MemoryEntries
from ringpop_py.state.table.keyed import KeyedState
from ringpop_sim.state.keyspaces.copies import AGGREGATIONS, PACK
from ringpop_sim.units import s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringpop_py.base.values.operations import Write
    from ringpop_py.state.journal.asker import Asker, Effects
    from ringpop_py.state.journal.desk import Job
    from ringpop_py.state.journal.records import Claim
    from ringpop_py.state.table.keyed import Snapshot

    End = Callable[[Any], None]

RELEASE_US: Final = 5 * s
SMALL_GROUPS: Final = StateConfig(group_writes_max=3)
"""The limit is low, so that some wait for the next group."""


class ReleaseRequest(NamedTuple):
    """Asks for a partition; see `ringpop_py.state.durable.driver.ReleaseRequest`."""

    number: int
    epoch: int
    to: str
    journal: str


class StoreAsker(Protocol):
    """Asks the store for a process."""

    def after(self, delay_us: int, act: Callable[[], None], /) -> None:
        """Call *act* later, when the process runs."""

    def ask_store(
        self, request: fx.Request, answer: Callable[[fx.Reply], None], snapshot: Snapshot | None, /
    ) -> None:
        """Send *request* to the store, and call *answer* with its reply."""


class DurableHome(StoreAsker, Protocol):
    """The keyspace at one process. See `ringpop_sim.state.keyspaces.home.Home`."""

    name: str
    steward: Any

    @property
    def now(self) -> int:
        """The time on the clock of the process."""

    def nonce(self) -> str:
        """Return a text that no process has used before."""

    def begin(self, task: duties.Task, /) -> None:
        """Carry out *task*, if it is not the partitions' own."""

    def may_leave(self, number: int, /) -> bool:
        """Return whether a partition may go to another member now: its actors are not at work."""

    def is_disk_full(self) -> bool:
        """Return whether there is no room for the states of partitions."""

    def settled(self) -> None:
        """Note that all that was due has been carried out."""

    def call(self, to: str, what: str, argument: Any, ttl_us: int, end: End, /) -> None:
        """Call the member *to*."""

    def ask_dropped(self, answer: Callable[[fx.StoreAnswer], None], /) -> None:
        """Ask the store for the mark of a drop; *answer* gets ABSENT, or FAILED."""

    # For oracles.

    def serves(self, number: int, epoch: int, /) -> None:
        """Note that a partition is served from now on."""

    def serves_again(self, number: int, epoch: int, /) -> None:
        """Note that a partition, claimed again after a fence, is served again."""

    def acknowledges(self, number: int, epoch: int, /) -> None:
        """Note that writes of a partition are about to be acknowledged in *epoch*."""

    def replaces(self, number: int, claim: Claim, /) -> None:
        """Note that the owner that made *claim* of a partition is about to be replaced."""

    def told(self, fact: fx.Fact, /) -> None:
        """Note that the journal has reported *fact*, or a recovery a seal."""


class CheckpointEnd(Protocol):
    """A function that is called at the end of a checkpoint."""

    def __call__(self, *, durable: bool) -> None:
        """Go on; *durable*: the checkpoint is known to be in the store."""


def ask(
    home: StoreAsker,
    request: fx.Request,
    answer: Callable[[fx.Reply], None],
    snapshot: Snapshot | None = None,
) -> None:
    """Send *request* to the store, after a pause if it is repeated; *answer* gets the reply."""
    wait_us = pause_us(request)
    if wait_us:
        home.after(wait_us, partial(home.ask_store, request, answer, snapshot))
    else:
        home.ask_store(request, answer, snapshot)


def settle(
    home: StoreAsker,
    asker: Asker,
    effects: Effects,
    tell: Callable[[fx.Fact], None],
    snapshot: Snapshot | None = None,
) -> None:
    """Carry out requests of *asker* until it has none left; *tell* gets the facts it reports."""

    def answered(request_id: int, reply: fx.Reply) -> None:
        settle(home, asker, asker.answered(request_id, reply), tell, snapshot)

    for effect in effects:
        if isinstance(effect, fx.Request):
            ask(home, effect, partial(answered, effect.id), snapshot)
        else:
            tell(effect)


class EntriesOnDisk(MemoryEntries):
    """The entries of a partition whose node keeps them on a disk."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        super().__init__()
        self._is_full = is_full

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """See `Entries`. Raises PartitionUnavailable if the disk is full."""
        if self._is_full() and (changed or deleted):
            self.failed = True
            message = "no space left on the disk"
            raise PartitionUnavailable(message)
        super().write(changed, deleted)


class DurableDriver:
    """See the module.

    Attributes:
        working: whether a step is under way, or about to begin.
    """

    def __init__(self, home: DurableHome) -> None:
        self._home = home
        self.ownership: Ownership[LocalPartition] = Ownership(
            home.name, home.nonce, SMALL_GROUPS, home.steward, self._make_part
        )
        self.ownership.releases.may_leave = home.may_leave
        self.journal = self.ownership.journal
        self.working = False

    def _make_part(self, number: int) -> LocalPartition:
        entries = EntriesOnDisk(self._home.is_disk_full)
        state = KeyedState(PACK, AGGREGATIONS, entries=entries)
        return LocalPartition(number, state, self.journal, self.ownership.failed)

    # Tasks.

    def carry_out(self, tasks: Iterable[duties.Task]) -> None:
        """Carry out *tasks* of the steward."""
        self.ownership.carry_out(tasks, self._home.now)
        self._carry_out_all()

    def advance(self) -> None:
        """Do what is due."""
        self.ownership.advance(self._home.now)
        self._carry_out_all()

    def _carry_out_all(self) -> None:
        ownership = self.ownership
        while ownership.out or ownership.ended:
            for each in ownership.take(self._home.now):
                self._carry_out(each)
        if not self.working and not ownership.desk.empty:
            self.working = True
            # Later, so that all parts of one request are in the first group, as with tasks.
            self._home.after(0, self._begin_step)
        self._home.settled()

    def _carry_out(self, task: Any) -> None:
        home = self._home
        match task:
            case Perform(request):
                ask(home, request, partial(self._answered, task))
            case Came(part, epoch):
                home.serves(part.number, epoch)
            case LookDropped(part):
                home.ask_dropped(partial(self._looked, part))
            case duties.AskToRelease():
                self._ask_to_release(task)
            case Replaces(number, claim):
                home.replaces(number, claim)
            case CameBack(part, epoch):
                home.serves_again(part.number, epoch)
            case fx.Reclaimed() | fx.Lost() | fx.Sealed():
                home.told(task)
            case JournalLost(fact):
                home.told(fact)
            case _:
                home.begin(task)

    def _answered(self, asked: Perform, reply: fx.Reply) -> None:
        self.ownership.answered(asked, reply, self._home.now)
        self._carry_out_all()

    def _looked(self, part: LocalPartition, mark: fx.StoreAnswer) -> None:
        dropped = False if mark is fx.StoreAnswer.ABSENT else None
        self.ownership.arrivals.looked(part, self._home.now, dropped=dropped)
        self._carry_out_all()

    def _ask_to_release(self, duty: duties.AskToRelease) -> None:
        number, owner, epoch = duty
        pending = self.ownership.arrivals.pending.get(number)
        journal = "" if pending is None else pending.recovery.journal_of(epoch)
        request = ReleaseRequest(number, epoch, self._home.name, journal)

        def end(value: Any) -> None:
            known = isinstance(value, duties.ReleaseSaid)
            said = value if known else duties.ReleaseSaid.of(value)
            self.ownership.done(duty, said, self._home.now)
            self._carry_out_all()

        self._home.call(owner, "release", request, RELEASE_US, end)

    def release(self, request: ReleaseRequest, answer: End) -> None:
        """Release a partition to the member that asks, if that is right."""
        number, epoch, to, journal = request
        self.ownership.release(number, epoch, to, journal, answer, self._home.now)
        self._carry_out_all()

    # Steps.

    def _begin_step(self) -> None:
        request = self.ownership.desk.begin()
        if request is not None:
            ask(self._home, request, partial(self._step_answered, request))
        else:
            self.working = False
            self._carry_out_all()

    def _step_answered(self, request: fx.Request, reply: fx.Reply) -> None:
        following = self.ownership.step_answered(request, reply)
        if following is not None:
            ask(self._home, following, partial(self._step_answered, following))
            return
        self._carry_out_all()
        self._begin_step()

    # Requests for partitions.

    def write(self, part: LocalPartition, writes: Sequence[Write], end: End) -> None:
        """Commit *writes*; call *end* with their outcomes, or an error."""
        try:
            job = self.ownership.write(part, writes)
        except KeyspaceError as error:
            end(error)
            return

        def wake() -> None:
            if job.error is None:
                self._home.acknowledges(part.number, part.epoch)
            end(job.outcomes if job.error is None else job.error)

        self._when_done(job, wake)

    def read(self, part: LocalPartition, keys: Sequence[str], end: End) -> None:
        """Call *end* with the packed values of *keys*, or an error."""
        try:
            job = self.ownership.read(part)
        except KeyspaceError as error:
            end(error)
            return
        wake = lambda: end(part.state.packed(keys) if job.error is None else job.error)  # noqa: E731
        self._when_done(job, wake)

    def _when_done(self, job: Job, wake: Callable[[], None]) -> None:
        job.wake = wake
        self._carry_out_all()

    # Beside the steps.

    def checkpoint(self, part: LocalPartition, end: CheckpointEnd) -> None:
        """Put a checkpoint of *part* as it is now; *end* gets whether it is in the store."""
        number = part.number
        durable = False

        def tell(fact: fx.Fact) -> None:
            nonlocal durable
            if isinstance(fact, fx.Checkpointed):
                durable = True
            else:  # the last fact
                end(durable=durable)

        effects = self.journal.checkpoint(number, self.journal.position(number))
        settle(self._home, self.journal, effects, tell, part.state.snapshot())

    def trim(self, end: Callable[[fx.Trimmed], None]) -> None:
        """Delete what checkpoints cover; *end* gets how far."""

        def tell(fact: fx.Fact) -> None:
            assert isinstance(fact, fx.Trimmed)
            end(fact)

        settle(self._home, self.journal, self.journal.trim(), tell)
