"""The partitions of a durable keyspace at one process, as `ringpop_py.shares.durable_driver` has.

It carries out what the steward decides, and tells it how the partitions of the journal fare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ringpop_py.journal.desk import Presence
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.steward import duties
from ringpop_sim.keyspaces.copies import AGGREGATIONS, PACK
from ringpop_sim.keyspaces.journals import JournalDriver, StoreAsker
from ringpop_sim.keyspaces.partitions import PartitionDriver
from ringpop_sim.units import s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.journal import effects as fx
    from ringpop_py.journal.records import Claim, Entry
    from ringpop_sim.keyspaces.journals import Driven

    End = Callable[[Any], None]

RELEASE_US: Final = 5 * s


class ReleaseRequest(NamedTuple):
    """Asks for a partition; see `ringpop_py.shares.durable_driver.ReleaseRequest`."""

    number: int
    epoch: int
    to: str
    journal: str


class DurableHome(StoreAsker, Protocol):
    """The keyspace at one process. See `ringpop_sim.keyspaces.home.Home`."""

    name: str
    steward: Any
    partitions: dict[int, Any]

    @property
    def now(self) -> int:
        """What the clock of the process shows."""

    def nonce(self) -> str:
        """Return a text that no process has used before."""

    def do(self, tasks: Iterable[duties.Task], /) -> None:
        """Carry *tasks* out."""

    def call(self, to: str, what: str, argument: Any, ttl_us: int, end: End, /) -> None:
        """Call the member *to*."""

    def ask_dropped(self, answer: Callable[[fx.StoreAnswer], None], /) -> None:
        """Ask the store for the mark of a drop; *answer* gets ABSENT, or FAILED."""

    # For oracles.

    def serves(self, number: int, epoch: int, /) -> None:
        """A partition is served from now on."""

    def serves_again(self, number: int, epoch: int, /) -> None:
        """A partition is served again, which was claimed again after a fence."""

    def acknowledges(self, entries: Sequence[Entry], /) -> None:
        """Requests are about to be answered after a group with *entries* was committed."""

    def replaces(self, number: int, claim: Claim, /) -> None:
        """The owner that made *claim* of a partition is about to be replaced."""

    def told(self, fact: fx.Fact, /) -> None:
        """The journal has reported *fact*."""


class DurableDriver:
    """See the module.

    Attributes:
        coming: partitions on their way to the process.
    """

    def __init__(self, home: DurableHome) -> None:
        self.coming: dict[int, PartitionDriver] = {}
        self._home = home
        self.writer = JournalDriver(home, self)

    # Duties.

    def come(self, duty: duties.Follow | duties.Acquire, end: End) -> None:
        """Carry out *duty*, and call *end* with its result."""
        number = duty.number
        partition = self.coming.get(number)
        # The journal may still call the state of a try that was given up.
        if partition is None or partition.presence is Presence.LOST:
            state = KeyedState(PACK, AGGREGATIONS)
            partition = PartitionDriver(self._home, self.writer, number, state)
            self.coming[number] = partition

        def may_take(claim: Claim, epoch: int) -> bool:
            assert isinstance(duty, duties.Acquire)
            takes: bool = self._home.steward.may_replace(duty, claim.owner, epoch)
            if takes:
                self._home.replaces(number, claim)
            return takes

        if isinstance(duty, duties.Follow):
            partition.follow(end)
        else:
            partition.acquire(may_take, end)

    def serve(self, number: int, epoch: int) -> None:
        """Serve a partition that has come."""
        self._home.partitions[number] = self.coming.pop(number)
        self._home.serves(number, epoch)

    def abandon(self, number: int) -> None:
        """Give up a partition on its way here, if its try has begun."""
        if number in self.coming:
            self.coming.pop(number).leave()

    def ask_to_release(self, duty: duties.AskToRelease, end: End) -> None:
        """Ask the owner of a partition to release it; *end* gets a `ReleaseSaid`."""
        number, owner, epoch = duty
        coming = self.coming.get(number)
        journal = "" if coming is None else coming.journal_of(epoch)
        request = ReleaseRequest(number, epoch, self._home.name, journal)
        self._home.call(owner, "release", request, RELEASE_US, lambda v: end(_release_said(v)))

    def seal(self, duty: duties.SealFor, tell: Callable[[duties.ReleaseSaid], None]) -> None:
        """Release a partition; the steward and *tell* get a `ReleaseSaid`."""
        home, number = self._home, duty.number

        def end(said: duties.ReleaseSaid) -> None:
            home.do(home.steward.done(duty, said, home.now))
            tell(said)

        partition = home.partitions.get(number)
        if partition is None:  # it was lost
            home.after(0, lambda: end(duties.ReleaseSaid.NOT_MINE))
        else:
            partition.release(duty.to, end)

    def release(self, request: ReleaseRequest, answer: End) -> None:
        """Release a partition to the member that asks, if that is right."""
        number, epoch, to, journal = request
        said = self._home.steward.release(number, epoch, to)
        if isinstance(said, duties.SealFor):
            self.seal(said, answer)
            return
        # Who hears NOT_MINE may seal the journal, and with it all partitions of this node. So a
        # claim or a release that is on its way here is waited for.
        wait = said is duties.ReleaseSaid.NOT_MINE and not self.writer.is_settled(number, journal)
        answer(duties.ReleaseSaid.NOT_YET if wait else said)

    # As `Keeper` of the journal.

    def fenced(self, partitions: Sequence[Driven]) -> None:
        """The journal was sealed; *partitions* are being claimed again."""
        home = self._home
        here = [p.number for p in partitions if home.partitions.get(p.number) is p]
        home.do(home.steward.fenced(here, home.now))

    def claimed_again(self, partition: Driven, epoch: int) -> None:
        """*partition* is served again, in *epoch*."""
        home, number = self._home, partition.number
        if home.partitions.get(number) is partition:
            home.serves_again(number, epoch)
            home.do(home.steward.claimed_again(number, epoch, home.now))
        elif self.coming.get(number) is not partition:
            self.writer.give_up(partition)

    def lost(self, partition: Driven, to: str) -> None:
        """Give up a partition that another node has taken over."""
        home, number = self._home, partition.number
        if home.partitions.get(number) is partition:
            home.do(home.steward.lost(number, to, home.now))


def _release_said(value: Any) -> duties.ReleaseSaid:
    return value if isinstance(value, duties.ReleaseSaid) else duties.ReleaseSaid.of(value)
