"""K10 to K13: what must hold of the journals of a durable keyspace, and of what they hold."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.base.values.packed import make_packer
from ringpop_py.member.swim.member import Status
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import REPEAT_US_MAX
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.journal.recovery import Recovery
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from ringpop_sim.units import s, seconds
from ringpop_sim.whole.cluster import INTERVAL_US
from ringpop_sim.whole.keyspaces.oracle import HinderedCheck, KeyspaceOracle
from ringpop_sim.whole.stage.surroundings import LOOK_US, SWEEP_US, TRIM_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.journal.asker import Effects
    from ringpop_py.state.journal.records import Claim
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.whole.keyspaces.shares import DaemonShare
    from ringpop_sim.world.process import Process

BACK_US: Final = 1 * s
"""The most time that a node takes to claim its partitions again after its journal was sealed."""
TRIMMED_US: Final = INTERVAL_US + 2 * LOOK_US + TRIM_US + 2 * s
"""After this time a slot is deleted. The last owner of each partition has written a checkpoint, one
after the other, and then the journal is trimmed."""
SWEPT_US: Final = TRIMMED_US + 2 * SWEEP_US
REQUESTS_MAX: Final = 100_000
"""The most requests with which K12 reads a partition at the end; a reader that asks for more never
ends."""


class FencedComeBack(HinderedCheck, KeyspaceOracle):
    """K10: durable: a node whose journal was sealed has each of its partitions back in a second.

    Or it knows which node has claimed the partition instead. It makes no difference whether the
    seal was right. The second begins when the node and the store are well: a cut of the network
    does not count, because a claim needs the store alone.
    """

    invariants: ClassVar = ("K10",)
    BY_STORE = True

    def begin(self) -> None:
        super().begin()
        self._fenced: dict[tuple[Process, int], tuple[DaemonShare, int]] = {}

    def told(self, share: DaemonShare, fact: fx.Fact) -> None:
        if isinstance(fact, fx.Fenced):
            for number in range(self.shares.plan.partitions):
                if share.journal.reclaims(number):
                    place = share.process, number
                    self._fenced.setdefault(place, (share, self.world.now))
        elif isinstance(fact, fx.Reclaimed | fx.Lost):
            _, fenced_at = self._fenced.pop((share.process, fact.partition))
            self._look(share, fact.partition, fenced_at)

    def finish(self) -> None:
        for (process, number), (share, fenced_at) in self._fenced.items():
            if process.running:
                self._look(share, number, fenced_at)

    def _look(self, share: DaemonShare, number: int, fenced_at: int) -> None:
        plan, well_since = self.shares.plan, self.well_since(share.number)
        if well_since is None:
            return
        bound_us = BACK_US + 4 * (plan.store_read_us + plan.store_write_us)
        if well_since > fenced_at:  # it may be waiting to ask the store again
            bound_us += REPEAT_US_MAX
        took_us = self.world.now - max(fenced_at, well_since)
        if took_us > bound_us:
            took_s = seconds(took_us)
            self.broke("K10", f"{share.name} claims partition {number} again for {took_s:.1f} s")


class JournalsStayShort(KeyspaceOracle):
    """K11: durable: in calm no journal keeps a slot for longer than checkpoints take to cover it.

    That is, while each partition is served. Of the journals that no process writes any longer, at
    most the seal is left.
    """

    invariants: ClassVar = ("K11",)

    def begin(self) -> None:
        self._calm_since = 0
        self._lengths: dict[str, deque[tuple[int, int]]] = {}
        """By journal, instants and the number of slots that it had then."""

    def fault_ended(self, _operation: Operation, _nodes: Sequence[int]) -> None:
        self._calm_since = self.world.now

    @property
    def _calm_for_us(self) -> int:
        since = max(self._calm_since, self.shares.moved_at, self.world.plan.quiet_at_us)
        return self.world.now - since

    def told(self, share: DaemonShare, fact: fx.Fact) -> None:
        if not isinstance(fact, fx.Trimmed) or fact.failed:
            return
        now, journal = self.world.now, share.journal
        lengths = self._lengths.setdefault(journal.name, deque())
        lengths.append((now, journal.next_slot))
        while len(lengths) > 1 and lengths[1][0] <= now - TRIMMED_US:
            lengths.popleft()
        then, wanted = lengths[0]
        if fact.journal != journal.name or fact.first >= wanted or wanted == 1:
            return
        calm = then <= now - TRIMMED_US and self._calm_for_us >= TRIMMED_US
        if calm and self.shares.settled:
            kept = f"slots {max(1, fact.first)} to {journal.next_slot - 1} of its journal"
            ago = f"{wanted} was the next {seconds(now - then):.1f} s ago"
            self.broke("K11", f"{share.name} keeps {kept}; {ago}")

    def finish(self) -> None:
        if self.shares.plan.mode != "durable" or not self.shares.settled:
            return
        if self._calm_for_us < SWEPT_US:
            return
        present = {share.journal.name for share in self.shares}
        for name, count in sorted(self.shares.shelf.slots_counts().items()):
            if name not in present and count > 1:
                self.broke("K11", f"{count} slots are left of the journal {name}, which has ended")


class StoreHasAll(KeyspaceOracle):
    """K12: durable: at the end a reader finds in the store what the owners serve."""

    invariants: ClassVar = ("K12",)

    def finish(self) -> None:
        if self.shares.plan.mode != "durable" or not self.shares.settled:
            return
        for share in self.shares:
            if share.writer.working:
                continue
            for number in sorted(share.journal.held):
                partition = share.partitions.get(number)
                if partition is not None:
                    self._compare(share, number, partition.state)

    def _compare(self, share: DaemonShare, number: int, served: KeyedState) -> None:
        found = KeyedState(make_packer(), Aggregations())
        recovery = Recovery(number, found, Journal("reader", lambda: "of no writer"))
        fact = self._read(recovery, recovery.follow(miss_nothing=True))
        if not isinstance(fact, fx.Followed):
            self.broke("K12", f"partition {number} of {share.name} cannot be read: {fact}")
        elif _contents(found) != _contents(served):
            text = f"{_contents(found)}, and {share.name} serves {_contents(served)}"
            self.broke("K12", f"the store has of partition {number} {text}")

    def _read(self, recovery: Recovery, effects: Effects) -> fx.Fact | None:
        """Carry out the requests of *recovery* now; return what it reports, if it ends."""
        waiting = deque(effects)
        for _ in range(REQUESTS_MAX):
            effect = waiting.popleft()
            if not isinstance(effect, fx.Request):
                return effect
            waiting.extend(recovery.answered(effect.id, self.shares.shelf.perform(effect)))
        return None


def _contents(state: KeyedState) -> tuple[object, ...]:
    keys, _ = state.all_packed(1 << 20) or ([], [])
    values = state.packed(keys, stored=True)  # with their instants
    return sorted(zip(keys, values, strict=True)), sorted(state.sessions)


class OwnersStay(KeyspaceOracle):
    """K13: durable: no node seals the journal of a member that it sees and that owns the partition.

    A member that left is no longer probed, so no node sees it. One that the store fails cannot
    release the partition, and has others take it. The verdict is checked when it is made: until the
    seal is there, it may change.
    """

    invariants: ClassVar = ("K13",)

    def begin(self) -> None:
        self._decided: set[tuple[str, str]] = set()

    def told(self, share: DaemonShare, fact: fx.Fact) -> None:
        if not isinstance(fact, fx.Sealed) or fact.holder.owner == share.name:
            return
        if (share.name, fact.journal) not in self._decided:
            self.broke("K13", f"{share.name} seals the journal of {fact.holder.owner} unasked")

    def replaces(self, share: DaemonShare, number: int, claim: Claim) -> None:
        self._decided.add((share.name, claim.journal))
        left = share.status_of(claim.owner) is Status.LEAVE
        if left or not share.steward.is_there(claim.owner):
            return
        for other in self.shares:
            journal = other.journal
            gives_up = self.shares.shelf.may_give_up(other.number)
            if journal.name == claim.journal and number in journal.held and not gives_up:
                text = f"{share.name} seals the journal of {other.name}, which owns partition"
                self.broke("K13", f"{text} {number}")


JOURNAL_ORACLES: Final[tuple[type[KeyspaceOracle], ...]] = (
    FencedComeBack,
    JournalsStayShort,
    StoreHasAll,
    OwnersStay,
)
