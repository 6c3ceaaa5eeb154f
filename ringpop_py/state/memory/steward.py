"""The partitions of a keyspace in memory mode that this node serves and hands over.

The owner that a partition should have follows from the members in the ring, and that member serves
it. A member with a copy of a partition that another should own hands the copy over. It offers the
copy, and once the other is willing, withholds it, sends it part by part, and forgets it when the
last part was taken. The taker merges each part with its own state. While there is an owner that is
about to hand over, the taker does not serve before the last part has come. So planned moves lose
nothing. After a cut during which both sides have served, the copies become one in the same way.

If the keyspace has several copies, a member that no owner hands a partition over to asks the others
for what they have of it, before it serves it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import NoOwner, NotEnoughMembers
from ringpop_py.state.copies.calls import CopyReply, CopyStep
from ringpop_py.state.copies.kept import KeptCopies
from ringpop_py.state.memory.hand_over import HandOverReply, HandOverStep
from ringpop_py.state.placement.duties import (
    NOTHING_TO_GIVE,
    Changed,
    Drop,
    Offer,
    Recover,
    Remind,
    Send,
    Serve,
    Withhold,
)
from ringpop_py.state.placement.holdings import RETRY_US, Holdings
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.state.placement.table import PartitionStatus, from_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.copies.calls import CopyPart
    from ringpop_py.state.memory.hand_over import HandOver
    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.duties import Duty, Task
    from ringpop_py.state.placement.holdings import Sight
    from ringpop_py.state.placement.table import TableRow

HANDOVER_US: Final = 5_000_000
"""The microseconds for which a member waits for an owner that sends nothing of the keyspace."""
_MOVING_OR_SERVED: Final = (PartitionStatus.ONLINE, PartitionStatus.MIGRATING)


class Giving(Enum):
    """How far a partition on its way from here is."""

    WAITS = "waits"  # for an instant, or for news
    QUEUED = "queued"  # for a place among those that are sent at a time
    OFFERS = "offers"
    SENDS = "sends"


_HAS_PLACE: Final = (Giving.OFFERS, Giving.SENDS)


@dataclass(slots=True)
class _Going:
    """A partition on its way from here.

    Attributes:
        remind_at: while it is queued: when its taker is reminded that it will come.
        withheld_at: when this node stopped serving it.
    """

    step: Giving = Giving.QUEUED
    try_at: int = 0
    remind_at: int = 0
    withheld_at: int = 0


class MemorySteward(Holdings):
    """What this node should do next about the partitions of one keyspace in memory mode.

    Args:
        handoffs_max: how many partitions are sent at a time.

    Attributes:
        kept: the copies that are here for owners elsewhere.
    """

    def __init__(
        self,
        keyspace: str,
        generation: int,
        assignments: Assignments,
        sight: Sight,
        *,
        handoffs_max: int,
    ) -> None:
        super().__init__(keyspace, generation, assignments, sight)
        self._coming: dict[int, int] = {}  # since when each is waited for
        self._going: dict[int, _Going] = {}
        self._queue: deque[int] = deque()
        self._places = handoffs_max
        self._heard_at: dict[str, int] = {}
        self._successors: Sequence[str] | None = None  # only while this node leaves
        self._refusing: set[str] = set()
        self.kept = KeptCopies()
        self._recovers = assignments.definition.copies > 1
        self._asked: set[int] = set()
        self._to_ask: list[int] = []

    def __repr__(self) -> str:
        going = {number: going.step.value for number, going in self._going.items()}
        return (
            f"<MemorySteward {self.table.keyspace!r} at {self.name}: serves {len(self.serving)},"
            f" coming {sorted(self._coming)}, going {going}>"
        )

    @property
    def leaving(self) -> bool:
        """Whether this node gives all partitions away."""
        return self._successors is not None

    @property
    def settled(self) -> bool:
        """Whether nothing is left to hand over before this node ends."""
        return self._successors is None or not self.holding

    @property
    def _acts(self) -> bool:
        return not (self.dropped or self.failure or self.leaving)

    def _follow_desire(self, number: int, owner: str, now: int) -> None:
        if owner != self.name:
            row = self.table[number]
            there = number in self.kept and self.is_there(row.owner)
            if there and self.kept.is_astray(number, row.owner, now):
                self.holding.add(number)
            if number in self.holding:
                self._begin_to_give(number, now)
        elif number in self.serving:
            self._insist(number)
        elif number not in self._coming:
            self._coming[number] = now
            self._try_to_serve(number, now)

    def _learnt(self, row: TableRow, now: int) -> None:
        # If another member claims what is served here, nothing is given up: it may be the other
        # side of a cut. `_follow_desire` decides by the owner that the partition should have.
        self._news(row.partition, now)

    def members_changed(self, now: int) -> list[Task]:
        """Decide anew which member should own what: the members have changed."""
        self.look_soon(now)
        if self._successors is not None:  # one of them may be gone, or about to go, too
            self._refusing.clear()
            self._choose_successors()
        for number in sorted({*self._coming, *self._going}):
            self._news(number, now)
        return self.advance(now)

    def _news(self, number: int, now: int) -> None:
        if number in self._coming:
            self._try_to_serve(number, now)
        going = self._going.get(number)
        if going is not None and going.step is Giving.WAITS:
            self._queue_up(number, going, now)

    def _due(self, number: int, now: int) -> None:
        if number in self._coming:
            self._try_to_serve(number, now)
        going = self._going.get(number)
        if going is None:
            return
        if going.step is Giving.WAITS and going.try_at <= now:
            self._queue_up(number, going, now)
        elif going.step is Giving.QUEUED and going.remind_at <= now:
            self._remind(number, going, now)

    # Gaining.

    def _try_to_serve(self, number: int, now: int, *, recovered: bool = False) -> None:
        """Serve a partition once its owner has handed it over, or there is none to wait for."""
        if number in self.serving or not self.is_wanted(number):
            del self._coming[number]
        elif number not in self._going:  # a transfer has to end before it is served here again
            until = self._expected_until(number)
            if until > now:
                self.wake_at(until, number)
            elif recovered or not self._recovers:
                self._serve(number)
            elif number not in self._asked:
                self._asked.add(number)
                self._to_ask.append(number)

    def _expected_until(self, number: int) -> int:
        """Return until when to wait for an owner that may hand it over; 0 to wait for none."""
        row = self.table[number]
        owned = row.status in _MOVING_OR_SERVED and row.owner != self.name
        # News of a partition may come before those of a member that has just joined.
        known = self.sight.status_of(row.owner) is not None
        if not owned or (known and not self.is_there(row.owner)):
            return 0
        # An owner with many transfers offers each again while it waits, which counts as a sign.
        since = self._coming[number]
        return max(since, self._heard_at.get(row.owner, since)) + HANDOVER_US

    def _serve(self, number: int) -> None:
        self._coming.pop(number, None)
        self.kept.kept.pop(number, None)
        self.holding.add(number)
        self.serving.add(number)
        # Before the row is spread: requests that wait for news look whether it is served.
        self.tasks.append(Serve(number, self.table[number].epoch + 1))
        self._claim(number)

    def _claim(self, number: int) -> None:
        row = self.table[number]
        if row.status is PartitionStatus.UNASSIGNED:
            row = row.assigned(self.name)
        self.put(row.claimed(self.name, row.epoch + 1))

    def _insist(self, number: int) -> None:
        """Have the table name this node as the owner of a partition that it serves.

        After a cut the table names another member, if the claim of the other side was later.
        """
        row = self.table[number]
        # Two members that each should own it, in their own views, claim it in turn, once a look,
        # until the views agree. Epochs fence no member here, so both go on to serve.
        if row.owner != self.name or row.status is not PartitionStatus.ONLINE:
            self._claim(number)

    # Taking.

    def take(self, request: HandOver, now: int, *, able: bool) -> tuple[HandOverReply, list[Task]]:
        """Return the answer to one step of a transfer to this node, and what follows from it.

        If the step has a part, and the answer is `HandOverReply.YES`, the driver merges the part
        first.

        Args:
            able: whether this node knows the rule by which copies are merged.

        Raises:
            BodyError: if its row cannot be read.
        """
        number = request.number
        self.merge(from_rows(request.row, len(self.table)), now)
        self._heard_at[request.giver] = now
        # What is being sent does not change. But an offer of our own refuses nothing: two members
        # that offer to each other would wait for ever.
        going = self._going.get(number)
        sends = going is not None and going.step is Giving.SENDS
        said = HandOverReply.YES if able and self._acts and not sends else HandOverReply.NOT_NOW
        if request.step is HandOverStep.OFFER:
            # The copy of a giver that leaves must not be lost: this node hands it on to the member
            # that should have it.
            if self.table[number].desired != self.name and not request.leaving:
                said = HandOverReply.NOT_NOW
        elif said is HandOverReply.YES:
            self.holding.add(number)
            # Not if the copy is from the other side of a cut: then the owner is another member.
            owned = self.table[number].owner == request.giver
            if request.step is HandOverStep.LAST and owned and number not in self.serving:
                self._serve(number)
            self.tasks.append(Changed())
        return said, self._out(now)

    def take_copies(
        self, owner: str, parts: Sequence[CopyPart], now: int, *, able: bool
    ) -> tuple[list[CopyReply], list[Task]]:
        """Return the answers to what an owner feeds this node; the driver merges what is taken."""
        said: list[CopyReply] = []
        for part in parts:
            # What is served here, perhaps since a cut, is handed over first.
            takes = able and self._acts and part.number not in self.serving
            reply = self.kept.take(owner, part) if takes else CopyReply.NEEDS_WHOLE
            if reply is CopyReply.HANDS_OVER:
                self.holding.add(part.number)
                if self.taker(part.number) != NOBODY:
                    self._begin_to_give(part.number, now)
            elif part.step is CopyStep.FORGET and part.number not in self.holding:
                self.tasks.append(Drop(part.number))
            said.append(reply)
        return said, self._out(now)

    # Giving.

    def taker(self, number: int) -> str:
        """Return the member to hand a partition to; `NOBODY` if it stays, or is not here."""
        if self.dropped or number not in self.holding:
            return NOBODY
        desired = (
            self.table[number].desired if self._successors is None else self._successors[number]
        )
        return desired if desired != self.name else NOBODY

    def _begin_to_give(self, number: int, now: int) -> None:
        if number not in self._going:
            self._queue_up(number, self._going.setdefault(number, _Going()), now)

    def _queue_up(self, number: int, going: _Going, now: int) -> None:
        if self.taker(number) == NOBODY:
            self._end_giving(number, now)
            return
        going.step = Giving.QUEUED
        self._queue.append(number)
        # A quarter: some offers may be lost before the taker no longer waits for this node.
        going.remind_at = now + HANDOVER_US // 4
        self.wake_at(going.remind_at, number)

    def _remind(self, number: int, going: _Going, now: int) -> None:
        to = self.taker(number)
        if to != NOBODY:
            self.tasks.append(Remind(number, to))
        going.remind_at = now + HANDOVER_US // 4
        self.wake_at(going.remind_at, number)

    def _end_giving(self, number: int, now: int) -> None:
        del self._going[number]
        if number in self._coming:
            self._try_to_serve(number, now)
        elif self.is_wanted(number):
            self.look_soon(now)

    def _fill(self, now: int) -> None:
        if self._to_ask:
            self.tasks.append(Recover(tuple(self._to_ask)))
            self._to_ask.clear()
        while self._places and self._queue:
            number = self._queue.popleft()
            going = self._going.get(number)
            if going is None or going.step is not Giving.QUEUED:
                continue
            to = self.taker(number)
            if to == NOBODY:  # the members have changed meanwhile
                self._end_giving(number, now)
                continue
            self._places -= 1
            going.step = Giving.OFFERS
            self.tasks.append(Offer(number, to))

    def done(self, duty: Duty, result: object, now: int) -> list[Task]:
        """Go on after *duty*, which ended with *result*; see there which results it has."""
        match duty:
            case Offer():
                self._offered(duty, result, now)
            case Send():
                self._sent(duty, now, taken=result is True)
            case Recover():
                for number in duty.numbers:
                    self._asked.discard(number)
                    if number in self._coming:
                        self._try_to_serve(number, now, recovered=True)
            case _:
                raise AssertionError(duty, result)
        return self._out(now)

    def _offered(self, duty: Offer, said: object, now: int) -> None:
        number, going = duty.number, self._going[duty.number]
        if said == NOTHING_TO_GIVE and number not in self.serving:
            # It was never served here, so there is nothing to merge, and no claim to pass on.
            self.kept.kept.pop(number, None)
            self._given(number, now)
        elif said is not HandOverReply.YES or self.taker(number) != duty.to:
            if said is not HandOverReply.YES and self._successors is not None:
                # It may leave, too, before the news of that come. Any other member will do.
                self._refusing.add(duty.to)
                self._choose_successors()
            self._try_again(number, going, now)
        else:
            going.step, going.withheld_at = Giving.SENDS, now
            self._withhold(number, duty.to)
            self.tasks.append(Send(number, duty.to))

    def _withhold(self, number: int, to: str) -> None:
        if number in self.serving:
            self.serving.discard(number)
            self.tasks.append(Withhold(number))
        row = self.table[number]
        if row.owner == self.name and row.status is PartitionStatus.ONLINE:
            self.put(row.released(to))

    def _sent(self, duty: Send, now: int, *, taken: bool) -> None:
        number, going = duty.number, self._going[duty.number]
        if not taken:  # it is tried again, however long that takes
            self._try_again(number, going, now)
            return
        self.paused(now - going.withheld_at)
        row = self.table[number]
        if row.owner == self.name:
            # The row as the taker has claimed it. If this node wanted the partition again before
            # the taker's news came, it would begin a new one beside the taker's.
            self.put(row.claimed(duty.to, row.epoch + 1))
        if self._recovers and not self.leaving:
            self.kept.keep(number, duty.to)
        self._given(number, now)

    def _given(self, number: int, now: int) -> None:
        self._places += 1
        self._forget(number)
        self._end_giving(number, now)

    def _try_again(self, number: int, going: _Going, now: int) -> None:
        self._places += 1
        if self.taker(number) == NOBODY:
            self._end_giving(number, now)
            return
        going.step, going.try_at = Giving.WAITS, now + RETRY_US
        self.wake_at(going.try_at, number)

    def _forget(self, number: int) -> None:
        if number in self.holding:
            self.holding.discard(number)
            self.serving.discard(number)
            self.tasks += Drop(number), Changed()

    # Ends.

    def failed(self, why: str, now: int) -> list[Task]:
        """Serve nothing from now on; partitions that are here may still be handed over."""
        # The tasks of a share that has failed have ended, so what they sent begins anew.
        self._places += sum(going.step in _HAS_PLACE for going in self._going.values())
        self._going.clear()
        return super().failed(why, now)

    def leave(self, now: int) -> list[Task]:
        """Hand all partitions here over to the members that should own them without this node."""
        self._choose_successors()
        if self._successors is not None:
            for number in sorted(self.holding):
                self._begin_to_give(number, now)
        return self._out(now)

    def _choose_successors(self) -> None:
        others = [name for name in self.sight.owners() if name != self.name]
        if self._refusing.issuperset(others):
            self._refusing.clear()
        willing = [name for name in others if name not in self._refusing]
        try:
            self._successors = self.assignments.owners(willing, assigned=True)
        except (NoOwner, NotEnoughMembers):
            self._successors = None  # there is no member left to hand them to
            self.tasks.append(Changed())  # so this node may end

    def drop(self, now: int) -> list[Task]:
        """Forget all partitions: the keyspace was dropped, and requests that wait for it fail."""
        self.dropped = True
        return self.forget(now)

    def forget(self, now: int) -> list[Task]:
        """Forget all partitions that are here."""
        self.holding.update(self.kept.kept)
        self.kept.kept.clear()
        for number in sorted(self.holding):
            self._forget(number)
        self.tasks.append(Changed())
        return self._out(now)
