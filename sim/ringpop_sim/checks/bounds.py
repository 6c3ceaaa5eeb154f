"""Upper bounds on the time that detection, spreading and healing take, from a plan's settings.

The bounds are generous: a run that breaks one has a fault, not bad luck. If a plan leaves so much
to chance that no bound holds (half of all messages lost), `Bounds.usual` is False and no oracle
claims one.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.prober import UNHEARD_MAX
from ringpop_py.member.swim.timers import microseconds
from ringpop_sim.plans.plan import Clock, Crash, Impair, Pause, Slow, Stop, Takeover
from ringpop_sim.world.network import TAIL_FACTOR_MAX

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import GossipConfig
    from ringpop_py.base.dialect import Dialect
    from ringpop_sim.plans.plan import Delay, Plan

USUAL_LOSS_MAX: Final = 0.15
"""Above this share of lost messages, live members are declared faulty all the time."""
QUIET_LOSS_MAX: Final = 0.005
"""Up to this share of lost messages, false suspicions are so rare that checksums agree between
them."""
USUAL_DRIFT_PPM_MAX: Final = 100_000  # a tenth
PERIODS_TO_DETECT: Final = 64
"""Within this many periods some node probes any given member, except in one run of 10**27."""
HEAL_TURNS: Final = 10
"""No node takes a given turn of healing with probability exp(-3), and a split needs two turns."""
FAST_HEAL_TURNS: Final = 40
"""In each turn a side tries about three addresses, and the processes at some of them are dead."""
# Half of the time for which turns stay short (`RECENTLY_S`).
FAST_HEAL_FAULT_US_MAX: Final = 60_000_000


class Bounds:
    """The bounds of one plan, in microseconds.

    Attributes:
        suspicion_us: how long the longest suspicion lasts.
        detection_us: from a crash until some node suspects the member.
        spread_us: from a change until all nodes know it.
        heal_us: from the end of a cut until its sides have merged.
    """

    def __init__(self, plan: Plan, config: GossipConfig, dialect: Dialect) -> None:
        self._plan = plan
        self.config = config if dialect.extends else config.plain()
        self._period_us = microseconds(config.period_s)
        self._timeout_us = microseconds(config.ping_timeout_s + config.ping_req_timeout_s)
        # A node that considers itself slow multiplies its time-outs by this at most.
        self._slowed = self.config.local_health_max + 1 if self.config.local_health else 1

    @cached_property
    def usual(self) -> bool:
        """Whether most messages arrive in time and clocks run at about the right speed."""
        drifts = [o.drift_ppm for o in self._plan.operations if isinstance(o, Clock)]
        sound = all(abs(ppm) <= USUAL_DRIFT_PPM_MAX for ppm in drifts)
        return sound and self.loss <= USUAL_LOSS_MAX

    @cached_property
    def loss(self) -> float:
        """The share of messages that do not arrive in time, apart from the plan's operations."""
        link = self._plan.link
        late = _share_above(link.delay, microseconds(self.config.ping_timeout_s) / 4)
        return 1 - (1 - link.loss) * (1 - link.corrupt) * (1 - late)

    @property
    def suspicion_us(self) -> int:
        config = self.config
        longest = microseconds(config.suspect_s)
        if config.confirmations:
            nodes = max(10, self._plan.nodes)  # the logarithm of fewer is below 1
            longest = round(longest * math.log10(nodes) * max(1.0, config.suspect_factor))
        return longest

    @property
    def detection_us(self) -> int:
        """See the class. Each probe of a dead member makes a round longer by its time-outs."""
        # By its rotation, each node probes a given member within two rounds. In a large cluster,
        # some node does so much sooner.
        periods = min(2 * self._plan.nodes, PERIODS_TO_DETECT)
        dead = min(self._dead_count, periods)
        if 2 * dead >= self._plan.nodes:  # survivors may be deaf, so they wait longer to be sure
            waiting_us = self._timeout_us * self._slowed * (dead + 1 + UNHEARD_MAX)
        else:
            waiting_us = self._timeout_us * (dead + self._slowed)
        return periods * (3 * self._period_us + self._resting_us) + waiting_us

    @property
    def _resting_us(self) -> int:
        """What resting adds to a period."""
        config = self.config
        # While no node has changes to gossip, half as many rounds are enough, because the first
        # node that notices wakes the others. So half of each quiet period counts.
        return microseconds(config.quiet_period_s) // 2 if config.quiet else 0

    @property
    def spread_us(self) -> int:
        # Many times the 0.88 ln n + 0.38 periods that a change takes (`theory.spread`).
        periods = 10 + 6 * math.ceil(math.log(self._plan.nodes + 1))
        return periods * self._period_us * 2 + self._timeout_us

    @property
    def heal_us(self) -> int:
        """See the class.

        With `fast_heal`, turns are short and frequent for two minutes after a node declared a
        member faulty. So this holds for the sides of splits that do not last much longer.
        """
        config = self.config
        slow_us = HEAL_TURNS * microseconds(config.heal_period_s)
        # After a longer fault, the time of short turns may be over when the cut ends.
        fast = config.fast_heal and self._longest_us <= FAST_HEAL_FAULT_US_MAX
        turns_us = FAST_HEAL_TURNS * microseconds(config.heal_fast_s) if fast else slow_us
        return min(slow_us, turns_us) + 2 * self.spread_us

    @property
    def crash_us(self) -> int:
        """The time from a crash until no live node considers the member reachable (L2)."""
        return self.detection_us + self.suspicion_us + self.spread_us

    @property
    def settle_us(self) -> int:
        """The time from the end of the last fault until all live nodes agree (L1)."""
        least_us = self.crash_us + self.heal_us
        return max(self._plan.settle_us, least_us)

    @property
    def _longest_us(self) -> int:
        """The sum of the lengths of all faults, as if they followed one another."""
        return sum(o.over_at_us - o.at_us for o in self._plan.operations)

    @property
    def _dead_count(self) -> int:
        """The number of nodes that may be silent at the same time."""
        kinds = Crash | Impair | Pause | Slow | Stop | Takeover
        named = (o.nodes_named() for o in self._plan.operations if isinstance(o, kinds))
        return len({node for nodes in named for node in nodes})


def late_us_max(delay: Delay) -> int:
    """Return how long a message takes one way at most, except for one message in 10**13."""
    span = delay.high_us - delay.low_us
    # Of exponential delays, one in 10**13 is longer than 30 times the mean.
    factor = {"uniform": 1.0, "exponential": 30.0, "long-tail": TAIL_FACTOR_MAX}[delay.kind]
    return delay.low_us + round(span * factor)


def _share_above(delay: Delay, limit_us: float) -> float:
    """Return the share of messages that take longer than *limit_us* one way."""
    span = delay.high_us - delay.low_us
    beyond = limit_us - delay.low_us
    if beyond < 0:
        return 1.0
    if delay.kind == "uniform" or span == 0:
        return max(0.0, 1 - beyond / span) if span else 0.0
    if delay.kind == "exponential":
        return math.exp(-beyond / span)
    # With the shape 1.5, the least value is a third of the mean (`VirtualNetwork.delay_us`).
    return min(1.0, span / (3 * beyond)) ** 1.5 if beyond else 1.0
