"""How partitions go from this node: released to another one, or given up (pure)."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ringpop_py.base.errors import StoreFull, StoreRefused
from ringpop_py.state.journal.asker import REPEAT_US_MAX
from ringpop_py.state.journal.desk import Desk, Presence, ReleaseJob
from ringpop_py.state.ownership.local import LocalPartition
from ringpop_py.state.placement.duties import ReleaseSaid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.state.ownership.steward import DurableSteward
    from ringpop_py.state.placement import duties as do

    Tell = Callable[[ReleaseSaid], object]


class Releases:
    """Partitions on their way from this node. See `Ownership`.

    Args:
        parts: those that the steward knows to be here, by number.
        done: passes the result of a duty on to the steward.
        ended: gets what follows from jobs that have ended.

    Attributes:
        holders: by number, the partition that the journal holds, claims after a fence, or has
            released, until the steward lets it go.
        cut_off: whether the store answers other members, and not this one; see `StoreWatch`.
        may_leave: whether a partition may go to another member now; see `ActorHost.may_leave`.
    """

    def __init__(
        self,
        desk: Desk,
        steward: DurableSteward,
        parts: Mapping[int, LocalPartition],
        done: Callable[[do.Duty, object, int], None],
        ended: list[Callable[[int], None]],
    ) -> None:
        self.holders: dict[int, LocalPartition] = {}
        self.may_leave: Callable[[int], bool] = lambda _number: True
        self.cut_off = False
        self._desk = desk
        self._journal = desk.journal
        self._steward = steward
        self._parts = parts
        self._done = done
        self._ended = ended
        self._repeats: deque[tuple[int, LocalPartition]] = deque()
        """When to try again to release what is unwanted."""

    def ask(self, number: int, epoch: int, to: str, tell: Tell, now: int, *, settled: bool) -> None:
        """Release a partition to the member *to*, if that is right; *tell* it, perhaps later.

        Args:
            epoch: of the newest claim that *to* knows.
            settled: whether that epoch is no longer open here.
        """
        if self.cut_off:
            # A seal ends all that is under way here; nothing else ends it while the cut lasts.
            tell(ReleaseSaid.NOT_MINE)
            return
        duty = self._steward.release(number, epoch, to)
        if isinstance(duty, ReleaseSaid):
            # A node that receives NOT_MINE may seal the journal, and with it all partitions here.
            # So a claim or a release that is on its way here has to end first.
            denies = duty is ReleaseSaid.NOT_MINE and not self._steward.failure
            wait = denies and not settled
            tell(ReleaseSaid.NOT_YET if wait else duty)
        elif not self.may_leave(number):
            self._released(duty, ReleaseSaid.NOT_YET, tell, now)
        else:
            self.begin(duty, self._parts.get(number), to, now, tell)

    def begin(
        self,
        duty: do.ReleaseTo,
        part: LocalPartition | None,
        to: str,
        now: int,
        tell: Tell | None = None,
    ) -> None:
        """Begin a release of *part*, if it is here; the steward, and *tell*, get the outcome."""
        if part is None or part.presence is not Presence.OWNED:
            self._released(duty, self._not_released(part), tell, now)
            return
        job = self._queue(part, to)
        job.wake = lambda: self._ended.append(partial(self._release_ended, duty, job, tell))

    def _queue(self, part: LocalPartition, to: str) -> ReleaseJob:
        job = part.release = ReleaseJob(part, to)
        self._desk.add_release(job)
        return job

    def _release_ended(
        self, duty: do.ReleaseTo, job: ReleaseJob, tell: Tell | None, now: int
    ) -> None:
        part, error = job.partition, job.error
        assert isinstance(part, LocalPartition)
        if part.presence is Presence.UNWANTED:  # given up meanwhile
            self._unwanted_ended(part, job, now)
        part.release = None
        if error is None:
            said = ReleaseSaid.RELEASED
        elif isinstance(error, StoreRefused):
            # It is here as before. A node that receives NOT_MINE may seal the journal, and with it
            # all partitions here: right if this node cannot write, but another perhaps can.
            full = isinstance(error, StoreFull)
            said = ReleaseSaid.NOT_YET if full else ReleaseSaid.NOT_MINE
        else:
            said = self._not_released(part)
        self._released(duty, said, tell, now)

    def _not_released(self, part: LocalPartition | None) -> ReleaseSaid:
        """Return what to say of a partition that was lost meanwhile, or is claimed again."""
        here = part is not None and (part.epoch != 0 or self._journal.reclaims(part.number))
        return ReleaseSaid.NOT_YET if here else ReleaseSaid.NOT_MINE

    def _released(self, duty: do.ReleaseTo, said: ReleaseSaid, tell: Tell | None, now: int) -> None:
        if tell is not None:
            tell(said)
        self._done(duty, said, now)

    def leave(self, part: LocalPartition) -> None:
        """Give *part* up. If this node owns it, it is released to nobody in particular."""
        number = part.number
        if self.holders.get(number) is part:
            if part.presence is Presence.UNWANTED:
                return
            if number in self._journal.held:
                part.presence = Presence.UNWANTED
                self.release_unwanted(part)
                return
            if self._journal.reclaims(number):
                self._desk.lost(part)  # what waits for the claim
                part.presence = Presence.UNWANTED
                return
            del self.holders[number]
        elif part.recovery.pursues:  # a claim on its way is pursued, and released then
            part.presence = Presence.UNWANTED
            return
        part.presence = Presence.LOST
        part.recovery.drop()

    def release_unwanted(self, part: LocalPartition) -> None:
        """Try to release *part* to nobody, unless a release of it is queued; see `advance`."""
        if part.release is None:
            job = self._queue(part, "")
            job.wake = lambda: self._ended.append(partial(self._unwanted_ended, part, job))

    def _unwanted_ended(self, part: LocalPartition, job: ReleaseJob, now: int) -> None:
        part.release = None
        if job.error is None:
            self._forget(part)
        else:
            self._repeats.append((now + REPEAT_US_MAX, part))

    def _forget(self, part: LocalPartition) -> None:
        number = part.number
        if not self._journal.reclaims(number) and self.holders.get(number) is part:
            del self.holders[number]
            part.presence = Presence.LOST
            part.reset()

    @property
    def repeat_at(self) -> int | None:
        """When to call `advance`; None while there is no need."""
        return self._repeats[0][0] if self._repeats else None

    def advance(self, now: int) -> None:
        """Try again to release what is unwanted."""
        while self._repeats and self._repeats[0][0] <= now:
            _, part = self._repeats.popleft()
            number = part.number
            if number in self._journal.held and self.holders.get(number) is part:
                self.release_unwanted(part)
            else:
                self._forget(part)
