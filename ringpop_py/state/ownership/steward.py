"""The partitions of a durable keyspace that this node gains, serves and gives up.

The member that should own a partition does the work. While its owner is there, that is a hand-over:
follow the log while the owner serves, ask the owner to release the partition, read the rest, claim.
If the owner is gone, or there never was an owner, it is a take-over. In the end the log decides
which member is the owner. Views that differ cost time here, and nothing else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.member.swim.member import Status
from ringpop_py.state.placement.duties import (
    Abandon,
    Acquire,
    AskToRelease,
    Changed,
    Drop,
    Follow,
    Got,
    HeldBy,
    Over,
    ReleaseSaid,
    ReleaseTo,
    Serve,
    Taken,
    Trouble,
)
from ringpop_py.state.placement.holdings import RETRY_US, Holdings
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.state.placement.table import PartitionStatus, TableRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.state.journal.records import Slot
    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.duties import Duty, Task
    from ringpop_py.state.placement.holdings import Sight

FAILED_US: Final = 1_000_000
DAMAGED_US: Final = 5_000_000
"""The microseconds from one look at a damaged log to the next: it may have been repaired."""
TRUCE_US_MIN: Final = 1_000_000
TRUCE_US_MAX: Final = 30_000_000
FORGIVEN_US: Final = 120_000_000
"""After this many microseconds without a fence, the next fence counts as the first."""

_ONLINE: Final = PartitionStatus.ONLINE
_GIVEN_UP: Final = (PartitionStatus.MIGRATING, PartitionStatus.OFFLINE)


class Way(Enum):
    """How a partition comes here."""

    HAND_OVER = "hand-over"
    TAKE_OVER = "take-over"


class Step(Enum):
    """How far a partition on its way here is."""

    WAITS = "waits"  # for an instant, or for news
    QUEUED = "queued"  # for a place among those that come at a time
    FOLLOWS = "follows"
    ASKS = "asks"
    ACQUIRES = "acquires"


@dataclass(slots=True)
class _Coming:
    """A partition on its way here.

    Attributes:
        way: the one that it takes, or has taken last.
        try_at: until when it waits.
        patient: whether it waits until then, whatever the news.
        owner, epoch: of a hand-over: the owner that was asked, and for which epoch.
        asked_at: when that was; the owner stopped serving at that time at the earliest.
        released: whether that owner has released the partition to this node.
    """

    step: Step = Step.WAITS
    way: Way = Way.TAKE_OVER
    try_at: int = 0
    patient: bool = False
    owner: str = NOBODY
    epoch: int = 0
    asked_at: int = 0
    released: bool = False


class _Truce(NamedTuple):
    wait_us: int
    until: int


@dataclass(slots=True)
class _Places:
    """The partitions that come in one way: at most *places_max* at a time, the others in a queue.

    Attributes:
        taken: how many partitions come now.
    """

    places_max: int
    taken: int = 0
    queue: deque[int] = field(default_factory=deque)


class DurableSteward(Holdings):
    """What this node should do next about the partitions of one durable keyspace.

    Args:
        handoffs_max, takeovers_max: how many partitions come at a time from owners that are there,
            and from others. The first is also how many are released at a time.

    Attributes:
        holding: the partitions that are here, with the epochs in which this node claimed them:
            served, or released and not yet claimed by another member.
    """

    def __init__(
        self,
        keyspace: str,
        generation: int,
        assignments: Assignments,
        sight: Sight,
        *,
        handoffs_max: int,
        takeovers_max: int,
    ) -> None:
        super().__init__(keyspace, generation, assignments, sight)
        self.holding: dict[int, int] = {}
        self._coming: dict[int, _Coming] = {}
        self._releasing: dict[int, str] = {}
        self._again: set[int] = set()
        """Partitions whose journal was sealed, and that this node is claiming again."""
        self._releases_max = handoffs_max
        self._releases_count = 0
        self._ways = {
            Way.HAND_OVER: _Places(handoffs_max),
            Way.TAKE_OVER: _Places(takeovers_max),
        }
        self._truce = _Truce(0, -FORGIVEN_US)
        self._closing = False

    def __repr__(self) -> str:
        coming = {number: coming.step.value for number, coming in self._coming.items()}
        return (
            f"<DurableSteward {self.table.keyspace!r} at {self._name}: serves {len(self.serving)},"
            f" coming {coming}, releasing {sorted(self._releasing)}>"
        )

    @property
    def settled(self) -> bool:
        """Whether no release is on its way, nor a claim after which there will be one."""
        return not self._releasing and not self._again

    @property
    def under_way(self) -> dict[str, int]:
        """See `Holdings.under_way`."""
        return {
            **super().under_way,
            "releasing": len(self._releasing),
            "releases": self._releases_count,
            "claims again": len(self._again),
            **{way.value: places.taken for way, places in self._ways.items()},
        }

    def is_there(self, name: str) -> bool:
        """Return whether the member *name* may answer.

        One that is silent counts as gone, long before membership declares it faulty: if it is there
        after all, the store fences it, and it has its partitions back a little later.
        """
        status = self._sight.status_of(name)
        if status is Status.SUSPECT:
            return not self._sight.is_silent(name)
        return status is Status.ALIVE or status is Status.LEAVE

    # Gaining.

    @property
    def _acts(self) -> bool:
        return not self._closing

    def _follow_desire(self, number: int, owner: str, now: int) -> None:
        # What is being claimed again is here already: its journal holds it, or is about to.
        here = number in self.serving or number in self._again
        if owner == self._name and not here and number not in self._coming:
            self._coming[number] = _Coming()
            self._try(number, now)

    def members_changed(self, now: int) -> list[Task]:
        """Decide anew which member should own what: the members or the assignment changed."""
        self._look_at = now
        for number in tuple(self._coming):  # an owner may be gone
            self._news(number, now)
        return self.advance(now)

    def _learnt(self, row: TableRow, now: int) -> None:
        if row.epoch > self.holding.get(row.partition, row.epoch):
            # Another node has claimed it. Perhaps this node had released it for that; if not, the
            # next commit here would be fenced.
            self._let_go(row.partition)
        self._news(row.partition, now)

    def _news(self, number: int, now: int) -> None:
        coming = self._coming.get(number)
        if coming is not None and coming.step is Step.WAITS and not coming.patient:
            self._try(number, now)

    def _due(self, number: int, now: int) -> None:
        coming = self._coming.get(number)
        # A timer may be one of an earlier wait.
        if coming is not None and coming.step is Step.WAITS and coming.try_at <= now:
            self._try(number, now)

    def _try(self, number: int, now: int) -> None:
        """Put a partition into the queue of the way in which it can come."""
        coming = self._coming[number]
        if not self._is_wanted(number):
            self._abandon(number)
            return
        coming.way = self._way(number)
        # Only take-overs wait: an owner that releases the partition is not fenced by us.
        if coming.way is Way.TAKE_OVER and self._truce.until > now:
            self._wait(number, now, min(self._truce.until - now, RETRY_US))
            return
        coming.step = Step.QUEUED
        self._ways[coming.way].queue.append(number)

    def _way(self, number: int) -> Way:
        row = self.table[number]
        served = row.status is _ONLINE and row.owner != self._name and self.is_there(row.owner)
        return Way.HAND_OVER if served else Way.TAKE_OVER

    def _wait(
        self, number: int, now: int, wait_us: int = RETRY_US, *, patient: bool = False
    ) -> None:
        coming = self._coming[number]
        coming.step, coming.try_at, coming.patient = Step.WAITS, now + wait_us, patient
        self._wake_at(coming.try_at, number)

    def _abandon(self, number: int) -> None:
        del self._coming[number]
        self._tasks.append(Abandon(number))

    def _fill(self, _now: int) -> None:
        for way, places in self._ways.items():
            while places.taken < places.places_max and places.queue:
                number = places.queue.popleft()
                coming = self._coming.get(number)
                if coming is None or coming.step is not Step.QUEUED or coming.way is not way:
                    continue
                if not self._is_wanted(number):
                    self._abandon(number)
                    continue
                places.taken += 1
                self._begin(number, coming)

    def _begin(self, number: int, coming: _Coming) -> None:
        coming.released = False
        if coming.way is Way.TAKE_OVER:
            self._acquire(Acquire(number))
            return
        row = self.table[number]
        coming.owner, coming.epoch = row.owner, row.epoch
        coming.step = Step.FOLLOWS  # most of the way, while the owner still serves
        self._tasks.append(Follow(number))

    def _acquire(self, duty: Acquire) -> None:
        self._coming[duty.number].step = Step.ACQUIRES
        self._tasks.append(duty)

    def may_replace(self, duty: Acquire, owner: str, epoch: int) -> bool:
        """Return whether *duty* may end the *epoch* of an *owner* that has not ended it itself."""
        # Looked at anew: while the store failed, the owner may have come back, and even have been
        # restarted and have claimed the next epoch.
        asked = owner == duty.former and epoch <= duty.epoch
        left = self._sight.status_of(owner) is Status.LEAVE
        return (asked and (left or not duty.silent)) or not self.is_there(owner)

    def done(self, duty: Duty, result: object, now: int) -> list[Task]:
        """Go on after *duty*, which ended with *result*; see there which results it has."""
        match duty, result:
            case Follow(number), Got():
                coming = self._coming[number]
                coming.step, coming.asked_at = Step.ASKS, now
                self._tasks.append(AskToRelease(number, coming.owner, coming.epoch))
            case ((Follow(number) | Acquire(number)), Trouble()):
                self._end_try(number, result, now)
            case AskToRelease(), ReleaseSaid():
                self._asked(duty, result, now)
            case Acquire(number), Taken(epoch):
                self._acquired(number, epoch, now)
            case Acquire(number), HeldBy(owner, epoch):
                self._merge([TableRow(number, owner=owner, epoch=epoch, status=_ONLINE)], now)
                self._not_acquired(number, now)
            case Acquire(number), Over():
                self._closing = True
                self._end_try(number, None, now)
            case ReleaseTo(), ReleaseSaid():
                self._released(duty, result, now)
            case _:
                raise AssertionError(duty, result)
        return self._out(now)

    def _asked(self, duty: AskToRelease, said: ReleaseSaid, now: int) -> None:
        silent = said is ReleaseSaid.UNREACHABLE
        # A member that left is no longer probed, so membership will not declare it faulty. If it is
        # there after all, the log fences it, which costs time and nothing else.
        left = self._sight.status_of(duty.owner) is Status.LEAVE
        if said is ReleaseSaid.NOT_YET or (silent and not left):
            self._end_try(duty.number, None, now)
        elif said is ReleaseSaid.RELEASED:
            self._coming[duty.number].released = True
            self._acquire(Acquire(duty.number))  # after a release there is no owner to replace
        else:
            self._acquire(Acquire(*duty, silent))

    def _acquired(self, number: int, epoch: int, now: int) -> None:
        # While we asked, another member may have claimed the next epoch, and its row has come.
        if self.table[number].epoch <= epoch:
            self._hold(number, epoch, now)
            return
        self._tasks.append(Abandon(number))  # what was claimed is no longer ours
        self._end_try(number, None, now)

    def _not_acquired(self, number: int, now: int) -> None:
        coming, row = self._coming[number], self.table[number]
        asks = (
            coming.way is Way.TAKE_OVER
            and row.status in _GIVEN_UP
            and row.owner != self._name
            and self.is_there(row.owner)
        )
        self._end_try(number, None, now)
        if asks and number in self._coming:
            # Its owner no longer serves it, but the journal has no release: perhaps it could not
            # put one.
            coming.step, coming.way = Step.QUEUED, Way.HAND_OVER
            self._ways[Way.HAND_OVER].queue.append(number)

    def _end_try(self, number: int, trouble: Trouble | None, now: int) -> None:
        """Free the place of a partition that has not come, and wait for the next try."""
        self._ways[self._coming[number].way].taken -= 1
        if not self._is_wanted(number):
            self._abandon(number)
        elif trouble is None:
            self._wait(number, now)
        elif trouble.damaged:
            self._tasks.append(Changed())  # requests that wait for it fail with the damage instead
            self._wait(number, now, DAMAGED_US, patient=True)
        else:
            # The store has failed for long, or the disk here is full. Partitions that wait for a
            # place have their turn during this pause.
            self._wait(number, now, FAILED_US, patient=True)

    def _hold(self, number: int, epoch: int, now: int) -> None:
        coming = self._coming.pop(number)
        self._ways[coming.way].taken -= 1
        if coming.released:
            self._paused(now - coming.asked_at)
        if number in self.holding:
            self._let_go(number)  # released to a member that never claimed it
        self.holding[number] = epoch
        self.serving.add(number)
        self._tasks.append(Serve(number, epoch))
        row = self.table[number]
        if epoch > row.epoch:
            self._put(row.claimed(self._name, epoch))
        self._tasks.append(Changed())
        if self._closing:  # `leave` released what was here, and this came too late for it
            self._release(number, NOBODY)

    # Giving up.

    def release(self, number: int, epoch: int, to: str) -> ReleaseSaid | ReleaseTo:
        """Return the answer to *to*, which asks for a partition and knows our *epoch*.

        If it is a `ReleaseTo`, the answer is what comes of that.
        """
        if self.failure:
            return ReleaseSaid.NOT_MINE
        if number in self._again:
            return ReleaseSaid.NOT_YET
        if number not in self.serving or number in self._releasing:
            # A partition that we no longer want may be on its way for long, if the store fails.
            on_its_way = number in self._coming and self._is_wanted(number)
            return ReleaseSaid.NOT_YET if on_its_way else ReleaseSaid.NOT_MINE
        if (
            self.holding[number] > epoch  # *to* does not know our last claim yet
            # If the views differ, a release would move the partition to and fro.
            or self.table[number].desired != to
            or self._releases_count >= self._releases_max
        ):
            return ReleaseSaid.NOT_YET
        self._releases_count += 1
        self._releasing[number] = to
        return ReleaseTo(number, to)

    def _release(self, number: int, to: str) -> None:
        if number not in self._releasing:
            self._releasing[number] = to
            self._tasks.append(ReleaseTo(number, to))

    def _released(self, duty: ReleaseTo, said: ReleaseSaid, now: int) -> None:
        # NOT_YET: it was put off. NOT_MINE: it was lost meanwhile.
        number = duty.number
        self._releasing.pop(number, None)
        self._releases_count -= duty.to != NOBODY
        if said is ReleaseSaid.RELEASED:
            self.serving.discard(number)
            self._mark_released(number, self.holding.get(number, 0), duty.to)
            self._look_at = now  # this node may want it again by now
        self._tasks.append(Changed())

    def _mark_released(self, number: int, epoch: int, to: str) -> None:
        """Put the release into the table, unless the table has a later claim already."""
        row = self.table[number]
        if row.owner == self._name and row.epoch == epoch and row.status is _ONLINE:
            self._put(row.released(to))

    def fenced(self, numbers: Iterable[int], now: int) -> list[Task]:
        """Stop serving *numbers*, whose journal was sealed: they are being claimed again."""
        self._wait_longer(now)
        self._again.update(numbers)
        self.serving.difference_update(self._again)
        self._tasks.append(Changed())
        return self._out(now)

    def claimed_again(self, number: int, epoch: int, now: int) -> list[Task]:
        """Serve a partition again, in *epoch*."""
        self._again.discard(number)
        row = self.table[number]
        if row.epoch > epoch:
            # Another member has claimed it since, and its row was faster than the next fence.
            self._let_go(number)
            return self._out(now)
        self.holding[number] = epoch
        self.serving.add(number)
        if epoch > row.epoch:
            self._put(row.claimed(self._name, epoch))
        self._tasks.append(Changed())
        if self._closing:
            self._release(number, NOBODY)
        self._look_at = now  # its owner may be another by now
        return self._out(now)

    def lost(self, number: int, to: str, now: int) -> list[Task]:
        """Give up a partition that is here: *to*, or an unknown node, has taken it over."""
        self._again.discard(number)
        epoch = self.holding[number]
        if not to:
            self._wait_longer(now)  # perhaps the disk here is full
        self._let_go(number)
        self._mark_released(number, epoch, to)
        self._tasks.append(Changed())
        self._look_at = now
        return self._out(now)

    def _wait_longer(self, now: int) -> None:
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

    def _let_go(self, number: int) -> None:
        del self.holding[number]
        self.serving.discard(number)
        self._again.discard(number)
        self._tasks.append(Drop(number))

    def checkpointed(self, number: int, slot: Slot) -> None:
        """Note a checkpoint of a partition of this node, for readers of the table."""
        # Not spread: a row with a new checkpoint only is not news (`TableRow.checkpoint`).
        self.table.put(self.table[number].checkpointed(slot))

    # Ends.

    def leave(self, now: int) -> list[Task]:
        """Release all partitions here, so that others need not detect that this node is gone."""
        self._closing = True
        for number in sorted(self.serving):
            self._release(number, NOBODY)
        return self._out(now)

    def drop(self, now: int) -> list[Task]:
        """As `leave`, because the keyspace was dropped: requests that wait fail."""
        self.dropped = True
        self._tasks.append(Changed())  # before the releases, which take long if the store is slow
        return self.leave(now)

    def failed(self, why: str, now: int) -> list[Task]:
        """Serve nothing from now on; partitions that are here may still be released."""
        self._closing = True
        self._releasing.clear()  # the tasks of a share that has failed have ended
        return super().failed(why, now)

    def forget(self, now: int) -> list[Task]:
        """Forget all partitions that are here, and the releases that are on their way."""
        self._releasing.clear()
        for number in sorted(self.holding):
            self._let_go(number)
        self._tasks.append(Changed())
        return self._out(now)
