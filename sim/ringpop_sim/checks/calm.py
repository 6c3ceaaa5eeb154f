"""Calm: no fault is active, no process has just started, and the network delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.timers import microseconds
from ringpop_sim.checks import Check
from ringpop_sim.checks.bounds import late_us_max
from ringpop_sim.plans.plan import Slow

if TYPE_CHECKING:
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

SLACK_US: Final = 1_000_000


class Calm:
    """Whether, and since when, one world is calm.

    Attributes:
        delivers: whether all messages arrive undamaged, and the answers within the time-out.
        late_us: how long a message takes one way at most.
        digest_us: after this time nothing that was begun before is still in progress.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        config = world.config
        link = world.plan.link
        reliable = not (link.loss or link.corrupt)
        self.late_us = late_us_max(link.delay)
        # Twice, for a ping and its answer.
        self.delivers = reliable and 2 * self.late_us < microseconds(config.ping_timeout_s)
        slowed = config.local_health_max + 1 if config.local_health else 1
        waiting_us = microseconds(config.ping_timeout_s + config.ping_req_timeout_s)
        slow_us = max((o.by_us for o in world.plan.operations if isinstance(o, Slow)), default=0)
        self.digest_us = slowed * 2 * waiting_us + slow_us + SLACK_US
        self.changed_at = 0

    def disturbed(self) -> None:
        """Note that a process has started, ended or become ready, which is not a fault."""
        self.changed_at = self._world.now

    @property
    def lasts_us(self) -> int:
        """The time in microseconds for which the world has been calm; 0 while a fault is active."""
        world = self._world
        if not self.delivers:
            return 0
        # A fault that never ends is over with its process.
        for number in world.disturbed:
            process = world.numbered.get(number)
            if process is None or process.running:
                return 0
        since = max(world.quiet_since.values(), default=0)
        return world.now - max(since, self.changed_at)


class CalmCheck(Check):
    """A check that applies only if the world has been calm for long enough."""

    def begin(self) -> None:
        self._calm = Calm(self.world)

    def started(self, _process: Process) -> None:
        self._calm.disturbed()

    def ended(self, _process: Process) -> None:
        self._calm.disturbed()
