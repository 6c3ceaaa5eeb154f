"""What all parts of a node share: its identity, member list, clock, health, timers and effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.effects import HealthChanged, Stalled
from ringpop_py.member.swim.member import INCARNATION_AHEAD_MS_MAX
from ringpop_py.member.swim.memberlist import MemberList
from ringpop_py.member.swim.timers import Timers, microseconds

if TYPE_CHECKING:
    import random

    from ringpop_py.base.config.settings import GossipConfig
    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member


STALL_POINTS_MAX: Final = 3
"""How many points of health a stall costs at most. A long stall costs more than a short one, but
does not show that the next one will come soon."""


@dataclass(slots=True)
class NodeCounts:
    """How often each event happened since the node was created."""

    pings_sent: int = 0
    pings_received: int = 0
    ping_failures: int = 0
    ping_reqs_sent: int = 0
    ping_reqs_received: int = 0
    joins_received: int = 0
    damp_reqs_received: int = 0
    full_syncs: int = 0
    reverse_full_syncs: int = 0
    reverse_full_syncs_omitted: int = 0
    delta_syncs: int = 0
    delta_syncs_omitted: int = 0
    syncs_received: int = 0
    name_reqs_received: int = 0
    refutations: int = 0
    refusals: int = 0
    changes_applied: int = 0
    members_over_limit: int = 0
    incarnations_refused: int = 0
    dampings_refused: int = 0
    probes_inconclusive: int = 0
    periods_skipped: int = 0


class Health:
    """Local health (Lifeguard, section IV-A): a score from 0 (healthy) to *score_max* (0: off).

    If answers are late, either the peer is cut off or this node is slow: short of processor time,
    memory or network. A slow node must not accuse others because of its own slowness. So each sign
    of slowness lengthens its periods and time-outs, and each success shortens them.
    """

    def __init__(self, score_max: int) -> None:
        self.score_max = score_max
        self.score = 0

    @property
    def factor(self) -> int:
        """The factor by which our periods and time-outs are multiplied."""
        return self.score + 1

    def move(self, by: int) -> bool:
        """Count *by* signs that we are slow; -1 is a success. Return whether the score changed."""
        before = self.score
        self.score = min(max(before + by, 0), self.score_max)
        return self.score != before


class StallClock:
    """The node's own clock: the driver's clock without the time in which the node did not run."""

    def __init__(self, wall_ms: int, now: int) -> None:
        self.now = 0  # the instant of the last call
        self.lost_us = 0  # the sum of all stalls, which instants of this clock do not count
        self.stall_count = 0
        # As the driver reported it. Neither the driver's clock nor this one counts this time.
        self.suspended_us = 0
        # Since when no interruption was long enough for others to declare us faulty and replace
        # us, in milliseconds of the wall clock.
        self.since_ms = wall_ms
        self._wall_ms_at_zero = wall_ms - now // 1000

    def instant(self, now: int) -> int:
        """Convert the driver's *now* to an instant of this clock."""
        return now - self.lost_us

    def wall_ms(self, now: int) -> int:
        """Return the wall clock's milliseconds at *now*, computed from those at our start."""
        return self._wall_ms_at_zero + (now + self.lost_us + self.suspended_us) // 1000

    def stall(self, late_us: int, due_at: int) -> None:
        """Leave out the last *late_us*, so that what was due at *due_at* is due now."""
        self.now = due_at
        self.lost_us += late_us
        self.stall_count += 1


