"""How long what must come true may take, from a plan's settings alone.

The bounds are generous: what breaks one is a fault and not bad luck. Where a plan leaves so much
to chance that no bound holds (half of all messages lost), `usual` is False and none is claimed.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.prober import UNHEARD_MAX
from ringpop_py.swim.timers import microseconds
from ringpop_sim.plans.plan import Clock, Crash, Impair, Pause, Slow, Stop, Takeover
from ringpop_sim.world.network import TAIL_FACTOR_MAX

if TYPE_CHECKING:
    from ringpop_py.config.settings import GossipConfig
    from ringpop_py.dialect import Dialect
    from ringpop_sim.plans.plan import Delay, Plan

USUAL_LOSS_MAX: Final = 0.15
"""With more loss than that, live members are declared faulty all the time."""
QUIET_LOSS_MAX: Final = 0.005
"""With less, false suspicions are so rare that checksums agree in between."""
USUAL_DRIFT_PPM_MAX: Final = 100_000
PERIODS_TO_DETECT: Final = 64
"""In so many periods somebody probes a given member, but in one run of 10**27."""
HEAL_TURNS: Final = 10
"""A turn of healing is nobody's with a chance of exp(-3), and a split takes two."""
FAST_HEAL_TURNS: Final = 40
"""Each side makes about three tries a turn, each of one address, and some of those are dead."""
FAST_HEAL_FAULT_US_MAX: Final = 60_000_000


class Bounds:
    """Those of one plan.

    Attributes:
        suspicion_us: the longest suspicion.
        detection_us: from a crash until somebody suspects.
        spread_us: from a change until all know it.
        heal_us: from the end of a cut until its sides are one.
    """

    def __init__(self, plan: Plan, config: GossipConfig, dialect: Dialect) -> None:
        self._plan = plan
        self.config = config if dialect.extends else config.plain()
        self._period_us = microseconds(config.period_s)
        self._timeout_us = microseconds(config.ping_timeout_s + config.ping_req_timeout_s)
        self._slowed = self.config.local_health_max + 1 if self.config.local_health else 1

    @cached_property
    def usual(self) -> bool:
        """Whether messages mostly arrive, in time, and clocks keep time."""
        drifts = [o.drift_ppm for o in self._plan.operations if isinstance(o, Clock)]
        sound = all(abs(ppm) <= USUAL_DRIFT_PPM_MAX for ppm in drifts)
        return sound and self.loss <= USUAL_LOSS_MAX

    @cached_property
    def loss(self) -> float:
        """Which share of the messages does not arrive in time, without all operations."""
        link = self._plan.link
        late = _share_above(link.delay, microseconds(self.config.ping_timeout_s) / 4)
        return 1 - (1 - link.loss) * (1 - link.corrupt) * (1 - late)

    @property
    def suspicion_us(self) -> int:
        """See the class."""
        config = self.config
        longest = microseconds(config.suspect_s)
        if config.confirmations:
            nodes = max(10, self._plan.nodes)
            longest = round(longest * math.log10(nodes) * max(1.0, config.suspect_factor))
        return longest

    @property
    def detection_us(self) -> int:
        """See the class: rounds in which each probe of a dead member costs its time-outs.

        Of the rounds in which nobody has anything to tell, half as many are enough: whoever is
        the first to notice wakes the others.
        """
        periods = min(2 * self._plan.nodes, PERIODS_TO_DETECT)
        dead = min(self._dead_count, periods)
        if 2 * dead >= self._plan.nodes:  # survivors may be deaf, and are slow to trust that
            waiting_us = self._timeout_us * self._slowed * (dead + 1 + UNHEARD_MAX)
        else:
            waiting_us = self._timeout_us * (dead + self._slowed)
        return periods * (3 * self._period_us + self._resting_us) + waiting_us

    @property
    def _resting_us(self) -> int:
        """How much longer a period is while nobody has anything to tell."""
        config = self.config
        return microseconds(config.quiet_period_s) // 2 if config.quiet else 0

    @property
    def spread_us(self) -> int:
        """See the class."""
        periods = 10 + 6 * math.ceil(math.log(self._plan.nodes + 1))
        return periods * self._period_us * 2 + self._timeout_us

    @property
    def heal_us(self) -> int:
        """See the class.

        With `fast_heal` turns are short for two minutes after somebody was given up, so for the
        sides of splits that do not last much longer, and so are many.
        """
        config = self.config
        slow_us = HEAL_TURNS * microseconds(config.heal_period_s)
        fast = config.fast_heal and self._longest_us <= FAST_HEAL_FAULT_US_MAX
        turns_us = FAST_HEAL_TURNS * microseconds(config.heal_fast_s) if fast else slow_us
        return min(slow_us, turns_us) + 2 * self.spread_us

    @property
    def crash_us(self) -> int:
        """From a crash until no live node holds the member for reachable (L2)."""
        return self.detection_us + self.suspicion_us + self.spread_us

    @property
    def settle_us(self) -> int:
        """From the end of the last fault until all live nodes agree (L1)."""
        least_us = self.crash_us + self.heal_us
        return max(self._plan.settle_us, least_us)

    @property
    def _longest_us(self) -> int:
        """How long the longest fault lasts, if all that overlap were one."""
        return sum(o.over_at_us - o.at_us for o in self._plan.operations if o.disturbs)

    @property
    def _dead_count(self) -> int:
        """How many nodes may be silent at once."""
        kinds = Crash | Impair | Pause | Slow | Stop | Takeover
        named = (o.nodes_named() for o in self._plan.operations if isinstance(o, kinds))
        return len({node for nodes in named for node in nodes})


def late_us_max(delay: Delay) -> int:
    """The longest that a message takes one way, but for one in 10**13."""
    span = delay.high_us - delay.low_us
    factor = {"uniform": 1.0, "exponential": 30.0, "long-tail": TAIL_FACTOR_MAX}[delay.kind]
    return delay.low_us + round(span * factor)


def _share_above(delay: Delay, limit_us: float) -> float:
    """Which share of messages takes longer than *limit_us* one way."""
    span = delay.high_us - delay.low_us
    beyond = limit_us - delay.low_us
    if beyond < 0:
        return 1.0
    if delay.kind == "uniform" or span == 0:
        return max(0.0, 1 - beyond / span) if span else 0.0
    if delay.kind == "exponential":
        return math.exp(-beyond / span)
    return min(1.0, span / (3 * beyond)) ** 1.5 if beyond else 1.0
