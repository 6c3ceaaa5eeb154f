"""When nothing is wrong: no fault at work, nobody just started, and a network that delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.swim.timers import microseconds
from ringpop_sim.checks.bounds import late_us_max
from ringpop_sim.plans.plan import Slow

if TYPE_CHECKING:
    from ringpop_sim.world.world import World

SLACK_US: Final = 1_000_000


class Calm:
    """Of one world.

    Attributes:
        delivers: whether all messages arrive undamaged, and their answers within the time-out.
        late_us: the longest that a message takes.
        digest_us: after so long nothing is under way any more of what was begun before.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        config = world.config if world.dialect.extends else world.config.plain()
        link = world.plan.link
        reliable = not (link.loss or link.corrupt)
        self.late_us = late_us_max(link.delay)
        self.delivers = reliable and 2 * self.late_us < microseconds(config.ping_timeout_s)
        slowed = config.local_health_max + 1 if config.local_health else 1
        waiting_us = microseconds(config.ping_timeout_s + config.ping_req_timeout_s)
        slow_us = max((o.by_us for o in world.plan.operations if isinstance(o, Slow)), default=0)
        self.digest_us = slowed * 2 * waiting_us + slow_us + SLACK_US
        self.changed_at = 0

    def disturbed(self) -> None:
        """Something that is no fault has begun or ended: a process."""
        self.changed_at = self._world.now

    @property
    def lasts_us(self) -> int:
        """For how long nothing has been wrong; 0 while something is.

        A process that has ended for good is not wrong any more.
        """
        world = self._world
        if not self.delivers:
            return 0
        for number in world.disturbed:
            process = world.numbered.get(number)
            if process is None or process.running:
                return 0
        since = max(world.quiet_since.values(), default=0)
        return world.now - max(since, self.changed_at)
