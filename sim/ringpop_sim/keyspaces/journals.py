"""Drives the journal and the desk of one simulated node, as `ringpop_py.partition.writer` does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.config.settings import StateConfig
from ringpop_py.journal import effects as fx
from ringpop_py.journal.desk import Desk, Presence, ReleaseJob, Served
from ringpop_py.journal.journal import Journal
from ringpop_sim.units import ms, s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.journal.asker import Asker, Effects
    from ringpop_py.journal.records import Entry
    from ringpop_py.keyed.keyed import KeyedState, Snapshot

REPEAT_US_MIN: Final = 10 * ms
REPEAT_US_MAX: Final = 1 * s
TROUBLES: Final = (fx.StoreAnswer.FAILED, fx.StoreAnswer.NO_ROOM)
"""The answers of a store that did not carry a request out, or does not say whether it has."""


class StoreAsker(Protocol):
    """Asks the store for a process."""

    def after(self, delay_us: int, act: Callable[[], None], /) -> None:
        """Call *act* later, when the process runs."""

    def ask_store(
        self, request: fx.Request, answer: Callable[[fx.Reply], None], snapshot: Snapshot | None, /
    ) -> None:
        """Send *request* to the store, and call *answer* with its reply."""


class JournalHome(StoreAsker, Protocol):
    """What the driver of a journal needs of the process that it is in."""

    @property
    def name(self) -> str:
        """The name of the node."""

    def nonce(self) -> str:
        """Return a text that no process has used before."""

    def acknowledges(self, entries: Sequence[Entry], /) -> None:
        """Requests are about to be answered after a group with *entries* was committed."""

    def told(self, fact: fx.Fact, /) -> None:
        """The journal has reported *fact*."""


class Driven(Served, Protocol):
    """A partition as the driver of its journal sees it."""

    @property
    def state(self) -> KeyedState:
        """What its entries amount to."""


class JournalKeeper(Protocol):
    """What has to know how the partitions of a journal fare."""

    def fenced(self, partitions: Sequence[Driven], /) -> None:
        """*partitions* are being claimed again."""

    def claimed_again(self, partition: Driven, epoch: int, /) -> None:
        """*partition* is served again, in *epoch*."""

    def lost(self, partition: Driven, to: str, /) -> None:
        """*to* has taken *partition*, which this node had."""


class CheckpointEnd(Protocol):
    """What is called at the end of a checkpoint."""

    def __call__(self, *, durable: bool) -> None:
        """Go on; *durable*: the checkpoint is known to be in the store."""


def ask(
    home: StoreAsker,
    request: fx.Request,
    answer: Callable[[fx.Reply], None],
    snapshot: Snapshot | None = None,
) -> None:
    """Send *request* to the store, after a pause if it is repeated; *answer* gets the reply."""
    attempt = getattr(request, "attempt", 0)
    if attempt:
        wait_us = min(REPEAT_US_MIN << min(attempt, 16), REPEAT_US_MAX)
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
    for effect in effects:
        if isinstance(effect, fx.Request):
            ask(home, effect, partial(_settled, home, asker, effect.id, tell, snapshot), snapshot)
        else:
            tell(effect)


def _settled(
    home: StoreAsker,
    asker: Asker,
    request_id: int,
    tell: Callable[[fx.Fact], None],
    snapshot: Snapshot | None,
    reply: fx.Reply,
) -> None:
    settle(home, asker, asker.answered(request_id, reply), tell, snapshot)


class JournalDriver:
    """Writes what all partitions of a node commit, one step after the other.

    Attributes:
        claiming: partitions whose claims are on their way.
        working: whether a step is under way.
        in_trouble: whether the store did not carry out the last request.
    """

    def __init__(self, home: JournalHome, keeper: JournalKeeper) -> None:
        self.journal = Journal(home.name, home.nonce)
        self.desk = Desk(self.journal, StateConfig())
        self.claiming: set[int] = set()
        self.working = False
        self.in_trouble = False
        self._home = home
        self._keeper = keeper
        self._partitions: dict[int, Driven] = {}
        self._entries: Sequence[Entry] = ()
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    # Partitions come and go.

    def holds(self, partition: Driven) -> None:
        """Serve *partition*, which the journal holds now."""
        self._partitions[partition.number] = partition

    def leave(self, partition: Driven) -> None:
        """Release *partition*, whose state is not needed any more, if the journal holds it."""
        if self._partitions.get(partition.number) is not partition:
            return
        if partition.number in self.journal.held:
            self._release_unwanted(partition)
        elif not self.journal.reclaims(partition.number):
            del self._partitions[partition.number]

    def give_up(self, partition: Driven) -> None:
        """Release *partition*, which is not wanted here any more."""
        partition.presence = Presence.LOST
        self.leave(partition)

    def _release_unwanted(self, partition: Driven) -> None:
        number = partition.number

        def end() -> None:
            if job.error is not None:
                self._home.after(REPEAT_US_MAX, again)
            else:
                self._forget(partition)

        def again() -> None:
            if number in self.journal.held and self._partitions.get(number) is partition:
                self._release_unwanted(partition)
            else:
                self._forget(partition)

        job = ReleaseJob(partition, "")
        job.wake = end
        self.desk.add_release(job)
        self.work()

    def _forget(self, partition: Driven) -> None:
        number = partition.number
        if not self.journal.reclaims(number) and self._partitions.get(number) is partition:
            del self._partitions[number]
            partition.state.reset()

    def is_settled(self, number: int, journal: str) -> bool:
        """Return whether an epoch of partition *number* in *journal* is open here no longer."""
        # A claim after a fence may be there already, though its reply has not come.
        claims = number in self.claiming or self.journal.reclaims(number)
        return journal != self.journal.name or (number not in self.journal.held and not claims)

    def when_claimed(self, number: int, act: Callable[[], None]) -> None:
        """Call *act* once no claim of partition *number* after a fence is under way."""
        if self.journal.reclaims(number):
            self._waiting.append((number, act))
        else:
            act()

    # One step after the other.

    def work(self) -> None:
        """Do what the desk has, unless that is being done already."""
        if not self.working:
            self.working = True
            # Later, so that all parts of one request are in the first group, as with tasks.
            self._home.after(0, self._begin)

    def _begin(self) -> None:
        effects = self.desk.begin()
        if not effects:
            self.working = False
            return
        (request,) = effects
        is_commit = isinstance(request, fx.PutSlot)
        self._entries = request.record.entries if is_commit else ()  # type: ignore[union-attr]
        self._go_on(effects)

    def _go_on(self, effects: Effects) -> None:
        first = effects[0]
        if isinstance(first, fx.Request):
            assert len(effects) == 1, "a step has one request at a time"
            self._ask(first, self._go_on)
            return
        self._end_step(first, effects[1:])
        self._begin()

    def _ask(self, request: fx.Request, go_on: Callable[[Effects], None]) -> None:
        def answered(reply: fx.Reply) -> None:
            self.in_trouble = reply in TROUBLES
            go_on(self.journal.answered(request.id, reply))

        ask(self._home, request, answered)

    def _end_step(self, fact: fx.Fact, claims: Effects) -> None:
        """Tell the desk how the step has ended; *claims* are those of a fence."""
        if isinstance(fact, fx.Fenced):
            self._fenced(fact, claims)
        elif isinstance(fact, fx.Committed):
            self._home.acknowledges(self._entries)
        self.desk.ended(fact)

    # Fences.

    def _fenced(self, fact: fx.Fenced, claims: Effects) -> None:
        self._home.told(fact)
        again: list[Driven] = []
        for claim in claims:
            assert isinstance(claim, fx.PutClaim)
            partition = self._partitions[claim.partition]
            if partition.presence is not Presence.LOST:
                partition.presence = Presence.COMING
                again.append(partition)
            self._ask(claim, self._claim_goes_on)
        self._keeper.fenced(again)
        for number in fact.lost:
            self._lost(number, fact.by)

    def _claim_goes_on(self, effects: Effects) -> None:
        (effect,) = effects
        if isinstance(effect, fx.Request):
            self._ask(effect, self._claim_goes_on)
            return
        self._home.told(effect)
        if isinstance(effect, fx.Lost):
            self._lost(effect.partition, effect.owner)
        else:
            assert isinstance(effect, fx.Reclaimed)
            self._claimed_again(effect)
        self._claim_ended(effect.partition)

    def _claim_ended(self, number: int) -> None:
        waiting, self._waiting = self._waiting, []
        for each, act in waiting:
            if each == number:
                act()
            else:
                self._waiting.append((each, act))

    def _claimed_again(self, fact: fx.Reclaimed) -> None:
        partition = self._partitions[fact.partition]
        if partition.presence is Presence.LOST:  # given up meanwhile
            self._release_unwanted(partition)
            return
        self.desk.claimed_again(partition)
        self._keeper.claimed_again(partition, fact.epoch)
        self.work()

    def _lost(self, number: int, to: str) -> None:
        partition = self._partitions.pop(number)
        self.desk.lost(partition)
        self._keeper.lost(partition, to)

    # Beside the steps.

    def checkpoint(self, partition: Driven, end: CheckpointEnd) -> None:
        """Put a checkpoint of *partition* as it is now; *end* gets whether it is in the store."""
        number = partition.number
        durable = False

        def tell(fact: fx.Fact) -> None:
            nonlocal durable
            if isinstance(fact, fx.Checkpointed):
                durable = True
            else:  # the last fact
                end(durable=durable)

        effects = self.journal.checkpoint(number, self.journal.position(number))
        settle(self._home, self.journal, effects, tell, partition.state.snapshot())

    def trim(self, end: Callable[[fx.Trimmed], None]) -> None:
        """Delete what checkpoints cover; *end* gets how far."""

        def tell(fact: fx.Fact) -> None:
            assert isinstance(fact, fx.Trimmed)
            end(fact)

        settle(self._home, self.journal, self.journal.trim(), tell)
