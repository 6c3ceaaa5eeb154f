"""L1 to L4: the cluster becomes one again, finds crashes in time, and heals without deaths."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_sim.checks import Check
from ringpop_sim.checks.bounds import QUIET_LOSS_MAX, Bounds
from ringpop_sim.plans import plan as p
from ringpop_sim.units import ms, seconds
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

LOOK_US: Final = 250 * ms
FOR_GOOD: Final = (p.Cut, p.Impair, p.Slow, p.Pause)
"""Faults that, while they last, keep a cluster from converging."""


class Converges(Check):
    """L1, L3, L4: after the last fault, all live nodes converge to one view within a bound.

    They need to do so only once, because random loss causes false suspicions for ever. If the
    loss is above that of a bad network, it is enough that all consider each other reachable; if
    it is far above, nothing is claimed (`Bounds.usual`). A process that left (`plan.Leave`) still
    counts as a live node, which the others must consider left. L3 and L4 are the same claim for
    cuts of any shape and for any rumours. `HealsGently` checks that healing declares no live node
    faulty.

    Exempt, because no protocol could converge: a plan that ends before the bound; a cut, bad
    links, slowness or a pause for ever; nodes that no chain of hosts lists connects, or that, in
    the ringpop dialect, wait for more hosts than live; a list that may not grow (`members_max`).
    """

    invariants: ClassVar = ("L1", "L3", "L4")

    def begin(self) -> None:
        world = self.world
        self.agreed_at: int | None = None
        self._bounds = Bounds(world.plan, world.config, world.dialect)
        self._due_at = world.plan.quiet_at_us + self._bounds.settle_us
        if self._applies():
            # A microsecond later, because the last fault's end is pushed only when the fault
            # begins, and so comes after this event if both are due at one instant.
            world.push(world.plan.quiet_at_us + 1, self._look)

    def _applies(self) -> bool:
        plan = self.world.plan
        endless = any(isinstance(o, FOR_GOOD) and not o.for_us for o in plan.operations)
        # Takeovers add names, and moves do where a name is an address.
        grows = self.world.config.members_max >= 2 * plan.nodes + len(plan.operations)
        in_time = self._due_at <= plan.until_us
        return in_time and grows and not endless and self._bounds.usual

    def _look(self, _argument: object) -> None:
        world = self.world
        processes = world.running
        if agree(processes, wholly=self._bounds.loss <= QUIET_LOSS_MAX):
            self.agreed_at = world.now
        elif world.now < self._due_at:
            world.push(world.now + LOOK_US, self._look)
        elif can_meet(world, processes):
            after_s = seconds(world.now - world.plan.quiet_at_us)
            self.broke("L1", f"{after_s:.0f} s after the last fault: {_views(processes)}")


def can_meet(world: World, processes: Sequence[Process]) -> bool:
    """Return whether the hosts lists of *processes* let all of them find each other."""
    if any(process.life is not Life.RUNNING for process in processes):
        return False
    lists = {process: known_hosts(world, process) for process in processes}
    if not world.dialect.joins_alone:
        size = world.config.join_size
        if any(len(found) < min(size, listed) for found, listed in lists.values()):
            return False
    return _connected({process: found for process, (found, _) in lists.items()})


def agree(processes: Iterable[Process], *, wholly: bool) -> bool:
    """Return whether *processes* consider exactly each other reachable, and each name is used once.

    Processes that left must be considered left. With *wholly*, all checksums must be equal, too.
    """
    found = list(processes)
    if len({process.name for process in found}) < len(found):
        return False
    names = {o.name for o in found if o.node.local.status.reachable}
    if wholly and len({process.node.members.checksum for process in found}) > 1:
        return False
    for process in found:
        members = process.node.members
        others = len(names) - (process.name in names)  # a process that left is not in *names*
        if not process.node.ready or members.pingable_count != others:
            return False
        # In any order, because the result is only yes or no.
        for name in names:
            row = members.get(name)
            if row is None or not row.status.reachable:
                return False
    return True


def known_hosts(world: World, process: Process) -> tuple[list[Process], int]:
    """Return the live processes that the hosts lists of *process* name, and the lists' length.

    If it was given different lists at different times, only hosts that are in all of them count.
    """
    lists = [
        set(o.listed)
        for o in world.plan.operations
        if isinstance(o, p.Discovery) and process.number in o.nodes
    ]
    machines = set(range(world.plan.seeds or world.plan.nodes)) if not lists else lists[0]
    machines = machines.intersection(*lists[1:])
    found = [world.at[m] for m in sorted(machines) if m in world.at and m != process.machine]
    return found, len(machines - {process.machine})


def _connected(lists: dict[Process, list[Process]]) -> bool:
    """Return whether the graph *lists*, with its edges taken in both directions, is connected."""
    edges: dict[Process, list[Process]] = {process: [] for process in lists}
    for process, found in lists.items():
        for other in found:
            edges[process].append(other)
            edges[other].append(process)
    reached: dict[Process, None] = {}
    front = list(edges)[:1]
    while front:
        process = front.pop()
        if process not in reached:
            reached[process] = None
            front += edges[process]
    return len(reached) == len(edges)


def _views(processes: list[Process]) -> str:
    """Return a text for people that says which processes disagree."""
    sums = Counter(process.node.members.checksum for process in processes)
    texts = [f"{len(sums)} checksums among {len(processes)} nodes"]
    names = {process.name for process in processes}
    for process in processes:
        rows = process.node.members
        wrong = [f"{m.name} {m.status.label}" for m in rows if m.name in names and m.status > 0]
        wrong += [f"{name} unknown" for name in sorted(names) if rows.get(name) is None]
        wrong += [f"{m.name} lives" for m in rows if m.name not in names and m.status.reachable]
        if wrong:
            texts.append(f"{process.name} has {', '.join(wrong[:4])}")
    return "; ".join(texts[:4])


class CrashesFound(Check):
    """L2: every live node that is left alone considers an ended process gone, within a bound.

    Gone means faulty, a tombstone, left, or never known. The bound runs from the end of the
    process. The check looks once, when the bound has passed; a node that was disturbed or
    started within the bound is not judged.

    Exempt: runs in which most nodes are disturbed, because a probe proves nothing if no helper
    answers; a name that another process uses again; a row that was evicted and came back from a
    node that had not yet received the news; networks for which nothing is claimed
    (`Bounds.usual`).
    """

    invariants: ClassVar = ("L2",)

    def begin(self) -> None:
        self._bounds = Bounds(self.world.plan, self.world.config, self.world.dialect)
        self._ended_at: dict[str, int] = {}
        self._forgotten: set[tuple[Process, str]] = set()

    def started(self, process: Process) -> None:
        self._ended_at.pop(process.name, None)

    def ended(self, process: Process) -> None:
        # A twin goes on, so the name is not gone.
        if any(other.name == process.name for other in self.world.at.values()):
            return
        self._ended_at[process.name] = self.world.now
        if self._bounds.usual:
            self.world.push(self.world.now + self._bounds.crash_us, self._due, process)

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.StatusChanged) and effect.after is None:
            assert effect.before is not None
            self._forgotten.add((process, effect.before.name))

    def _due(self, dead: Process) -> None:
        world, bound_us = self.world, self._bounds.crash_us
        ended_at = self._ended_at.get(dead.name)
        if ended_at is None or ended_at + bound_us > world.now:
            return  # it runs again, or has ended again
        # A disturbed node may have missed everything, and most helpers have to be sound.
        calm = [o for o in world.running if self._is_calm(o, bound_us)]
        if 2 * len(calm) < len(world.at):
            return
        for process in calm:
            row = process.node.members.get(dead.name)
            if row is None or not row.status.reachable or (process, dead.name) in self._forgotten:
                continue
            detail = f"{row.status.label} {seconds(bound_us):.0f} s after its end"
            self.broke("L2", f"{process.name} considers {dead.name} {detail}")

    def _is_calm(self, process: Process, for_us: int) -> bool:
        left_alone = self.world.left_alone_for_us(process) >= for_us
        return left_alone and process.life is Life.RUNNING and process.node.gossiping


class HealsGently(Check):
    """L3: merging two views declares no live node faulty.

    A row that healing applies becomes a suspicion at most, which a live member refutes. Only a
    member that did end may be declared faulty by healing.
    """

    invariants: ClassVar = ("L3",)

    def fact(self, process: Process, effect: Effect) -> None:
        if not isinstance(effect, fx.StatusChanged) or effect.via != "heal":
            return
        before, after = effect.before, effect.after
        if after is None or after.status is not Status.FAULTY or before is None:
            return
        alive = before.status.reachable and any(
            o.name == after.name and o.node.local.incarnation >= after.incarnation
            for o in self.world.at.values()
        )
        if alive and after.incarnation == before.incarnation:
            detail = f"{after.name}, which is alive, faulty in incarnation {after.incarnation}"
            self.broke("L3", f"by healing, {process.name} declared {detail}")
