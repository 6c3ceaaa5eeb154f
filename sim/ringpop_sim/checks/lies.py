"""L11: however a member lies, no healthy member is out of the ring for long."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.member.swim import effects as fx
from ringpop_sim.checks import Check
from ringpop_sim.checks.bounds import QUIET_LOSS_MAX, Bounds
from ringpop_sim.plans.plan import Lie
from ringpop_sim.units import s, seconds
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.world.process import Process

OUT_US: Final = 2 * s
"""For how long a lie may keep a member out: a ping that is lost, and the next one."""
HEALTHY_US: Final = 30 * s
"""A member is healthy if it has run, or other faults have left it alone, for this long."""


class LiarsRemoveNobody(Check):
    """L11: while a member lies, healthy members have each other in their rings, and in their place.

    A lie may take a member out of the rings of its receivers, but no longer than `OUT_US`: a node
    that learns that a member is faulty tells that member, which refutes.

    Exempt: the liar. Members that other faults touch, or did `HEALTHY_US` ago, in any part of the
    cluster. Networks that lose messages. Members that are damped: a lie counts as a change. The
    ringpop dialect, which believes all that it receives.
    """

    invariants: ClassVar = ("L11",)

    def begin(self) -> None:
        world = self.world
        lies = any(isinstance(o, Lie) for o in world.plan.operations)
        quiet = Bounds(world.plan, world.config, world.dialect).loss <= QUIET_LOSS_MAX
        self._applies = lies and quiet and world.dialect.extends
        self._others: Counter[type[Operation]] = Counter()
        self._quiet_since = 0
        self._liars: set[int] = set()
        self._out_since: dict[tuple[Process, str], int] = {}

    def started(self, _process: Process) -> None:
        self._quiet_since = self.world.now

    def ended(self, _process: Process) -> None:
        self._quiet_since = self.world.now

    def fault_began(self, operation: Operation, _nodes: Sequence[int]) -> None:
        if isinstance(operation, Lie):
            self._liars.add(operation.about)
        else:
            self._others[type(operation)] += 1

    def fault_ended(self, operation: Operation, _nodes: Sequence[int]) -> None:
        if not isinstance(operation, Lie):
            self._others[type(operation)] -= 1
            self._quiet_since = self.world.now

    def fact(self, process: Process, effect: Effect) -> None:
        if not (self._applies and isinstance(effect, fx.StatusChanged)):
            return
        name = effect.member.name
        if self._is_in_place(effect.after):
            self._out_since.pop((process, name), None)
        elif (process, name) not in self._out_since:
            self._out_since[process, name] = self.world.now
            due = process, name, self.world.now
            self.world.push(self.world.now + OUT_US, self._look, due)

    def _is_in_place(self, row: Member | None) -> bool:
        if row is None or not row.status.reachable:
            return False
        return any((o.name, o.address) == (row.name, row.address) for o in self.world.at.values())

    def _look(self, due: tuple[Process, str, int]) -> None:
        observer, name, since = due
        if self._out_since.get((observer, name)) != since or not self._is_healthy(observer):
            return
        subject = next((o for o in self.world.at.values() if o.name == name), None)
        if subject is not None and self._is_healthy(subject):
            detail = f"{name} has been out of its place for {seconds(OUT_US):.0f} s"
            self.broke("L11", f"at {observer.name}, {detail}, though it is healthy")

    def _is_healthy(self, process: Process) -> bool:
        alone = not +self._others and self.world.now - self._quiet_since >= HEALTHY_US
        lives = process.life is Life.RUNNING and process.node.ready
        stays = process.node.local.status.reachable
        return alone and lives and stays and process.number not in self._liars
