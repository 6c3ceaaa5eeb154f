"""Which partitions of a durable keyspace this node owns, and how each comes and goes (pure).

```
            ┌──────────── a try fails ───────────┐
PENDING ─► ACQUIRING ─► OWNED ─► RELEASING ─► RELEASED ─► LOST
                        │   ▲        │                      ▲
              a fence   ▼   │        ▼                      │
                      RECLAIMING ◄───┘ ─── another won ─────┤
                          UNWANTED ── released to nobody ───┘
```

The steward decides which partitions are wanted, and the `Presence` of each says how far it is here.
Three machines do the work: an `Heir` reads and claims a partition, the one `Journal` writes for all
that are held, and the `Desk` has the jobs of callers. A partition that is given up while the
journal holds it, or while a claim of it is in flight, is UNWANTED until it was released.

How it is driven: each method takes what has happened, and leaves in `out` what there is to do. A
driver carries that out, in order, and comes back: to `answered` with the store's reply to a
`Perform`, to `looked` after a `LookDropped`, to `done` after a duty of the steward. The steps of
the desk go another way, because nothing else happens so often: `desk.begin` returns a request,
`step_answered` the next one, until there is none. Requests with an `attempt` wait before they are
made (`pause_us`). At `next_deadline` the driver calls `advance`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ringpop_py.errors import (
    KeyspaceError,
    PartitionUnavailable,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.journal import effects as fx
from ringpop_py.journal.asker import REPEAT_US_MAX, attempt_of
from ringpop_py.journal.desk import Desk, Job, Presence, ReleaseJob, WriteJob
from ringpop_py.journal.heir import Heir
from ringpop_py.journal.journal import Journal
from ringpop_py.placing import duties as do
from ringpop_py.placing.duties import ReleaseSaid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.config.settings import StateConfig
    from ringpop_py.durable.steward import DurableSteward
    from ringpop_py.journal.asker import Effects
    from ringpop_py.journal.records import Claim
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.values.operations import PackedWrite, Write

    Tell = Callable[[ReleaseSaid], object]

ATTEMPTS_MAX: Final = 10
"""After this many attempts of one request (about five seconds) a try to acquire fails, so that its
callers need not wait, and the next one starts over. An owner repeats without limit, because it
cannot start over."""
GIVEN_UP: Final = (Presence.UNWANTED, Presence.LOST)
_OWNED: Final = Presence.OWNED  # looked up once: each request asks
_TROUBLES: Final = (fx.StoreAnswer.FAILED, fx.StoreAnswer.NO_ROOM)
"""The answers of a store that did not carry a request out, or does not say whether it has."""


class Part:
    """One partition at this node; the `Fold` of its heir, and then of the journal.

    Attributes:
        presence: how far it is; nobody but `Ownership` and the desk sets it.
        failed: why the state cannot apply what is in the journal; None if it can.
        damage: what the last try could not read; None if it read all.
        waiting, writes_count: see `Served`.
    """

    def __init__(self, number: int, state: KeyedState, ownership: Ownership[Any]) -> None:
        self.number = number
        self.state = state
        self.presence = Presence.PENDING
        self.failed: KeyspaceError | None = None
        self.damage: fx.Damaged | None = None
        self.waiting: list[Job] = []
        self.writes_count = 0
        self._ownership = ownership
        self.heir = Heir(number, self, ownership.journal)
        self.duty: do.Follow | do.Acquire | None = None
        """What the steward waits for."""
        self.confirmed = False
        """Whether the keyspace was there after the claim."""
        self.claimed = False
        """Whether the journal has it, or had it: no heir works on it any more."""
        self.in_trouble = False
        """Whether the last request of the heir failed."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.presence.value}>"

    @property
    def epoch(self) -> int:
        """The epoch that this node owns; 0 if it owns none."""
        holding = self._ownership.journal.held.get(self.number)
        return 0 if holding is None else holding.epoch

    def reset(self) -> None:
        """See `Fold`."""
        self.state.reset()
        self.failed = None

    def restore(self, checkpoint: Any) -> None:  # noqa: ANN401 - see `Fold`
        """See `Fold`."""
        self.state.restore(checkpoint)

    def apply(self, body: object) -> None:
        """See `Fold`. Raises KeyspaceError unless this node owns the partition."""
        if not self.claimed:
            self.state.apply(body)
            return
        # Other partitions of the same group must not suffer from a state that fails.
        try:
            if self.failed is None:
                self.state.apply(body)
        except KeyspaceError as error:
            self.failed = error
            self._ownership.failed.append(self)


