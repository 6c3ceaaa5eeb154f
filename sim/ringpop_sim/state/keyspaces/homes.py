"""The homes of a keyspace: one for each process of a world, with their store."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim import effects as swim
from ringpop_py.member.swim.member import Status
from ringpop_py.route.errand import DeadlinePolicy
from ringpop_py.state.placement.definition import Definition
from ringpop_sim.checks import Check
from ringpop_sim.plans.plan import FailStore, Rebalance
from ringpop_sim.state.keyspaces.calls import HomeCalls
from ringpop_sim.state.keyspaces.copies import NAME
from ringpop_sim.state.keyspaces.home import Home
from ringpop_sim.state.keyspaces.shelf import SharedStore
from ringpop_sim.units import ms, s
from ringpop_sim.world.process import Life
from ringpop_sim.world.world import FAREWELL_US_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.state.journal.effects import Fact
    from ringpop_py.state.journal.records import Claim
    from ringpop_sim.plans.plan import KeyspacePlan, Operation
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

REVIVED_US_MAX: Final = 60 * s


class Homes(Check):
    """The homes of all processes, their store, and the faults that concern them."""

    wants_facts = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert world.plan.keyspace is not None
        self.plan: KeyspacePlan = world.plan.keyspace
        self.definition = Definition(
            name=NAME,
            partitions=self.plan.partitions,
            mode=self.plan.mode,
            strategy=self.plan.strategy,
            automatic=self.plan.automatic,
            min_cluster_size=self.plan.min_cluster_size,
            merge="union",
        )
        self.shelf = SharedStore(world)
        self.calls = HomeCalls(world, self.of)
        rng = random.Random(f"pauses {world.seed}")
        self.policies = {
            "read": DeadlinePolicy(rng, changes_state=False),
            "write": DeadlinePolicy(rng, changes_state=True),
        }
        self.moves_count = 0
        self.moved_at = 0
        self.members_max = 0
        self.watchers: list[HomeWatcher] = []
        self.duties: Counter[tuple[str, str, int | None]] = Counter()
        """How often each home was given tasks of each kind, about each partition."""
        self._homes: dict[Process, Home] = {}
        world.farewell = self._farewell

    def of(self, process: Process) -> Home | None:
        """Return the home at *process*; None if that has ended."""
        return self._homes.get(process) if process.running else None

    def __iter__(self) -> Iterator[Home]:
        """Yield the homes of all processes that run, in the order of their starts."""
        return iter([self._homes[p] for p in self.world.running if p in self._homes])

    @property
    def settled(self) -> bool:
        """Whether each partition is served by one home, and all tables say so."""
        homes = [home for home in self if home.ready]
        served = sorted((n, home.name) for home in homes for n in home.steward.serving)
        if [n for n, _ in served] != list(range(self.plan.partitions)):
            return False
        # Equal digests mean equal tables, so one of them is looked at.
        same = len({home.table.digest for home in homes}) == 1
        true = homes[0].table.owners() == tuple([name for _, name in served])
        return same and true and not any(home.steward.coming for home in homes)

    # Hooks of the world.

    def started(self, process: Process) -> None:
        home = self._homes.get(process)
        if home is None:
            self._homes[process] = Home(self, process)
        else:
            home.revived()

    def ended(self, process: Process) -> None:
        self.calls.ended(process)

    def fact(self, process: Process, effect: Effect) -> None:
        home = self._homes.get(process)
        if home is None:
            return
        if isinstance(effect, swim.DigestDiffers):
            home.gossip.differs(effect.peer, effect.digest)
            home.after(0, home.keep_time)
        elif isinstance(effect, swim.Ready):
            home.after(0, home.join)
        elif isinstance(effect, swim.SuspicionConfirmed) or (
            isinstance(effect, swim.StatusChanged) and effect.member.status is Status.SUSPECT
        ):
            home.after(0, partial(home.suspected, effect.member.name))

    def members_changed(self, process: Process, _names: Sequence[str]) -> None:
        home = self._homes.get(process)
        if home is not None:
            self.members_max = max(self.members_max, len(home.owners()))
            home.after(0, home.wake)

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        if isinstance(operation, FailStore):
            self.shelf.begin(operation)
        elif isinstance(operation, Rebalance):
            for number in nodes:
                process = self.world.numbered.get(number)
                home = self.of(process) if process is not None else None
                if home is not None:
                    home.after(0, home.rebalance)

    def fault_ended(self, operation: Operation, _nodes: Sequence[int]) -> None:
        if isinstance(operation, FailStore):
            self.shelf.end(operation)

    def _farewell(self, process: Process, done: Callable[[], None]) -> None:
        """Give up the partitions of *process* before it leaves, as a daemon that ends does."""
        home = self.of(process)
        if home is None or process.life is not Life.RUNNING:
            done()
            return
        until = self.world.now + FAREWELL_US_MAX
        home.do(home.steward.leave(home.now))

        def look(_: object) -> None:
            if not process.running:  # it may be revived, and then goes on with its end
                if self.world.now < until + REVIVED_US_MAX:
                    self.world.push(self.world.now + 100 * ms, look)
            elif home.steward.settled or self.world.now >= until:
                done()
            else:
                self.world.push(self.world.now + 5 * ms, look)

        look(None)

    # What homes report.

    def serves(self, home: Home, number: int, epoch: int) -> None:
        """*home* serves a partition from now on."""
        self.members_max = max(self.members_max, len(home.owners()))
        self.moves_count += 1
        self.moved_at = self.world.now
        for watcher in self.watchers:
            watcher.serves(home, number, epoch)

    def serves_again(self, home: Home, number: int, epoch: int) -> None:
        """*home* serves a partition again, which it has claimed again after a fence."""
        self.moved_at = self.world.now
        for watcher in self.watchers:
            watcher.serves_again(home, number, epoch)

    def acknowledged(self, home: Home, number: int, epoch: int) -> None:
        """*home* is about to acknowledge writes of a partition in *epoch*."""
        for watcher in self.watchers:
            watcher.acknowledged(home, number, epoch)

    def replaces(self, home: Home, number: int, claim: Claim) -> None:
        """*home* is about to replace the owner that made *claim* of a partition."""
        for watcher in self.watchers:
            watcher.replaces(home, number, claim)

    def told(self, home: Home, fact: Fact) -> None:
        """The journal of *home* has reported *fact*."""
        for watcher in self.watchers:
            watcher.told(home, fact)


class HomeWatcher:
    """The hooks of an oracle of keyspaces, besides the facts of membership."""

    def serves(self, home: Home, number: int, epoch: int) -> None:
        """*home* serves a partition from now on."""

    def serves_again(self, home: Home, number: int, epoch: int) -> None:
        """*home* serves a partition again, which it has claimed again after a fence."""

    def acknowledged(self, home: Home, number: int, epoch: int) -> None:
        """*home* acknowledges writes of a partition in *epoch*."""

    def replaces(self, home: Home, number: int, claim: Claim) -> None:
        """*home* is about to replace the owner that made *claim* of a partition."""

    def told(self, home: Home, fact: Fact) -> None:
        """The journal of *home* has reported *fact*: a fence, or what has followed it."""
