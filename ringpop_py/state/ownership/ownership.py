"""Which partitions of a durable keyspace this node owns, and how each comes and goes (pure).

```
PENDING ─► ACQUIRING ─► OWNED ─► RELEASING ─► RELEASED ─► LOST
                        │   ▲        │                      ▲
              a fence   ▼   │        ▼                      │
                      RECLAIMING ◄───┘ ─── another won ─────┤
                          UNWANTED ── released to nobody ───┘
```

The steward decides which partitions are wanted, and the `Presence` of each says how far it is here.
Three machines do the work: a `Recovery` reads and claims a partition, the one `Journal` writes for
all that are held, and the `Desk` has the jobs of callers. A partition that is given up while the
journal holds it, or while a claim of it is in flight, is UNWANTED until it was released. A try that
fails ends in LOST, and the next one has a new partition, unless there is an owner that may not be
replaced: then it is PENDING as before. A release that is refused leads back to OWNED.

Each method is called with an event, and leaves in `out` what there is to do. The driver carries
that out, in order, and then calls `answered` with the store's reply to a `Perform`,
`arrivals.looked` after a `LookDropped`, and `carry_out` with the steward's tasks. The steps of the
desk go another way, because nothing else happens so often: `desk.begin` returns a request,
`step_answered` the next one, until none is left. Requests with an `attempt` wait before they are
made (`pause_us`). At `next_deadline` the driver calls `advance`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ringpop_py.base.errors import (
    KeyspaceError,
    PartitionUnavailable,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import is_failure
from ringpop_py.state.journal.desk import Desk, Job, Presence, WriteJob
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.ownership.arrivals import Arrivals
from ringpop_py.state.ownership.local import (
    GIVEN_UP,
    Came,
    CameBack,
    JournalLost,
    LocalPartition,
    Perform,
    TakenOver,
)
from ringpop_py.state.ownership.releases import Releases
from ringpop_py.state.placement import duties as do

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.base.values.operations import PackedWrite, Write
    from ringpop_py.state.ownership.releases import Tell
    from ringpop_py.state.ownership.steward import DurableSteward

_OWNED: Final = Presence.OWNED  # looked up once: each request asks

P = TypeVar("P", bound=LocalPartition)


class Ownership(Generic[P]):
    """See the module.

    Args:
        node_name: the name of this node.
        make_name: returns a text that no process anywhere has used before.
        make_part: makes a partition of that number.

    Attributes:
        parts: the partitions that the steward knows to be here, by number.
        arrivals, releases: those on their way here, and from here.
        out: what there is to do; the driver takes it (`take`).
        ended: what follows from jobs that have ended: `take` does it.
        trouble: why the store does not answer the step under way; None if it does.
        refusal: why the store has refused the last group or claim, unless for lack of room.
        full: why the store has refused the last group or claim, if for lack of room.
        failed: partitions whose state could not apply what the present step has committed.
    """

    def __init__(
        self,
        node_name: str,
        make_name: Callable[[], str],
        config: StateConfig,
        steward: DurableSteward,
        make_part: Callable[[int], P],
    ) -> None:
        self.journal = Journal(node_name, make_name)
        self.desk = Desk(self.journal, config)
        self.steward = steward
        self.parts: dict[int, P] = {}
        self.out: list[Any] = []
        self.ended: list[Callable[[int], None]] = []
        self.refusal: StoreRefused | None = None
        self.full: StoreFull | None = None
        self.trouble: KeyspaceError | None = None
        self.failed: list[LocalPartition] = []
        self.releases = Releases(self.desk, steward, self.parts, self.done, self.ended)
        self.arrivals = Arrivals(steward, make_part, self.releases, self.done, self.out)
        self._holders = self.releases.holders
        self._tasks: deque[do.Task] = deque()
        self._doing = False

    # The steward's tasks.

    def take(self, now: int) -> list[Any]:
        """Return what there is to do; the driver has it now."""
        while self.ended:
            self.ended.pop(0)(now)
        out = self.out[:]
        self.out.clear()
        return out

    def carry_out(self, tasks: Iterable[do.Task], now: int) -> None:
        """Carry out *tasks* of the steward. All go to `out`, too: some are the driver's."""
        self._tasks.extend(tasks)
        if self._doing:
            return
        self._doing = True
        try:
            while self._tasks:
                self._begin(self._tasks.popleft(), now)
        finally:
            self._doing = False

    def _begin(self, task: do.Task, now: int) -> None:
        self.out.append(task)
        match task:
            case do.Follow() | do.Acquire():
                self.arrivals.begin(task, now)
            case do.ReleaseTo(number, to):
                self.releases.begin(task, self.parts.get(number), to, now)
            case do.Serve(number, epoch):
                part = self.parts[number] = self.arrivals.pending.pop(number)
                self.out.append(Came(part, epoch))
            case do.Drop(number):
                self.releases.leave(self.parts.pop(number))
            case do.Abandon(number):
                # None if its try had not begun, for lack of a place.
                abandoned = self.arrivals.pending.pop(number, None)
                if abandoned is not None:
                    self.releases.leave(abandoned)
            case _:
                pass

    def done(self, duty: do.Duty, result: object, now: int) -> None:
        """Pass the *result* of a duty on to the steward."""
        self.carry_out(self.steward.done(duty, result, now), now)

    # Partitions come and go.

    def answered(
        self, asked: Perform, reply: fx.Reply, now: int, error: KeyspaceError | None = None
    ) -> None:
        """Go on after the store's *reply*; *error* is what it has raised, if that is known."""
        if isinstance(asked.request, fx.PutClaim):
            if reply is fx.StoreAnswer.WON:
                self.refusal = self.full = None
            else:
                _note_refusal(self, error)
        if asked.part is not None:
            self.arrivals.answered(asked, reply, now, error)
            return
        (effect,) = self.journal.answered(asked.request.id, reply)
        if isinstance(effect, fx.Request):
            self.out.append(Perform(effect, None))
        else:
            self._claim_ended(effect, now)

    def release(self, number: int, epoch: int, to: str, journal: str, tell: Tell, now: int) -> None:
        """Release a partition to the member *to*, if that is right; *tell* it, perhaps later.

        Args:
            epoch, journal: of the newest claim that *to* knows, and the journal which that names.
        """
        settled = self.is_settled(number, journal)
        self.releases.ask(number, epoch, to, tell, now, settled=settled)

    def is_settled(self, number: int, journal: str) -> bool:
        """Return whether no epoch of partition *number* in *journal* is open here any more."""
        if journal != self.journal.name:
            return True
        pending = self.arrivals.pending.get(number)
        # A claim may be there already, though its reply has not come.
        claims = pending is not None and (
            pending.presence is Presence.ACQUIRING or pending.recovery.pursues
        )
        held = number in self.journal.held or self.journal.reclaims(number)
        return not held and not claims

    @property
    def next_deadline(self) -> int:
        """When to call `advance`."""
        at, repeat_at = self.steward.next_deadline, self.releases.repeat_at
        return at if repeat_at is None else min(at, repeat_at)

    def advance(self, now: int) -> None:
        """Do what is due at *now*."""
        self.releases.advance(now)
        if self.steward.next_deadline <= now:
            self.carry_out(self.steward.advance(now), now)

    # One step of the desk after the other.

    def write(self, part: LocalPartition, writes: Sequence[Write | PackedWrite]) -> WriteJob:
        """Queue *writes* of one caller, in order, to be committed with those of others.

        Raises:
            PartitionUnavailable: if this node does not own it now, or too much waits for it.
            StoreUnavailable: if the store does not answer the step under way: no caller must wait.
        """
        if part.presence is not _OWNED or self.trouble is not None:
            self._check(part)
        job = WriteJob(part, writes)
        self.desk.add_write(job)
        return job

    def read(self, part: LocalPartition) -> Job:
        """Queue a read. Raises as `write` does."""
        if part.presence is not _OWNED or self.trouble is not None:
            self._check(part)
        job = Job(part)
        self.desk.add_read(job)
        return job

    def _check(self, part: LocalPartition) -> None:
        if part.presence is not _OWNED:
            text = f"partition {part.number} is {part.presence.value} here"
            raise PartitionUnavailable(text)
        assert self.trouble is not None
        raise type(self.trouble)(str(self.trouble))

    def step_answered(
        self, request: fx.Request, reply: fx.Reply, error: KeyspaceError | None = None
    ) -> fx.Request | None:
        """Go on after the store's *reply*; return the next request, or None at the step's end.

        Args:
            error: what the store has raised, if its error is known.
        """
        effects = self.journal.answered(request.id, reply)
        fact, *claims = effects
        if isinstance(fact, fx.Request):
            assert not claims, "a step has one request at a time"
            failed = is_failure(reply)
            silent = error or StoreUnavailable("the store does not answer")
            self.trouble = silent if failed else None
            return fact
        self.trouble = why = None
        if isinstance(fact, fx.Committed):
            self.refusal = self.full = None
        elif isinstance(fact, fx.Fenced):
            self._fenced(fact, claims)
        elif isinstance(fact, fx.NotCommitted):
            why = _note_refusal(self, error)
        self.desk.ended(fact, why)
        if self.failed:
            self.ended.append(self._give_up_failed)
        return None

    def stop(self) -> None:
        """Lose all partitions: the node ends, or has a bug. The step's outcome is unknown."""
        for part in self._holders.values():
            self.desk.lost(part)
        self.desk.stop()

    # Fences.

    def _fenced(self, fact: fx.Fenced, claims: Iterable[fx.Effect]) -> None:
        again: list[LocalPartition] = []
        requests: list[Perform] = []
        for claim in claims:
            assert isinstance(claim, fx.PutClaim)
            part = self._holders[claim.partition]
            if part.presence is not Presence.UNWANTED:
                part.presence = Presence.RECLAIMING
                again.append(part)
            requests.append(Perform(claim, None))
        self.out += [JournalLost(fact, len(again)), *requests]
        here = [part.number for part in again if self.parts.get(part.number) is part]
        self.ended.append(lambda now: self._tell_fenced(fact, here, now))

    def _tell_fenced(self, fact: fx.Fenced, here: Iterable[int], now: int) -> None:
        self.carry_out(self.steward.fenced(here, now), now)
        for number in fact.lost:
            self._lost(number, fact.by, now)

    def _claim_ended(self, fact: fx.Fact, now: int) -> None:
        self.out.append(fact)
        if isinstance(fact, fx.Lost):
            self._lost(fact.partition, fact.owner, now)
        else:
            assert isinstance(fact, fx.Reclaimed)
            self._reclaimed(fact, now)

    def _reclaimed(self, fact: fx.Reclaimed, now: int) -> None:
        number = fact.partition
        part = self._holders[number]
        if part.presence is Presence.UNWANTED:  # given up meanwhile
            self.releases.release_unwanted(part)
            return
        self.desk.claimed_again(part)
        if self.parts.get(number) is part:
            self.out.append(CameBack(part, fact.epoch))
            self.carry_out(self.steward.claimed_again(number, fact.epoch, now), now)
        elif self.arrivals.pending.get(number) is not part:
            self.releases.leave(part)
        elif part.confirmed:
            self.arrivals.confirm(part, now)

    def _lost(self, number: int, to: str, now: int) -> None:
        part = self._holders.pop(number)
        self.desk.lost(part)
        if part.confirmed and part.duty is not None:
            self.arrivals.confirm(part, now)
        self._tell_lost(part, to, now)

    def _tell_lost(self, part: LocalPartition, to: str, now: int) -> None:
        # Otherwise this node had given it up already, and may have gained it again by now.
        if self.parts.get(part.number) is part:
            self.out.append(TakenOver(part.number, to))
            self.carry_out(self.steward.lost(part.number, to, now), now)

    def give_up(self, part: LocalPartition, now: int) -> None:
        """Give *part* up, whose state cannot go on here."""
        self.failed.append(part)
        self._give_up_failed(now)

    def _give_up_failed(self, now: int) -> None:
        """Give up partitions whose state could not apply what is in the journal: a full disk."""
        failed = self.failed[:]
        self.failed.clear()
        for part in failed:
            if part.presence not in GIVEN_UP:
                self.desk.lost(part)
                self._tell_lost(part, "", now)
                self.releases.leave(part)


def _note_refusal(ownership: Ownership[Any], error: KeyspaceError | None) -> StoreRefused | None:
    """Note that the store refuses what this node writes, if *error* says so; return why."""
    if not isinstance(error, StoreRefused):
        return None
    why = type(error)(str(error))
    if isinstance(why, StoreFull):  # it is full for all members
        ownership.full = why
    else:
        ownership.refusal = why
    return why