P = TypeVar("P", bound=Part)


class Perform(NamedTuple):
    """Make *request* to the store: of the heir of *part*, or a claim after a fence.

    `pause_us` of the request comes first. The reply goes to `Ownership.answered`.
    """

    request: fx.Request
    part: Any


class Came(NamedTuple):
    """*part* is served from now on, in *epoch*."""

    part: Any
    epoch: int


class CameBack(NamedTuple):
    """*part* was claimed again after a fence, and is served in *epoch*."""

    part: Any
    epoch: int


class LookDropped(NamedTuple):
    """Look whether the keyspace was dropped; the answer goes to `Ownership.looked`."""

    part: Any


class NotGained(NamedTuple):
    """A try has failed: by *error*, or because the store does not answer."""

    part: Any
    error: KeyspaceError | None


class JournalLost(NamedTuple):
    """The journal of this node was sealed; so many partitions are claimed again."""

    fact: fx.Fenced
    again_count: int


class TakenOver(NamedTuple):
    """Another node has what this one had: *to*, or an unknown one."""

    number: int
    to: str


class Replaces(NamedTuple):
    """The owner that made *claim* of a partition is about to be replaced."""

    number: int
    claim: Claim


class Ownership(Generic[P]):
    """See the module.

    Args:
        node_name: the name of this node.
        make_name: returns a text that no process anywhere has used before.
        make_part: makes a partition of that number.

    Attributes:
        parts: the partitions that the steward has been told to have, by number.
        pending: those on their way here.
        out: what there is to do; the driver takes it (`take`).
        ended: what follows from jobs that have ended: `take` does it.
        trouble: why the store does not answer the step under way; None if it does.
        refusal: why the store has refused the last group, if it has, and not for want of room.
        failed: partitions whose state could not apply what the present step has committed.
        may_leave: whether a partition may go to another member now; see `ActorHost.may_leave`.
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
        self.pending: dict[int, P] = {}
        self.out: list[Any] = []
        self.ended: list[Callable[[int], None]] = []
        self.refusal: StoreRefused | None = None
        self.trouble: KeyspaceError | None = None
        self.failed: list[Part] = []
        self.may_leave: Callable[[int], bool] = lambda _number: True
        self._make_part = make_part
        self._holders: dict[int, Part] = {}
        """By which partition the journal holds a number, or claims it after a fence."""
        self._tasks: deque[do.Task] = deque()
        self._doing = False
        self._repeats: deque[tuple[int, Part]] = deque()
        """When to try again to release what is unwanted."""

    # The steward's tasks.

    def take(self, now: int) -> list[Any]:
        """Return what there is to do; the driver has it now."""
        while self.ended:
            ended, self.ended = self.ended, []
            for each in ended:
                each(now)
        out, self.out = self.out, []
        return out

    def carry_out(self, tasks: Iterable[do.Task], now: int) -> None:
        """Carry out *tasks* of the steward. All are put out, too: some are the driver's."""
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
                self._try(task, now)
            case do.SealFor(number, to):
                self._release(task, self.parts.get(number), to, now)
            case do.Serve(number, epoch):
                part = self.parts[number] = self.pending.pop(number)
                self.out.append(Came(part, epoch))
            case do.Drop(number):
                self.leave(self.parts.pop(number))
            case do.Abandon(number):
                # None if its try had not begun, for want of a place.
                abandoned = self.pending.pop(number, None)
                if abandoned is not None:
                    self.leave(abandoned)
            case _:
                pass

    def done(self, duty: do.Duty, result: object, now: int) -> None:
        """Pass the *result* of a duty on to the steward."""
        self.carry_out(self.steward.done(duty, result, now), now)

    # A partition comes.

    def _try(self, duty: do.Follow | do.Acquire, now: int) -> None:
        number = duty.number
        part = self.pending.get(number)
        # The journal may still call the state of one that was given up.
        if part is None or part.presence in GIVEN_UP:
            former, part = part, self._make_part(number)
            if former is not None:
                part.damage = former.damage  # requests fail with it until the partition is read
            self.pending[number] = part
        part.duty = duty
        if isinstance(duty, do.Follow):
            part.presence = Presence.PENDING
            effects = part.heir.follow()
        else:
            part.presence = Presence.ACQUIRING
            effects = part.heir.acquire(partial(self._may_take, duty))
        self._go_on(part, effects, now)

    def _may_take(self, duty: do.Acquire, claim: Claim, epoch: int) -> bool:
        may = self.steward.may_replace(duty, claim.owner, epoch)
        if may:
            self.out.append(Replaces(duty.number, claim))
        return may

    def answered(self, asked: Perform, reply: fx.Reply, now: int) -> None:
        """Go on after the store's *reply*."""
        request, part = asked
        if part is None:
            (effect,) = self.journal.answered(request.id, reply)
            if isinstance(effect, fx.Request):
                self.out.append(Perform(effect, None))
            else:
                self._claim_ended(effect, now)
            return
        part.in_trouble = reply in _TROUBLES or isinstance(reply, fx.Unreadable)
        try:
            effects = part.heir.answered(request.id, reply)
        except KeyspaceError as error:  # of the state here
            self._fail(part, now, error)
        else:
            self._go_on(part, effects, now)

    def _go_on(self, part: Part, effects: Effects, now: int) -> None:
        for effect in effects:
            if not isinstance(effect, fx.Request):
                self._came_to(part, effect, now)
            # A claim whose outcome is open is pursued: if it took effect, nobody else could tell.
            elif attempt_of(effect) > ATTEMPTS_MAX and part.in_trouble and not part.heir.pursues:
                self._fail(part, now)
                return
            else:
                self.out.append(Perform(effect, part))

    def _came_to(self, part: Part, fact: fx.Fact, now: int) -> None:
        match fact:
            case fx.Sealed():
                self.out.append(fact)
            case fx.Followed():
                part.damage = None
                self._end_try(part, do.Got(), now)
            case fx.NotAcquired(_, epoch, holder):
                part.damage = None
                unwanted = part.presence is Presence.UNWANTED
                part.presence = Presence.LOST if unwanted else Presence.PENDING
                self._end_try(part, do.HeldBy(holder.owner, epoch), now)
            case fx.Damaged():
                part.damage = fact
                self.out.append(fact)
                self._leave_for(part, do.Trouble(damaged=True), now)
            case fx.Acquired():
                self._acquired(part, now)
            case _:
                raise AssertionError(fact)

    def _acquired(self, part: Part, now: int) -> None:
        part.claimed, part.damage = True, None
        self._holders[part.number] = part
        if part.presence is Presence.UNWANTED:  # given up while the claim was on its way
            self._release_unwanted(part)
            self._fail(
                part,
                now,
                PartitionUnavailable(f"partition {part.number} is not wanted here any more"),
            )
            return
        part.presence = Presence.OWNED
        # A drop marks the generation first, and then fences each partition. If our claim came
        # after the fence, the mark is there, even if gossip of the drop has not come yet.
        self.out.append(LookDropped(part))

    def looked(self, part: Part, now: int, *, dropped: bool | None) -> None:
        """Go on after a look at the store; *dropped* is None if it did not answer."""
        part.confirmed = dropped is False
        if dropped is None:
            self._leave_for(part, do.Trouble(), now)
        elif dropped:
            self._leave_for(part, do.Over(), now)
        elif part.presence is not Presence.RECLAIMING:  # the journal may have been sealed since
            self._confirm(part, now)

    def _confirm(self, part: Part, now: int) -> None:
        if part.presence is Presence.OWNED:
            self._end_try(part, do.Taken(part.epoch), now)
        else:
            self._leave_for(part, do.Trouble(), now)

    def _fail(self, part: Part, now: int, error: KeyspaceError | None = None) -> None:
        if part.duty is not None:
            self.out.append(NotGained(part, error))
        self._leave_for(part, do.Trouble(), now)

    def _leave_for(self, part: Part, result: object, now: int) -> None:
        self.leave(part)
        self._end_try(part, result, now)

    def _end_try(self, part: Part, result: object, now: int) -> None:
        duty, part.duty = part.duty, None
        if duty is not None:
            self.done(duty, result, now)

    # A partition goes.

    def release(self, number: int, epoch: int, to: str, journal: str, tell: Tell, now: int) -> None:
        """Release a partition to the member *to*, if that is right; *tell* it, perhaps later.

        Args:
            epoch, journal: of the newest claim that *to* knows, and the journal which that names.
        """
        duty = self.steward.release(number, epoch, to)
        if isinstance(duty, ReleaseSaid):
            # Who hears NOT_MINE may seal the journal, and with it all partitions of this node. So
            # a claim or a release that is on its way here is waited for.
            denies = duty is ReleaseSaid.NOT_MINE and not self.steward.failure
            wait = denies and not self.is_settled(number, journal)
            tell(ReleaseSaid.NOT_YET if wait else duty)
        elif not self.may_leave(number):
            self._released(duty, ReleaseSaid.NOT_YET, tell, now)
        else:
            self._release(duty, self.parts.get(number), to, now, tell)

    def _release(
        self, duty: do.SealFor, part: Part | None, to: str, now: int, tell: Tell | None = None
    ) -> None:
        if part is None or part.presence is not Presence.OWNED:
            self._released(duty, self._not_released(part), tell, now)
            return
        job = ReleaseJob(part, to)
        job.wake = lambda: self.ended.append(partial(self._release_ended, duty, job, tell))
        self.desk.add_release(job)

    def _release_ended(
        self, duty: do.SealFor, job: ReleaseJob, tell: Tell | None, now: int
    ) -> None:
        part, error = job.partition, job.error
        assert isinstance(part, Part)
        if error is None:
            said = ReleaseSaid.SEALED
        elif isinstance(error, StoreRefused):
            # It is here as before. Who hears NOT_MINE may seal the journal, and with it all
            # partitions here: that is right if this node cannot write, and another perhaps can.
            full = isinstance(error, StoreFull)
            said = ReleaseSaid.NOT_YET if full else ReleaseSaid.NOT_MINE
        else:
            said = self._not_released(part)
        self._released(duty, said, tell, now)

    def _not_released(self, part: Part | None) -> ReleaseSaid:
        """Return what to say of a partition that was lost meanwhile, or is claimed again."""
        here = part is not None and (part.epoch != 0 or self.journal.reclaims(part.number))
        return ReleaseSaid.NOT_YET if here else ReleaseSaid.NOT_MINE

    def _released(self, duty: do.SealFor, said: ReleaseSaid, tell: Tell | None, now: int) -> None:
        if tell is not None:
            tell(said)
        self.done(duty, said, now)

    def is_settled(self, number: int, journal: str) -> bool:
        """Return whether an epoch of partition *number* in *journal* is open here no longer."""
        if journal != self.journal.name:
            return True
        pending = self.pending.get(number)
        # A claim may be there already, though its reply has not come.
        claims = pending is not None and (
            pending.presence is Presence.ACQUIRING or pending.heir.pursues
        )
        held = number in self.journal.held or self.journal.reclaims(number)
        return not held and not claims

    def leave(self, part: Part) -> None:
        """Give *part* up. If this node owns it, it is released to nobody in particular."""
        number = part.number
        if self._holders.get(number) is part:
            if part.presence is Presence.UNWANTED:
                return
            if number in self.journal.held:
                part.presence = Presence.UNWANTED
                self._release_unwanted(part)
                return
            if self.journal.reclaims(number):
                self.desk.lost(part)  # what waits for the claim
                part.presence = Presence.UNWANTED
                return
            del self._holders[number]
        elif part.heir.pursues:  # a claim on its way is pursued, and released then
            part.presence = Presence.UNWANTED
            return
        part.presence = Presence.LOST
        part.heir.drop()

    def _release_unwanted(self, part: Part) -> None:
        job = ReleaseJob(part, "")
        job.wake = lambda: self.ended.append(partial(self._unwanted_ended, part, job))
        self.desk.add_release(job)

    def _unwanted_ended(self, part: Part, job: ReleaseJob, now: int) -> None:
        if job.error is None:
            self._forget(part)
        else:
            self._repeats.append((now + REPEAT_US_MAX, part))

    def _forget(self, part: Part) -> None:
        number = part.number
        if not self.journal.reclaims(number) and self._holders.get(number) is part:
            del self._holders[number]
            part.presence = Presence.LOST
            part.reset()

    @property
    def next_deadline(self) -> int:
        """When to call `advance`."""
        at = self.steward.next_deadline
        return min(at, self._repeats[0][0]) if self._repeats else at

    def advance(self, now: int) -> None:
        """Do what is due at *now*."""
        while self._repeats and self._repeats[0][0] <= now:
            _, part = self._repeats.popleft()
            if part.number in self.journal.held and self._holders.get(part.number) is part:
                self._release_unwanted(part)
            else:
                self._forget(part)
        if self.steward.next_deadline <= now:
            self.carry_out(self.steward.advance(now), now)

    # One step of the desk after the other.

    def write(self, part: Part, writes: Sequence[Write | PackedWrite]) -> WriteJob:
        """Queue *writes* of one caller, in order, to be committed with those of others.

        Raises:
            PartitionUnavailable: if this node does not own it now, or too much waits for it.
            StoreUnavailable: if the store does not answer the step under way: nobody has to wait.
        """
        if part.presence is not _OWNED or self.trouble is not None:
            self._check(part)
        job = WriteJob(part, writes)
        self.desk.add_write(job)
        return job

    def read(self, part: Part) -> Job:
        """Queue a read. Raises as `write` does."""
        if part.presence is not _OWNED or self.trouble is not None:
            self._check(part)
        job = Job(part)
        self.desk.add_read(job)
        return job

    def _check(self, part: Part) -> None:
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
            failed = reply in _TROUBLES or isinstance(reply, fx.Unreadable)
            silent = error or StoreUnavailable("the store does not answer")
            self.trouble = silent if failed else None
            return fact
        self.trouble = why = None
        if isinstance(fact, fx.Committed):
            self.refusal = None
        elif isinstance(fact, fx.Fenced):
            self._fenced(fact, claims)
        elif isinstance(fact, fx.NotCommitted) and isinstance(error, StoreRefused):
            why = type(error)(str(error))
            if not isinstance(why, StoreFull):  # which is so for all members
                self.refusal = why
        self.desk.ended(fact, why)
        if self.failed:
            self.ended.append(self._give_up_failed)
        return None

    def stop(self) -> None:
        """Lose all partitions: the node ends, or has a bug. The outcome of the step is open."""
        for part in self._holders.values():
            self.desk.lost(part)
        self.refuse_jobs()

    def refuse_jobs(self) -> None:
        """Fail all jobs: there is nobody to do steps."""
        self.desk.stop()

    # Fences.

    def _fenced(self, fact: fx.Fenced, claims: Iterable[fx.Effect]) -> None:
        again: list[Part] = []
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
            self._release_unwanted(part)
            return
        self.desk.claimed_again(part)
        if self.parts.get(number) is part:
            self.out.append(CameBack(part, fact.epoch))
            self.carry_out(self.steward.claimed_again(number, fact.epoch, now), now)
        elif self.pending.get(number) is not part:
            self.leave(part)
        elif part.confirmed:
            self._confirm(part, now)

    def _lost(self, number: int, to: str, now: int) -> None:
        part = self._holders.pop(number)
        self.desk.lost(part)
        if part.confirmed and part.duty is not None:
            self._confirm(part, now)
        self._tell_lost(part, to, now)

    def _tell_lost(self, part: Part, to: str, now: int) -> None:
        # Otherwise this node had given it up already, and may have gained it again by now.
        if self.parts.get(part.number) is part:
            self.out.append(TakenOver(part.number, to))
            self.carry_out(self.steward.lost(part.number, to, now), now)

    def give_up(self, part: Part, now: int) -> None:
        """Give *part* up, whose state cannot go on here."""
        self.failed.append(part)
        self._give_up_failed(now)

    def _give_up_failed(self, now: int) -> None:
        """Give up partitions whose state could not apply what is in the journal: a full disk."""
        failed, self.failed = self.failed, []
        for part in failed:
            if part.presence not in GIVEN_UP:
                self.desk.lost(part)
                self._tell_lost(part, "", now)
                self.leave(part)
