"""Drives the log of one partition at a simulated node, as `ringpop_py.partition` does on trio."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.errors import (
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.slotlog import effects as fx
from ringpop_py.slotlog.slotlog import SlotLog
from ringpop_py.steward import duties as do
from ringpop_sim.units import ms, s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.keyed.keyed import KeyedState, Snapshot
    from ringpop_py.slotlog.slots import Claim, Slot
    from ringpop_py.values.operations import Write

    End = Callable[[Any], None]


class LogHome(Protocol):
    """What the driver of a log needs of the process that it is in."""

    @property
    def name(self) -> str:
        """The name of the node."""

    def nonce(self) -> str:
        """Return a text that no process has used before."""

    def is_there(self, name: str) -> bool:
        """Return whether the member *name* may answer."""

    def after(self, delay_us: int, act: Callable[[], None], /) -> None:
        """Call *act* later, when the process runs."""

    def ask_store(
        self,
        partition: int,
        request: fx.Request,
        snapshot: tuple[tuple[Slot, ...], Snapshot] | None,
        answer: Callable[[fx.Reply], None],
    ) -> None:
        """Send *request* to the store, and call *answer* with its reply."""

    def ask_dropped(self, answer: Callable[[fx.StoreAnswer], None]) -> None:
        """Ask the store for the mark of a drop; *answer* gets ABSENT, or FAILED."""

    def lost(self, partition: LogDriver, to: str) -> None:
        """*to* has sealed the log of *partition*."""

    def acknowledges(self, partition: LogDriver) -> None:
        """Writes of *partition* are about to be acknowledged."""


REPEAT_US_MIN: Final = 10 * ms
REPEAT_US_MAX: Final = 1 * s
ATTEMPTS_MAX: Final = 10
"""After this many attempts a node that does not own the partition yet gives up for a while."""
CHECKPOINT_COMMITS: Final = 12


class Standing(Enum):
    """What a node has of a partition."""

    COMING = "coming"
    ONLINE = "online"
    GOING = "going"
    LOST = "lost"


class LogDriver:
    """One partition at one node: groups of writes, reads, and what its steward asks for."""

    def __init__(self, home: LogHome, number: int, state: KeyedState) -> None:
        self.number = number
        self.presence = Standing.COMING
        self.state = state
        self.log = SlotLog(home.name, state, home.nonce)
        self._home = home
        self._end: End | None = None  # of what the steward has asked for
        self._asked: do.Follow | do.Acquire | None = None
        self._writes: list[tuple[Sequence[Write], End]] = []
        self._reads: list[tuple[Sequence[str], End]] = []
        self._group: list[tuple[Sequence[Write], End, int]] = []
        self._outcomes: list[Any] = []
        self._riding: list[tuple[Sequence[str], End]] = []
        self._checking: list[tuple[Sequence[str], End]] = []
        self._repeated: list[tuple[End, list[Any]]] = []
        self._release: tuple[str, End] | None = None
        self._snapshot: tuple[tuple[Slot, ...], Snapshot] | None = None
        self._commits = 0

    def __repr__(self) -> str:
        return f"<LogDriver {self.number} {self.presence.value} {self.log.stage.name}>"

    # What the steward asks for.

    def come(self, duty: do.Follow | do.Acquire, end: End) -> None:
        """Carry out *duty*, and call *end* with its result."""
        self.presence, self._asked, self._end = Standing.COMING, duty, end
        if isinstance(duty, do.Follow):
            self._do(self.log.follow())
            return

        def may_take(claim: Claim) -> bool:
            return claim.owner in duty.given_up or not self._home.is_there(claim.owner)

        self._do(self.log.acquire(may_take))

    def release(self, to: str, end: End) -> None:
        """Seal the log once nothing else is under way; call *end* with a `ReleaseSaid`."""
        if self.presence is not Standing.ONLINE or self._release is not None:
            end(do.ReleaseSaid.NOT_MINE)
            return
        self._release = to, end
        self._work()

    def leave(self) -> None:
        """Give the partition up."""
        self.presence = Standing.LOST
        self._end = None
        self._do(self.log.drop())
        self._refuse()

    # What clients ask for.

    def write(self, writes: Sequence[Write], end: End) -> None:
        """Commit *writes*; call *end* with their outcomes, or an error."""
        self._writes.append((writes, end))
        self._work()

    def read(self, keys: Sequence[str], end: End) -> None:
        """Call *end* with the packed values of *keys*, or an error."""
        self._reads.append((keys, end))
        self._work()

    # One step after the other.

    @property
    def _busy(self) -> bool:
        return bool(self._group or self._checking or self._repeated)

    def _work(self) -> None:
        if self.presence is not Standing.ONLINE:
            if self.presence is not Standing.COMING:
                self._refuse()
            return
        if self._busy:
            return
        if self._writes:
            self._commit()
        elif self._reads:
            self._check()
        elif self._release is not None:
            self.presence = Standing.GOING  # before the put: nothing may be queued behind the seal
            self._do(self.log.release(self._release[0]))

    def _commit(self) -> None:
        waiting, self._writes = self._writes, []
        body, outcomes = self.state.stage([w for writes, _ in waiting for w in writes])
        first, parts = 0, []
        for writes, end in waiting:
            parts.append((end, outcomes[first : first + len(writes)]))
            first += len(writes)
        if body is None:  # all were refused, or repeat what took effect
            self._repeated = parts
            self._check()
            return
        self._group = [(writes, end, len(writes)) for writes, end in waiting]
        self._outcomes = outcomes
        # These reads were requested before the commit begins, so its success answers them, too.
        self._riding, self._reads = self._reads, []
        self._do(self.log.commit(body))

    def _check(self) -> None:
        self._checking, self._reads = self._reads, []
        self._do(self.log.read())

    def _refuse(self, error: KeyspaceError | None = None) -> None:
        """Refuse everything that waits."""
        # A commit that is under way may still reach the log.
        in_hand = error or OutcomeUnknown(f"partition {self.number} leaves {self._home.name}")
        group = [end for _, end, _ in self._group]
        error = error or PartitionUnavailable(f"partition {self.number} has left {self._home.name}")
        ends = [end for _, end in (*self._writes, *self._reads, *self._riding, *self._checking)]
        ends += [end for end, _ in self._repeated]
        self._writes, self._reads, self._riding, self._checking = [], [], [], []
        self._group, self._repeated = [], []
        release, self._release = self._release, None
        for end in group:
            end(in_hand)
        for end in ends:
            end(error)
        if release is not None:
            release[1](do.ReleaseSaid.NOT_MINE)

    # Requests and facts of the log.

    def _do(self, effects: Iterable[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Request):
                self._ask(effect)
            else:
                self._told(effect)

    def _ask(self, request: fx.Request) -> None:
        attempt = getattr(request, "attempt", 0)
        if attempt > ATTEMPTS_MAX and self._end is not None:
            self._give_up()
            return
        wait_us = min(REPEAT_US_MIN << min(attempt, 16), REPEAT_US_MAX) if attempt else 0
        self._home.after(wait_us, lambda: self._send(request))

    def _send(self, request: fx.Request) -> None:
        def answer(reply: fx.Reply) -> None:
            self._do(self.log.answered(request.id, reply))

        self._home.ask_store(self.number, request, self._snapshot, answer)

    def _come_to(self, result: object) -> None:
        end, self._end = self._end, None
        assert end is not None
        end(result)

    def _told(self, fact: fx.Fact) -> None:
        if isinstance(fact, fx.Acquired | fx.NotAcquired | fx.Followed | fx.Damaged):
            self._told_while_coming(fact)
        else:
            self._told_as_owner(fact)

    def _told_while_coming(self, fact: fx.Fact) -> None:
        match fact:
            case fx.Acquired(epoch):
                end = self._end
                self._home.ask_dropped(lambda reply: self._acquired(epoch, end, reply))
            case fx.NotAcquired(holder, position):
                self._come_to(do.HeldBy(holder.owner, position.epoch))
            case fx.Followed():
                self._come_to(do.Got())
            case fx.Damaged():
                self._come_to(do.Trouble(damaged=True))
            case _:
                raise AssertionError(fact)

    def _acquired(self, epoch: int, end: End | None, mark: fx.StoreAnswer) -> None:
        if end is not self._end:  # the partition was given up meanwhile
            return
        if mark is fx.StoreAnswer.ABSENT:
            self.presence = Standing.ONLINE
            self._come_to(do.Taken(epoch))
        else:
            self._give_up()

    def _give_up(self) -> None:
        """End the try for want of the store."""
        self.log.drop()
        self._come_to(do.Trouble())

    def _told_as_owner(self, fact: fx.Fact) -> None:
        match fact:
            case fx.Committed():
                self._committed()
            case fx.NotCommitted():
                reads, self._riding = self._riding, []
                self._reads = reads + self._reads
                self._end_group(StoreFull("the store has no room left"))
            case fx.MayRead():
                self._answer()
            case fx.ReadFailed():
                self._end_checks(StoreUnavailable("the store did not answer"))
            case fx.Fenced(to, commit_open):
                self._fenced(to, commit_open=commit_open)
            case fx.Released():
                self._released()
            case _:  # of checkpoints
                pass

    def _released(self) -> None:
        assert self._release is not None
        (_, end), self._release = self._release, None
        end(do.ReleaseSaid.SEALED)
        self._refuse()

    def _end_checks(self, error: KeyspaceError) -> None:
        ends = [end for _, end in self._checking] + [end for end, _ in self._repeated]
        self._checking, self._repeated = [], []
        for end in ends:
            end(error)
        self._work()

    def _committed(self) -> None:
        self._home.acknowledges(self)
        outcomes, first = self._outcomes, 0
        group, self._group = self._group, []
        reads, self._riding = self._riding, []
        for _, end, count in group:
            end(outcomes[first : first + count])
            first += count
        for keys, end in reads:
            end(self.state.packed(keys))
        self._commits += 1
        if self._commits % CHECKPOINT_COMMITS == 0 and not self.log.checkpointing:
            self._snapshot = (), self.state.snapshot()
            self._do(self.log.checkpoint(self.log.position))
        self._work()

    def _end_group(self, error: KeyspaceError) -> None:
        group, self._group = self._group, []
        for _, end, _ in group:
            end(error)
        self._work()

    def _answer(self) -> None:
        reads, self._checking = self._checking, []
        repeated, self._repeated = self._repeated, []
        for keys, end in reads:
            end(self.state.packed(keys))
        for end, outcomes in repeated:
            end(outcomes)
        self._work()

    def _fenced(self, to: str, *, commit_open: bool) -> None:
        self.presence = Standing.LOST
        error = PartitionUnavailable(f"partition {self.number} was taken over by {to or 'another'}")
        group, self._group = self._group, []
        for _, end, _ in group:
            end(OutcomeUnknown(str(error)) if commit_open else error)
        self._home.lost(self, to)
        self._refuse(error)
        self._do(self.log.drop())
