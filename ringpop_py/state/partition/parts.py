"""The records of all partitions of a durable keyspace that one node wants or has (pure)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

from ringpop_py.member.swim.member import Status
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.partition.chart import COMING, HERE, LEAVING, SERVED, Presence
from ringpop_py.state.partition.desk import Desk
from ringpop_py.state.partition.record import LocalPartition, Way
from ringpop_py.state.placement.duties import Abandon, Changed, Drop
from ringpop_py.state.placement.holdings import Holdings
from ringpop_py.state.placement.table import PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.holdings import Sight

P = TypeVar("P", bound=LocalPartition)


class Parts(Holdings, Generic[P]):
    """What `Machine` knows of the partitions, and what follows whenever one changes its state.

    Attributes:
        parts: the partitions that are wanted or here, by number.
        arriving: those of them that are on their way here.
        leaving: those that are released, or will be once they were claimed again.
        taken: how many partitions have a place among those that come in each way.
        unclaimed: what was released to other members, and is not known to be claimed: requests wait
            here until that is known.
        closing: whether nothing comes here any more.
        ended: what follows from jobs that have ended: `take` does it.
    """

    def __init__(
        self,
        keyspace: str,
        generation: int,
        assignments: Assignments,
        sight: Sight,
        config: StateConfig,
        make_name: Callable[[], str],
    ) -> None:
        super().__init__(keyspace, generation, assignments, sight)
        self.journal = Journal(sight.name, make_name)
        self.desk = Desk(self.journal, config)
        self.parts: dict[int, P] = {}
        self.arriving: dict[int, P] = {}
        self.leaving: set[int] = set()
        self.taken: Counter[Way] = Counter()
        self.unclaimed: set[int] = set()
        self.closing = False
        self.ended: list[Callable[[int], None]] = []

    def _is_here(self, number: int) -> bool:
        return number in self.holding or number in self.unclaimed

    @property
    def coming(self) -> frozenset[int]:
        """The partitions that are on their way here."""
        return frozenset(self.arriving)

    @property
    def settled(self) -> bool:
        """Whether no release is on its way, nor a claim after which there will be one."""
        return not self.leaving

    def is_there(self, name: str) -> bool:
        """Return whether the member *name* may answer.

        One that is silent counts as gone, long before membership declares it faulty: if it is there
        after all, the store fences it, and it has its partitions back a little later.
        """
        status = self.sight.status_of(name)
        if status is Status.SUSPECT:
            return not self.sight.is_silent(name)
        return status is Status.ALIVE or status is Status.LEAVE

    def is_settled(self, number: int, journal: str) -> bool:
        """Return whether no epoch of partition *number* in *journal* is open here any more."""
        part = self.parts.get(number)
        if journal != self.journal.name or part is None:
            return True
        # A claim may be there already, though its reply has not come.
        return (
            part.presence in COMING
            and part.presence is not Presence.ACQUIRING
            and not part.recovery.pursues
        )

    # What follows.

    def to(self, part: LocalPartition, presence: Presence) -> None:
        """Have *part* go to another state."""
        part.to(presence)
        has_come = part.coming is None
        for numbers, states in (
            (self.serving, SERVED),
            (self.holding, HERE if has_come else ()),
            (self.leaving, LEAVING if has_come else ()),
        ):
            (numbers.add if presence in states else numbers.discard)(part.number)

    def want(self, part: P) -> None:
        """Have *part* come."""
        self.parts[part.number] = self.arriving[part.number] = part

    def has_come(self, part: LocalPartition) -> None:
        """Note that *part* is not on its way any more: the journal has it, or it will not come."""
        self.free(part)
        part.coming = None
        del self.arriving[part.number]

    def free(self, part: LocalPartition) -> None:
        """Free the place of a partition that has come, or will not come, if it has one."""
        if part.coming is not None and part.presence not in (Presence.PENDING, Presence.QUEUED):
            self.taken[part.coming.way] -= 1

    def stop_serving(self, part: LocalPartition) -> None:
        """Tell who serves from *part*, and who waits for it, that it is no longer here."""
        self.tasks += Drop(part.number), Changed()

    def mark_released(self, part: LocalPartition, to: str) -> None:
        """Put a release into the table, unless the table has a later claim already."""
        row = self.table[part.number]
        ours = row.owner == self.name and row.epoch == part.claimed_epoch
        if ours and row.status is PartitionStatus.ONLINE:
            self.put(row.released(to))

    def gone(self, part: LocalPartition) -> None:
        """Forget *part*: it is no longer here, or will not come."""
        if part.coming is not None:
            self.has_come(part)
            self.tasks.append(Abandon(part.number))
        self.desk.lost(part)
        self.to(part, Presence.GONE)
        del self.parts[part.number]
        part.recovery.drop()
