"""A machine without a store: what its recoveries and its journal find is what a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.coverage import Holding, Snapshots
from ringpop_py.state.journal.records import ORIGIN, Claim
from ringpop_py.state.partition.desk import ReleaseJob
from ringpop_py.state.partition.machine import Machine
from ringpop_py.state.partition.record import AskToRelease, Came, LocalPartition, Perform
from ringpop_py.state.placement.duties import Abandon, Drop
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from tests.state.durable.benches import encode
from tests.state.placement.sights import assignments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.state.journal.recovery import MayTake
    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.duties import ReleaseSaid
    from tests.state.placement.sights import Members


class ToldRecovery:
    """It finds what it is told."""

    pursues = False
    may_take: MayTake

    def __init__(self, number: int) -> None:
        self.number = number

    def follow(self) -> list[fx.Effect]:
        """See `Recovery`."""
        return [fx.ListPartition(0, self.number, 0)]

    def acquire(self, may_take: MayTake) -> list[fx.Effect]:
        """See `Recovery`."""
        self.may_take = may_take
        return [fx.ListPartition(0, self.number, 1)]

    def answered(self, _request_id: int, facts: Iterable[fx.Effect]) -> list[fx.Effect]:
        """See `Recovery`."""
        return list(facts)

    def drop(self) -> None:
        """See `Recovery`."""


class Told(Machine[LocalPartition]):
    """A machine whose recoveries find what a test says."""

    def __init__(self, sight: Members, recorded: Assignments, **config: int) -> None:
        journals = map("journal {}".format, range(100))
        settings = StateConfig(**config)
        super().__init__("k", 1, recorded, sight, settings, lambda: next(journals), self._make)

    def _make(self, number: int) -> LocalPartition:
        state = KeyedState(encode, Aggregations())
        part = LocalPartition(number, state, self.journal, self.failed_parts)
        part.recovery = ToldRecovery(number)  # type: ignore[assignment]
        return part

    def told(self, number: int, *facts: fx.Fact, now: int = 0) -> list[str]:
        """What follows from *facts* that the recovery of a partition has found."""
        part, any_request = self.parts[number], fx.ListPartition(0, number)
        return begun(self.answered(Perform(any_request, part), facts, now))  # type: ignore[arg-type]

    def followed(self, number: int = 0, now: int = 0) -> list[str]:
        """What follows once the log of a partition was read."""
        return self.told(number, fx.Followed(number, ORIGIN, 1, None), now=now)

    def failed_to_come(self, number: int = 0, now: int = 0) -> list[str]:
        """What follows if the store has refused the claim."""
        return self.told(number, fx.ClaimRefused(number), now=now)

    def damaged(self, number: int = 0, now: int = 0) -> list[str]:
        """What follows if the log is damaged."""
        return self.told(number, fx.Damaged(number, fx.GoneClaim(number, 1)), now=now)

    def held_by(self, owner: str, epoch: int, number: int = 0, now: int = 0) -> list[Any]:
        """What follows if *owner* keeps the partition."""
        claim = Claim(owner, "", 0, None)
        fact: Any = [fx.NotAcquired(number, epoch, claim, ORIGIN)]
        asked = Perform(fx.ListPartition(0, number), self.parts[number])
        return self.answered(asked, fact, now)

    def said(self, said: ReleaseSaid, number: int = 0, now: int = 0) -> list[str]:
        """What follows from the answer of the owner."""
        return begun(self.asked(number, said, now))

    def claimed(self, number: int = 0, epoch: int = 1, now: int = 0) -> None:
        """The journal holds a partition, which is looked at next."""
        part = self.parts[number]
        self.journal.held[number] = Holding(epoch, part, Snapshots(set()), None, [])
        assert self.told(number, fx.Acquired(number, epoch), now=now) == [f"look at {number}"]

    def acquired(self, number: int = 0, epoch: int = 1, now: int = 0) -> list[Any]:
        """What follows once this node has a partition."""
        self.claimed(number, epoch, now)
        return self.looked(self.parts[number], now, dropped=False)

    def sealed(self, by: str = "x", now: int = 0) -> list[str]:
        """What follows once the journal of this node is found sealed."""
        fenced, *claims = self.journal._fenced(by, outcome_open=False)
        assert isinstance(fenced, fx.Fenced)
        self._fenced(fenced, claims)
        self.desk.ended(fenced)
        self.claims = {
            task.request.partition: task
            for task in self.tasks
            if isinstance(task, Perform) and isinstance(task.request, fx.PutClaim)
        }
        return begun(self.take(now))

    def claimed_again(self, number: int, now: int = 0) -> list[Any]:
        """What follows once the next journal has a partition."""
        return self.answered(self.claims[number], fx.StoreAnswer.WON, now)

    def lost(self, number: int, to: str, now: int = 0) -> list[str]:
        """What follows once a partition is known to be lost to *to*, or unknown."""
        self._lost(self.parts[number], to, now)
        self.journal.held.pop(number, None)
        self.journal._reclaiming.pop(number, None)
        return begun(self.take(now))

    @property
    def releasing(self) -> dict[int, str]:
        """The partitions that are about to be released, with the members that shall have them."""
        jobs = [job for job in self.desk._queue if isinstance(job, ReleaseJob)]
        return {job.partition.number: job.to for job in jobs}

    def released(self, number: int, now: int = 0) -> list[str]:
        """What follows once a partition was released."""
        self.end_release(number)
        self.journal.held.pop(number)
        return begun(self.take(now))

    def end_release(self, number: int, error: KeyspaceError | None = None) -> None:
        """End a release that is queued."""
        job = self.parts[number].release
        assert job is not None
        self.desk._queue.remove(job)
        job.finish(error)

    def ask(self, number: int, epoch: int, to: str) -> ReleaseSaid | None:
        """The answer to *to*, which asks for a partition; None while a release is under way."""
        said: list[ReleaseSaid] = []
        self.releases.ask(number, epoch, "", to, said.append)
        return said[0] if said else None


def told_by(
    sight: Members, partitions: int = 1, *, places: int = 2, min_cluster_size: int = 1
) -> Told:
    """A machine at the node of *sight*."""
    recorded = assignments(partitions, min_cluster_size)
    return Told(sight, recorded, handoffs_max=places, takeovers_max=4)


NAMES: dict[type, Callable[[Any], str]] = {
    AskToRelease: lambda task: f"ask {task.owner} for {task.number} in {task.epoch}",
    Came: lambda task: f"serve {task.part.number} in {task.epoch}",
    Drop: lambda task: f"drop {task.number}",
    Abandon: lambda task: f"abandon {task.number}",
}


def begun(tasks: Iterable[object]) -> list[str]:
    """What *tasks* begin and end, in words."""
    found = []
    for task in tasks:
        if isinstance(task, Perform) and isinstance(task.request, fx.ListPartition):
            verb = "acquire" if task.request.attempt else "follow"
            found.append(f"{verb} {task.request.partition}")
        elif type(task).__name__ == "LookDropped":
            found.append(f"look at {task.part.number}")  # type: ignore[attr-defined]
        elif type(task) in NAMES:
            found.append(NAMES[type(task)](task))
    return found
