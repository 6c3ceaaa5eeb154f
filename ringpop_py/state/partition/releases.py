"""How partitions go from this node: released to another one, or given up (pure).

See `machine.py`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from ringpop_py.base.errors import StoreFull, StoreRefused
from ringpop_py.state.journal.asker import REPEAT_US_MAX
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.desk import ReleaseJob
from ringpop_py.state.placement.duties import Changed, ReleaseSaid
from ringpop_py.state.placement.keys import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.partition.parts import Parts
    from ringpop_py.state.partition.record import LocalPartition

    Tell = Callable[[ReleaseSaid], object]


class Releases:
    """Partitions on their way from this node.

    Args:
        releases_max: how many partitions are released to other members at a time.

    Attributes:
        count: how many are.
        cut_off: whether the store answers other members, and not this one; see `StoreWatch`.
        may_leave: whether a partition may go to another member now; see `ActorHost.may_leave`.
    """

    def __init__(self, here: Parts[Any], releases_max: int) -> None:
        self.count = 0
        self.cut_off = False
        self.may_leave: Callable[[int], bool] = lambda _number: True
        self._here = here
        self._releases_max = releases_max
        self._repeats: deque[tuple[int, LocalPartition]] = deque()
        """When to try again to release what is unwanted."""

    def ask(self, number: int, epoch: int, journal: str, to: str, tell: Tell) -> None:
        """Release a partition to the member *to*, if that is right; *tell* it, perhaps later.

        Args:
            epoch, journal: of the newest claim that *to* knows, and the journal which that names.
        """
        here = self._here
        if self.cut_off:
            # A seal ends all that is under way here; nothing else ends it while the cut lasts.
            tell(ReleaseSaid.NOT_MINE)
            return
        said = self.answer(number, epoch, to)
        if said is None:
            self.begin(here.parts[number], to, tell)
            return
        # A node that receives NOT_MINE may seal the journal, and with it all partitions here. So a
        # claim or a release that is on its way here has to end first.
        denies = said is ReleaseSaid.NOT_MINE and not here.failure
        wait = denies and not here.is_settled(number, journal)
        tell(ReleaseSaid.NOT_YET if wait else said)

    def answer(self, number: int, epoch: int, to: str) -> ReleaseSaid | None:
        """Return the answer to *to*, which knows our *epoch*; None if the release may begin."""
        here, part = self._here, self._here.parts.get(number)
        if part is None or here.failure:
            return ReleaseSaid.NOT_MINE
        if part.presence is Presence.RECLAIMING:
            return ReleaseSaid.NOT_YET
        if part.presence is not Presence.OWNED:
            # A partition that we no longer want may be on its way for long, if the store fails.
            on_its_way = part.coming is not None and here.is_wanted(number)
            return ReleaseSaid.NOT_YET if on_its_way else ReleaseSaid.NOT_MINE
        if (
            part.claimed_epoch > epoch  # *to* does not know our last claim yet
            # If the views differ, a release would move the partition to and fro.
            or here.table[number].desired != to
            or self.count >= self._releases_max
            or not self.may_leave(number)
        ):
            return ReleaseSaid.NOT_YET
        return None

    def begin(self, part: LocalPartition, to: str, tell: Tell | None = None) -> None:
        """Begin a release of *part*, which is owned; *tell* the outcome."""
        self._here.to(part, Presence.RELEASING)
        self.count += to != NOBODY
        job = self._queue(part, to)
        job.wake = lambda: self._here.ended.append(partial(self._ended, part, job, tell))

    def _queue(self, part: LocalPartition, to: str) -> ReleaseJob:
        job = part.release = ReleaseJob(part, to)
        self._here.desk.add_release(job)
        return job

    def _ended(self, part: LocalPartition, job: ReleaseJob, tell: Tell | None, now: int) -> None:
        here, error = self._here, job.error
        part.release = None
        self.count -= job.to != NOBODY
        if error is None:
            said = ReleaseSaid.RELEASED
        elif isinstance(error, StoreRefused):
            # It is here as before. A node that receives NOT_MINE may seal the journal, and with it
            # all partitions here: right if this node cannot write, but another perhaps can.
            full = isinstance(error, StoreFull)
            said = ReleaseSaid.NOT_YET if full else ReleaseSaid.NOT_MINE
        else:  # it was given up meanwhile, or lost
            given_up = part.presence is Presence.UNWANTED
            said = ReleaseSaid.NOT_YET if given_up else ReleaseSaid.NOT_MINE
        if part.presence is Presence.UNWANTED:
            self._unwanted_ended(part, job, now)
        elif part.presence is Presence.RELEASING and error is None:
            here.mark_released(part, job.to)
            here.unclaimed.add(part.number)
            here.stop_serving(part)
            here.gone(part)
            here.look_soon(now)  # this node may want it again by now
        elif part.presence is Presence.RELEASING:
            here.to(part, Presence.OWNED)
        here.tasks.append(Changed())
        if tell is not None:
            tell(said)

    def give_up(self, part: LocalPartition) -> None:
        """Give *part* up, which the journal has: it is released to nobody in particular."""
        here = self._here
        is_held = part.number in here.journal.held
        here.to(part, Presence.UNWANTED)
        here.desk.lost(part)
        if is_held:
            self.release_unwanted(part)

    def release_unwanted(self, part: LocalPartition) -> None:
        """Try to release *part* to nobody, unless a release of it is queued; see `advance`."""
        if part.release is None:
            job = self._queue(part, NOBODY)
            job.wake = lambda: self._here.ended.append(
                lambda now: self._unwanted_ended(part, job, now)
            )

    def _unwanted_ended(self, part: LocalPartition, job: ReleaseJob, now: int) -> None:
        part.release = None
        if job.error is None:
            self._here.gone(part)
            self._here.look_soon(now)
        elif part.presence is Presence.UNWANTED:
            self._repeats.append((now + REPEAT_US_MAX, part))

    @property
    def repeat_at(self) -> int | None:
        """When to call `advance`; None while there is no need."""
        return self._repeats[0][0] if self._repeats else None

    def advance(self, now: int) -> None:
        """Try again to release what is unwanted."""
        while self._repeats and self._repeats[0][0] <= now:
            _, part = self._repeats.popleft()
            if part.presence is Presence.UNWANTED and part.number in self._here.journal.held:
                self.release_unwanted(part)
