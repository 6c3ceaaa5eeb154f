"""S15: a process gives up its name only to the right one of the processes that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.messages import NameAck
from ringpop_py.member.swim.timers import microseconds
from ringpop_sim.checks import Check
from ringpop_sim.plans import plan as p
from ringpop_sim.units import s, seconds
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.world.process import Process

# The node and this check each round the end of an interruption to milliseconds, from another zero.
ROUNDING_MS: Final = 2
HELPERS_US: Final = 10 * s
"""A helper's report about the keeper of a name may be this old, however slow all nodes are."""


class _Tenure(NamedTuple):
    """Since when a process has run without a long interruption, in ms by its own wall clock.

    Attributes:
        sure: whether *since_ms* is certain. It is not after an interruption of about the length
            of a suspicion, or if the process was ever slow.
        broken: whether there was an interruption.
    """

    since_ms: int
    sure: bool = True
    broken: bool = False


class _Vouched(NamedTuple):
    """The state of a process when it last answered for its name."""

    joined: bool
    tenure: _Tenure


class NamesKept(Check):
    """S15: a process gives up its name only to a live process, and to the right one.

    - The process that keeps the name has answered for it: to the loser itself or, while the loser
      was joining, to a helper. No two processes lose the name to each other.
    - A process that had joined does not lose its name to one that was joining.
    - If both had joined, or neither had, the process that has run for longer without interruption
      keeps the name, by the two wall clocks; at the same instant, the lower address keeps it. A
      pause, or a continuation from a snapshot, is an interruption if other nodes may have declared
      the process faulty meanwhile.

    That one of the two yields at all is part of L1. The check does not judge by age after
    interruptions about as long as the shortest suspicion, and never for processes that were slow,
    because a slow process may seem interrupted.
    """

    invariants: ClassVar = ("S15",)

    def begin(self) -> None:
        config = self.world.config
        self._short_us = microseconds(config.suspect_s)
        # A node notices a stop only at its next timer, which may be a period away.
        slowed = config.local_health_max + 1
        period_us = max(config.period_s * slowed, config.quiet_period_s)
        self._long_us = self._short_us + 2 * microseconds(period_us)
        self._slow = {
            node for o in self.world.plan.operations if isinstance(o, p.Slow) for node in o.nodes
        }
        self._tenures: dict[Process, _Tenure] = {}
        self._born: dict[Process, tuple[int, int]] = {}
        self._stopped_at: dict[Process, int] = {}
        self._ended_at: dict[Process, int] = {}
        self._vouched: dict[tuple[Process, Process], _Vouched] = {}
        self._lost_to: dict[Process, Process] = {}

    # Since when processes have run.

    def started(self, process: Process) -> None:
        if process not in self._tenures:  # a revived process goes on, after an interruption
            incarnation = process.node.local.incarnation
            self._born[process] = incarnation, process.time(self.world.now)
            self._tenures[process] = _Tenure(incarnation, process.number not in self._slow)

    def ended(self, process: Process) -> None:
        self._ended_at[process] = self.world.now
        self._stopped_at.setdefault(process, self.world.now)  # unless a pause has stopped it before

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        if isinstance(operation, p.Pause):
            for number in nodes:
                process = self.world.numbered.get(number)
                if process is not None and process.life is Life.RUNNING:
                    self._stopped_at[process] = self.world.now

    def fault_ended(self, _operation: Operation, _nodes: Sequence[int]) -> None:
        # Now, because a tenure counts from the instant at which the process goes on. A copy,
        # because `_tenure` removes entries.
        for process in list(self._stopped_at):
            self._tenure(process)

    def _tenure(self, process: Process) -> _Tenure:
        """Return the tenure of *process*: a new one if it continues after an interruption."""
        before = self._tenures[process]
        if process.life is not Life.RUNNING or process not in self._stopped_at:
            return before
        lasted_us = self.world.now - self._stopped_at.pop(process)
        # No member is declared faulty in that time, so none was replaced.
        if lasted_us < self._short_us:
            return before
        born_ms, born_at = self._born[process]
        wall_ms = born_ms + (process.time(self.world.now) - born_at) // 1000
        sure = lasted_us > self._long_us and process.number not in self._slow
        after = self._tenures[process] = _Tenure(wall_ms, sure, broken=True)
        return after

    # Which process keeps the name.

    def duty(self, process: Process, effect: Effect) -> None:
        if type(effect) is not fx.AnswerPeer or type(effect.response) is not NameAck:
            return
        call = process.answering.get(effect.token)
        if call is not None:
            vouched = _Vouched(effect.response.joined, self._tenure(process))
            # As it was when it answered: the loser can judge by nothing later.
            self._vouched[process, call.caller] = vouched

    def fact(self, process: Process, effect: Effect) -> None:
        if not isinstance(effect, fx.NameTaken) or not effect.lost:
            return
        keeper = self._keeper(process, effect)
        what = f"{process.name} at {process.address} lost its name to {effect.theirs.address}"
        if keeper is None:
            self.broke("S15", f"{what}, where nobody has it")
            return
        self._lost_to[process] = keeper
        if self._is_circle(process):
            self.broke("S15", f"{what}, which lost it to that one")
        vouched = self._vouched.get((keeper, process))
        # Only a helper has reached the keeper, so its tenure is unknown.
        if effect.since_ms is None and not process.node.ready:
            ended_at = self._ended_at.get(keeper, self.world.now)
            if not keeper.running and self.world.now - ended_at > HELPERS_US:
                after_s = seconds(self.world.now - ended_at)
                self.broke("S15", f"{what}, which ended {after_s:.1f} s before")
        elif vouched is None:
            self.broke("S15", f"{what}, which it had not asked")
        elif vouched.joined < process.node.ready:  # bools: it had not joined, and the loser had
            self.broke("S15", f"{what}, which had not joined yet")
        elif vouched.joined == process.node.ready:
            self._compare(process, keeper, vouched.tenure, what)

    def _keeper(self, loser: Process, effect: fx.NameTaken) -> Process | None:
        """Return the process that keeps the name instead of *loser*: it runs, or ended last."""
        place = effect.theirs.name, effect.theirs.address
        others = (o for o in self.world.processes if o is not loser)
        # By address, because a machine that was restored from a snapshot is an older process.
        there = [process for process in others if (process.name, process.address) == place]
        return max(there, key=lambda o: (o.running, self._ended_at.get(o, 0)), default=None)

    def _is_circle(self, loser: Process) -> bool:
        """Return whether the keeper lost the name, directly or by way of others, to *loser*."""
        keeper: Process | None = self._lost_to[loser]
        while keeper is not None and keeper is not loser:
            keeper = self._lost_to.get(keeper)
        return keeper is loser

    def _compare(self, loser: Process, keeper: Process, theirs: _Tenure, what: str) -> None:
        ours = self._tenure(loser)
        if not (ours.sure and theirs.sure):
            return
        rounded = ours.broken or theirs.broken
        if rounded and abs(ours.since_ms - theirs.since_ms) <= ROUNDING_MS:
            return
        if (ours.since_ms, loser.address) < (theirs.since_ms, keeper.address):
            self.broke("S15", f"{what}, which has run since {theirs.since_ms}, not {ours.since_ms}")
