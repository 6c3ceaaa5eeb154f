"""Measures of a run beside the invariants: detection, convergence, false alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_sim.checks import Check
from ringpop_sim.units import s, seconds

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.world.process import Process

LEFT_ALONE_US: Final = 10 * s
"""A member that no fault touched for this long should not be declared faulty."""


class Measures(Check):
    """Compares the whole cluster after facts, but only while a measure is still open."""

    def begin(self) -> None:
        self.detected_s: float | None = None
        self.converged_s: float | None = None
        self.false_faulty = 0
        self._node_us = 0
        self._quiet_at = self.world.plan.quiet_at_us
        self._crashed: Process | None = None
        self._crashed_at = 0

    @property
    def node_s(self) -> float:
        """The time in seconds that all processes ran, added up."""
        still = sum(self.world.now - process.started_at for process in self.world.at.values())
        return seconds(self._node_us + still)

    def ended(self, process: Process) -> None:
        self._node_us += self.world.now - process.started_at
        if self._crashed is None:
            self._crashed, self._crashed_at = process, self.world.now

    def fact(self, _process: Process, effect: Effect) -> None:
        if not isinstance(effect, fx.StatusChanged):
            return
        if effect.after is not None and effect.after.status is Status.FAULTY:
            self._count_false(effect)
            self._look_for_detection()
        self._look_for_convergence()

    def _count_false(self, effect: fx.StatusChanged) -> None:
        # A message only repeats the verdict of a timer.
        if effect.via != "timer" or effect.after is None:
            return
        for subject in self.world.at.values():
            if subject.name == effect.after.name:
                self.false_faulty += self.world.left_alone_for_us(subject) > LEFT_ALONE_US

    def _look_for_detection(self) -> None:
        crashed, world = self._crashed, self.world
        if crashed is None or self.detected_s is not None:
            return
        for process in world.at.values():
            row = process.node.members.get(crashed.name)
            if process.name == crashed.name or world.left_alone_for_us(process) == 0:
                continue
            if row is not None and row.status.reachable:
                return
        self.detected_s = seconds(world.now - self._crashed_at)

    def _look_for_convergence(self) -> None:
        world = self.world
        if world.now < self._quiet_at:
            return
        if self.converged_s is None and world.converged():
            self.converged_s = seconds(world.now - self._quiet_at)

    def finish(self) -> None:
        if self.converged_s is None and self.world.converged():
            self.converged_s = 0.0  # nothing has changed since the last fault ended
