"""How partitions come to this node: a recovery reads each, and claims it (pure)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable, StoreUnavailable
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import attempt_of, is_failure
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.ownership.local import (
    GIVEN_UP,
    FoundDamage,
    LocalPartition,
    LookDropped,
    NotGained,
    Perform,
    Replaces,
)
from ringpop_py.state.placement import duties as do

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.journal.asker import Effects
    from ringpop_py.state.journal.records import Claim
    from ringpop_py.state.ownership.releases import Releases
    from ringpop_py.state.ownership.steward import DurableSteward

ATTEMPTS_MAX: Final = 10
"""After this many attempts of one request (about five seconds) a try to acquire fails, so that its
callers need not wait, and the next one starts over. An owner repeats without limit, because it
cannot start over."""

P = TypeVar("P", bound=LocalPartition)


class Arrivals(Generic[P]):
    """Partitions on their way to this node. See `Ownership`.

    Args:
        make_part: makes a partition of that number.
        releases: for what is given up; it has the `holders`, too.
        done: passes the result of a duty on to the steward.
        out: gets what there is to do.

    Attributes:
        pending: the partitions, by number.
    """

    def __init__(
        self,
        steward: DurableSteward,
        make_part: Callable[[int], P],
        releases: Releases,
        done: Callable[[do.Duty, object, int], None],
        out: list[Any],
    ) -> None:
        self.pending: dict[int, P] = {}
        self._steward = steward
        self._make_part = make_part
        self._releases = releases
        self._done = done
        self._out = out

    def begin(self, duty: do.Follow | do.Acquire, now: int) -> None:
        """Begin a try."""
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
            effects = part.recovery.follow()
        else:
            part.presence = Presence.ACQUIRING
            effects = part.recovery.acquire(partial(self._may_take, duty))
        self._go_on(part, effects, now)

    def _may_take(self, duty: do.Acquire, claim: Claim, epoch: int) -> bool:
        may = self._steward.may_replace(duty, claim.owner, epoch)
        if may:
            self._out.append(Replaces(duty.number, claim))
        return may

    def answered(
        self, asked: Perform, reply: fx.Reply, now: int, error: KeyspaceError | None
    ) -> None:
        """Go on after the store's *reply*; *error* is the one that it has raised, if known."""
        request, part = asked
        silent = error or StoreUnavailable("the store does not answer")
        part.store_error = silent if is_failure(reply) else None
        try:
            effects = part.recovery.answered(request.id, reply)
        except KeyspaceError as why:  # of the state here
            self._fail(part, now, why)
        else:
            self._go_on(part, effects, now)

    def _go_on(self, part: LocalPartition, effects: Effects, now: int) -> None:
        for effect in effects:
            if not isinstance(effect, fx.Request):
                self._came_to(part, effect, now)
            # A claim of unknown outcome is pursued: if it took effect, no other node could tell.
            elif (
                attempt_of(effect) > ATTEMPTS_MAX and part.store_error and not part.recovery.pursues
            ):
                self._fail(part, now, part.store_error)
                return
            else:
                self._out.append(Perform(effect, part))

    def _came_to(self, part: LocalPartition, fact: fx.Fact, now: int) -> None:
        match fact:
            case fx.Sealed():
                self._out.append(fact)
            case fx.Followed():
                part.damage = None
                self._end_try(part, do.Got(), now)
            case fx.NotAcquired(_, epoch, holder):
                part.damage = None
                if part.presence is Presence.UNWANTED:
                    self._releases.leave(part)
                else:
                    part.presence = Presence.PENDING
                self._end_try(part, do.HeldBy(holder.owner, epoch), now)
            case fx.Damaged():
                part.damage = fact
                self._out.append(FoundDamage(part, fact))
                self._leave_for(part, do.Trouble(damaged=True), now)
            case fx.ClaimRefused():
                self._fail(part, now, part.store_error)
            case fx.Acquired():
                self._acquired(part, now)
            case _:
                raise AssertionError(fact)

    def _acquired(self, part: LocalPartition, now: int) -> None:
        part.claimed, part.damage = True, None
        self._releases.holders[part.number] = part
        if part.presence is Presence.UNWANTED:  # given up while the claim was on its way
            self._releases.release_unwanted(part)
            self._fail(
                part,
                now,
                PartitionUnavailable(f"partition {part.number} is not wanted here any more"),
            )
            return
        part.presence = Presence.OWNED
        # A drop marks the generation first, and then fences each partition. If our claim came
        # after the fence, the mark is there, even if gossip of the drop has not come yet.
        self._out.append(LookDropped(part))

    def looked(self, part: LocalPartition, now: int, *, dropped: bool | None) -> None:
        """Go on after a look at the store; *dropped* is None if it did not answer."""
        part.confirmed = dropped is False
        if dropped is None:
            self._leave_for(part, do.Trouble(), now)
        elif dropped:
            self._leave_for(part, do.Over(), now)
        elif part.presence is not Presence.RECLAIMING:  # the journal may have been sealed since
            self.confirm(part, now)

    def confirm(self, part: LocalPartition, now: int) -> None:
        """End a try whose partition the journal has claimed, as its present state says."""
        if part.presence is Presence.OWNED:
            self._end_try(part, do.Taken(part.epoch), now)
        else:
            self._leave_for(part, do.Trouble(), now)

    def _fail(self, part: LocalPartition, now: int, error: KeyspaceError | None = None) -> None:
        if part.duty is not None:
            self._out.append(NotGained(part, error))
        self._leave_for(part, do.Trouble(), now)

    def _leave_for(self, part: LocalPartition, result: object, now: int) -> None:
        self._releases.leave(part)
        self._end_try(part, result, now)

    def _end_try(self, part: LocalPartition, result: object, now: int) -> None:
        duty, part.duty = part.duty, None
        if duty is not None:
            self._done(duty, result, now)
