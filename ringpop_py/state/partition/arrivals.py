"""How partitions come to this node (pure): see `machine.py`."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import KeyspaceError, StoreUnavailable
from ringpop_py.member.swim.member import Status
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import attempt_of, is_failure
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.record import (
    AskToRelease,
    FoundDamage,
    LookDropped,
    NotGained,
    Perform,
    Replaces,
    Way,
)
from ringpop_py.state.placement.duties import Abandon, Changed, ReleaseSaid
from ringpop_py.state.placement.holdings import RETRY_US
from ringpop_py.state.placement.table import PartitionStatus, TableRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.state.journal.asker import Effects
    from ringpop_py.state.journal.records import Claim
    from ringpop_py.state.partition.parts import Parts
    from ringpop_py.state.partition.record import Arrival, LocalPartition

ATTEMPTS_MAX: Final = 10
"""After this many attempts of one request (about five seconds) a try to acquire fails, so that its
callers need not wait, and the next one starts over. An owner repeats without limit, because it
cannot start over."""
FAILED_US: Final = 1_000_000
DAMAGED_US: Final = 5_000_000
"""The microseconds from one look at a damaged log to the next: it may have been repaired."""
TRUCE_US_MIN: Final = 1_000_000
TRUCE_US_MAX: Final = 30_000_000
FORGIVEN_US: Final = 120_000_000
"""After this many microseconds without a fence, the next fence counts as the first."""

NEVER: Final = 1 << 62

_ONLINE: Final = PartitionStatus.ONLINE
_GIVEN_UP: Final = (PartitionStatus.MIGRATING, PartitionStatus.OFFLINE)


class _Truce(NamedTuple):
    wait_us: int
    until: int


class Arrivals:
    """Partitions on their way to this node.

    Args:
        make_part: makes a partition of that number.
        came: gets each that the journal holds, and whose keyspace is there.
        give_up: gets each that the journal holds, and that cannot be served.
    """

    def __init__(
        self,
        here: Parts[Any],
        config: StateConfig,
        make_part: Callable[[int], Any],
        came: Callable[[LocalPartition], None],
        give_up: Callable[[LocalPartition], None],
    ) -> None:
        self._here = here
        self._make_part = make_part
        self._came = came
        self._give_up = give_up
        self._places_max = {
            Way.HAND_OVER: config.handoffs_max,
            Way.TAKE_OVER: config.takeovers_max,
        }
        self._queues: dict[Way, deque[LocalPartition]] = {way: deque() for way in Way}
        self._truce = _Truce(0, -FORGIVEN_US)

    # When a try begins.

    def want(self, number: int, now: int) -> None:
        """Have a partition come."""
        part = self._make_part(number)
        self._here.want(part)
        self._try(part, now)

    def news(self, part: LocalPartition, now: int) -> None:
        """Try again, if *part* waits for news."""
        if part.presence is Presence.PENDING and not _coming(part).patient:
            self._try(part, now)

    def due(self, part: LocalPartition, now: int) -> None:
        """Try again, if *part* waits for this instant: the timer may be one of an earlier wait."""
        if part.presence is Presence.PENDING and _coming(part).try_at <= now:
            self._try(part, now)
        elif part.presence is Presence.CHECKING and _coming(part).try_at <= now:
            self._check(part)

    def _try(self, part: LocalPartition, now: int) -> None:
        """Put a partition into the queue of the way in which it can come."""
        here, coming = self._here, _coming(part)
        # A claim of unknown outcome is pursued. What it has won is served until a member asks.
        if not here.is_wanted(part.number) and not part.recovery.pursues:
            here.gone(part)
            return
        coming.way = self._way(part)
        # Only take-overs wait: an owner that releases the partition is not fenced by us.
        if coming.way is Way.TAKE_OVER and self._truce.until > now:
            self._wait(part, now, min(self._truce.until - now, RETRY_US))
            return
        self._queue(part)

    def _queue(self, part: LocalPartition) -> None:
        self._here.to(part, Presence.QUEUED)
        self._queues[_coming(part).way].append(part)

    def _way(self, part: LocalPartition) -> Way:
        here, row = self._here, self._here.table[part.number]
        if part.recovery.pursues:  # an owner that is there would not be asked, but be found
            return Way.TAKE_OVER
        served = row.status is _ONLINE and row.owner != here.name and here.is_there(row.owner)
        return Way.HAND_OVER if served else Way.TAKE_OVER

    def _wait(
        self, part: LocalPartition, now: int, wait_us: int = RETRY_US, *, patient: bool = False
    ) -> None:
        coming = _coming(part)
        coming.try_at, coming.patient = now + wait_us, patient
        self._here.wake_at(coming.try_at, part.number)

    def fill(self, now: int) -> None:
        """Begin what has waited for a place, while there are places."""
        taken = self._here.taken
        for way, queue in self._queues.items():
            while queue and taken[way] < self._places_max[way]:
                part = queue.popleft()
                if part.presence is not Presence.QUEUED:  # it is gone
                    continue
                if not self._here.is_wanted(part.number) and not part.recovery.pursues:
                    self._here.gone(part)
                    continue
                taken[way] += 1
                self._begin(part, way, now)

    # A try.

    def _begin(self, part: LocalPartition, way: Way, now: int) -> None:
        coming, row = _coming(part), self._here.table[part.number]
        coming.released = coming.denied = coming.silent = coming.confirmed = False
        if way is Way.TAKE_OVER:
            self._acquire(part, now)
            return
        coming.owner, coming.epoch = row.owner, row.epoch
        self._here.to(part, Presence.FOLLOWING)  # most of the way, while the owner still serves
        self._go_on(part, part.recovery.follow(), now)

    def asked(self, part: LocalPartition, said: ReleaseSaid, now: int) -> None:
        """Go on after the owner was asked to release *part*."""
        coming = _coming(part)
        silent = said is ReleaseSaid.UNREACHABLE
        # A member that left is no longer probed, so membership will not declare it faulty. If it is
        # there after all, the log fences it, which costs time and nothing else.
        left = self._here.sight.status_of(coming.owner) is Status.LEAVE
        if said is ReleaseSaid.NOT_YET or (silent and not left):
            self._end_try(part, now)
            return
        coming.released = said is ReleaseSaid.RELEASED
        coming.denied, coming.silent = not coming.released, silent
        self._acquire(part, now)

    def _acquire(self, part: LocalPartition, now: int) -> None:
        self._here.to(part, Presence.ACQUIRING)
        self._go_on(part, part.recovery.acquire(partial(self._may_take, part)), now)

    def _may_take(self, part: LocalPartition, claim: Claim, epoch: int) -> bool:
        """Return whether to end the *epoch* of an owner that has not ended it itself."""
        coming, here, owner = _coming(part), self._here, claim.owner
        # Looked at anew: while the store failed, the owner may have come back, and even have been
        # restarted and have claimed the next epoch.
        denied = coming.denied and owner == coming.owner and epoch <= coming.epoch
        left = here.sight.status_of(owner) is Status.LEAVE
        may = (denied and (left or not coming.silent)) or not here.is_there(owner)
        if may:
            here.tasks.append(Replaces(part.number, claim))
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
                self._here.tasks.append(Perform(effect, part))

    def _came_to(self, part: LocalPartition, fact: fx.Fact, now: int) -> None:
        tasks = self._here.tasks
        match fact:
            case fx.Sealed():
                tasks.append(fact)
            case fx.Followed():
                part.damage = None
                coming = _coming(part)
                self._here.to(part, Presence.ASKING)
                coming.asked_at = now
                tasks.append(AskToRelease(part.number, coming.owner, coming.epoch))
            case fx.NotAcquired(_, epoch, holder):
                part.damage = None
                self._not_acquired(part, holder.owner, epoch, now)
            case fx.Damaged():
                part.damage = fact
                # Requests that wait for it fail with the damage instead.
                tasks += FoundDamage(part, fact), Changed()
                self._end_try(part, now, DAMAGED_US)
            case fx.ClaimRefused():
                self._fail(part, now, part.store_error)
            case fx.Acquired():
                part.damage = None
                self._here.to(part, Presence.CHECKING)
                self._check(part)
            case _:
                raise AssertionError(fact)

    def _not_acquired(self, part: LocalPartition, owner: str, epoch: int, now: int) -> None:
        here, number = self._here, part.number
        here.merge([TableRow(number, owner=owner, epoch=epoch, status=_ONLINE)], now)
        coming, row = _coming(part), here.table[number]
        asks = (
            coming.way is Way.TAKE_OVER
            and row.status in _GIVEN_UP
            and row.owner != here.name
            and here.is_there(row.owner)
        )
        self._end_try(part, now)
        if asks and part.presence is Presence.PENDING:
            # Its owner no longer serves it, but the journal has no release: perhaps it could not
            # put one.
            coming.way = Way.HAND_OVER
            self._queue(part)

    def _check(self, part: LocalPartition) -> None:
        # A drop marks the generation first, and then fences each partition. If our claim came after
        # the fence, the mark is there, even if its gossip has not come yet.
        _coming(part).try_at = NEVER
        self._here.tasks.append(LookDropped(part))

    def looked(self, part: LocalPartition, now: int, *, dropped: bool | None) -> None:
        """Go on after a look at the store; *dropped* is None if it did not answer."""
        coming = part.coming
        if coming is None or part.presence is Presence.GONE:  # lost since, or given up
            return
        coming.confirmed = dropped is False
        if dropped is None:
            coming.try_at = now + FAILED_US
            self._here.wake_at(coming.try_at, part.number)
        elif dropped:
            self._here.closing = True
            self._here.has_come(part)
            self._here.tasks.append(Abandon(part.number))
            self._give_up(part)
        elif part.presence is Presence.CHECKING:  # the journal may have been sealed since
            self._gained(part, now)

    def reclaimed(self, part: LocalPartition, now: int) -> None:
        """Go on with a partition that the journal has claimed again before its try had ended."""
        self._here.to(part, Presence.CHECKING)
        if _coming(part).confirmed:
            self._gained(part, now)
        else:
            self._check(part)

    def _gained(self, part: LocalPartition, now: int) -> None:
        coming, here = _coming(part), self._here
        here.has_come(part)
        if coming.released:
            here.paused(now - coming.asked_at)
        self._came(part)

    def _fail(self, part: LocalPartition, now: int, error: KeyspaceError | None) -> None:
        self._here.tasks.append(NotGained(part, error))
        part.recovery.drop()  # it may be the state here that cannot go on
        # The store has failed for long, or the disk here is full. Partitions that wait for a place
        # have their turn during this pause.
        self._end_try(part, now, FAILED_US)

    def _end_try(self, part: LocalPartition, now: int, wait_us: int = 0) -> None:
        """Free the place of a partition that has not come, and wait for the next try.

        Args:
            wait_us: for how long to wait, whatever the news; 0 to wait for news, too.
        """
        self._here.free(part)
        self._here.to(part, Presence.PENDING)
        if not self._here.is_wanted(part.number) and not part.recovery.pursues:
            self._here.gone(part)
        else:
            self._wait(part, now, wait_us or RETRY_US, patient=bool(wait_us))

    # Truces.

    def wait_longer(self, now: int) -> None:
        """Wait longer with each fence before this node ends the epochs of other owners.

        If a network is cut but both sides reach the store, each side considers the other dead and
        wants its partitions. The log lets one of them write at a time. But a node that was fenced
        could immediately seal the other's journal, and so on with every write. So each fence
        doubles the time for which the fenced node seals nothing: partitions stay at either side for
        longer. It may claim immediately what it had, since that takes nothing from any other node.
        """
        wait_us, until = self._truce
        # Counted from the end of the wait, during which this node did not try.
        if now - until >= FORGIVEN_US:
            wait_us = 0
        wait_us = min(max(2 * wait_us, TRUCE_US_MIN), TRUCE_US_MAX)
        self._truce = _Truce(wait_us, now + wait_us)


def _coming(part: LocalPartition) -> Arrival:
    assert part.coming is not None, part
    return part.coming