class Core:
    """The shared state of a node's parts. It decides nothing, and uses none of the parts."""

    def __init__(
        self,
        local: Member,
        cluster: str,
        ring_points: int,
        dialect: Dialect,
        config: GossipConfig,
        rng: random.Random,
        now: int,
    ) -> None:
        self.name = local.name
        self.address = local.address
        self.cluster = cluster
        self.ring_points = ring_points
        self.dialect = dialect
        self.rng = rng
        self.members = MemberList(local, dialect=dialect, rng=rng, damp_share=config.damp_share)
        self.counts = NodeCounts()
        self.timers = Timers()
        self.clock = StallClock(local.incarnation, now)
        self.health = Health(0)
        self.config = config
        self.digest = 0  # see `Node.digest`; set only there
        self.ready = False  # whether the first join is done; set only by `Joiner`
        self.evicting = False  # whether we are leaving; set only by `Node`, never reset
        # Whether we are joining, and our name may belong to a living process; and whether it does
        # belong to one, which is never reset. Both are set only by `Namesakes`.
        self.name_in_doubt = False
        self.name_lost = False
        self._effects: list[Effect] = []

    @property
    def local(self) -> Member:
        """Our own row."""
        return self.members.local

    @property
    def sender(self) -> tuple[str, str, int, int]:
        """Our name, host, port and incarnation, as our requests carry them."""
        local = self.members.local
        return local.name, local.host, local.port, local.incarnation

    @property
    def stopped(self) -> bool:
        """Whether we must not begin anything new."""
        return self.evicting or self.name_lost

    @property
    def may_speak(self) -> bool:
        """Whether we may send anything in our name that was not asked for."""
        return not (self.name_lost or self.name_in_doubt)

    @property
    def config(self) -> GossipConfig:
        """The configuration, without the parts that the dialect does not have.

        It may be replaced while the node runs, so it is read at each use. Durations of statuses,
        join rounds, piggybacking and `damp_share` are fixed at the start.
        """
        return self._config

    @config.setter
    def config(self, config: GossipConfig) -> None:
        self._config = config = config if self.dialect.extends else config.plain()
        self.health.score_max = config.local_health_max if config.local_health else 0
        self.judge_health(0, "configured")

    def is_believable(self, row: Member, now: int) -> bool:
        """Return whether the incarnation of *row* can be the time of some clock."""
        return row.incarnation <= self.clock.wall_ms(now) + INCARNATION_AHEAD_MS_MAX

    def judge_health(self, by: int, reason: str) -> None:
        """Count *by* signs that we are slow, because of *reason*; -1 is a success."""
        if self.health.move(by):
            self.emit(HealthChanged(self.health.score, reason))

    def enter(self, now: int) -> int:
        """Begin a call at the driver's *now*; return our own instant, which counts no stalls."""
        # So each timer of a paused process continues where it stopped. Messages that arrived
        # meanwhile are read before any timer fires, and no member is accused because we slept.
        clock = self.clock
        clock.now = now = clock.instant(now)
        due_at, config = self.timers.next_at, self._config
        if due_at is None or now <= due_at:
            return now
        late_us, stall_us = now - due_at, microseconds(config.stall_s)
        self._count_interruption(late_us, now)
        if not config.local_health:
            return now
        if late_us <= stall_us:
            return now
        clock.stall(late_us, due_at)
        self.emit(Stalled(late_us))
        self.judge_health(min(STALL_POINTS_MAX, late_us // stall_us), "stalled")
        return due_at

    def note_suspension(self, lasted_us: int, now: int) -> None:
        """Count that the machine was suspended for *lasted_us*, until the driver's *now*."""
        # This makes no timer late, because the driver's clock stood still, too.
        self.clock.suspended_us += lasted_us
        now, due_at = self.clock.instant(now), self.timers.next_at
        # A timer that is late as well: the process also stood still just before or after.
        late_us = 0 if due_at is None else max(0, now - due_at)
        self._count_interruption(lasted_us + late_us, now)

    def _count_interruption(self, lasted_us: int, now: int) -> None:
        # No silent member is declared faulty sooner, so none can have been replaced.
        if lasted_us >= microseconds(self._config.suspect_s):
            self.clock.since_ms = self.clock.wall_ms(now)

    def emit(self, effect: Effect) -> None:
        """Append *effect* to the effects of the current call."""
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Return all effects since the last such call, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects
