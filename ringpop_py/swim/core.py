"""What all parts of a node share: who we are, whom we know, and what we have to say so far.

Local health is Lifeguard's (section IV-A). A node that gets no answers in time may be cut off from
the peer, or be slow itself: short of processor time, of memory, of network. A slow node must not
accuse the others of its own slowness. So every sign of it lengthens its periods and its time-outs,
and every success shortens them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.effects import HealthChanged, Stalled
from ringpop_py.swim.member import INCARNATION_AHEAD_MS_MAX
from ringpop_py.swim.memberlist import MemberList
from ringpop_py.swim.timers import Timers, microseconds

if TYPE_CHECKING:
    import random

    from ringpop_py.config.settings import GossipConfig
    from ringpop_py.dialect import Dialect
    from ringpop_py.swim.effects import Effect
    from ringpop_py.swim.member import Member


STALL_POINTS_MAX: Final = 3
"""A long stall says more than a short one, but not that the next will come soon."""


@dataclass(slots=True)
class NodeCounts:
    """How often things happened since the node was made."""

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
    """A score from 0 (healthy) to *score_max*; with that at 0, all of it is off."""

    def __init__(self, score_max: int) -> None:
        self.score_max = score_max
        self.score = 0

    @property
    def factor(self) -> int:
        """How many times as long as set our periods and time-outs are now."""
        return self.score + 1

    def move(self, by: int) -> bool:
        """Count *by* signs that we are slow; -1 is a success. Returns: whether the score moved."""
        before = self.score
        self.score = min(max(before + by, 0), self.score_max)
        return self.score != before


class StallClock:
    """Our own clock: the driver's, without the time in which we were not run.

    Attributes:
        now: the instant of what we were called for last.
        lost_us: for how long nobody called us although somebody should have; instants in the
            core do not count it.
        stall_count: how often that happened.
        suspended_us: for how long the machine was suspended, as far as we were told; neither the
            driver's clock nor ours counts it.
        since_ms: since when we have run without an interruption in which we might have been given
            up and replaced, in milliseconds of the wall clock.
    """

    def __init__(self, wall_ms: int, now: int) -> None:
        self.now = 0
        self.lost_us = 0
        self.stall_count = 0
        self.suspended_us = 0
        self.since_ms = wall_ms
        self._wall_ms_at_zero = wall_ms - now // 1000

    def instant(self, now: int) -> int:
        """The driver's *now* as an instant of ours."""
        return now - self.lost_us

    def wall_ms(self, now: int) -> int:
        """The wall clock's milliseconds at our instant *now*, as they follow from our start."""
        return self._wall_ms_at_zero + (now + self.lost_us + self.suspended_us) // 1000

    def stall(self, late_us: int, due_at: int) -> None:
        """Leave out the *late_us* before now: what was due at *due_at* is due now."""
        self.now = due_at
        self.lost_us += late_us
        self.stall_count += 1


class Core:
    """Handed to each part of a node. It decides nothing, and knows none of the parts.

    Attributes:
        digest: see `Node.digest`; set by `Node` alone.
        health: how slow we hold ourselves for; with `local_health` off, not at all.
        ready: whether the first join is done; set by `Joiner` alone.
        evicting: whether we are on our way out; set by `Node` alone, and for good.
        name_in_doubt: whether we are joining, and our name may belong to a living process; set by
            `Namesakes` alone.
        name_lost: whether our name belongs to another process; set by `Namesakes` alone, and for
            good.
    """

    def __init__(
        self,
        local: Member,
        *,
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
        self._config = config if dialect.extends else config.plain()
        self.rng = rng
        self.members = MemberList(local, dialect=dialect, rng=rng, damp_share=config.damp_share)
        self.counts = NodeCounts()
        self.timers = Timers()
        self.clock = StallClock(local.incarnation, now)
        self.health = Health(_score_max(self._config))
        self.digest = 0
        self.ready = False
        self.evicting = False
        self.name_in_doubt = False
        self.name_lost = False
        self._effects: list[Effect] = []

    @property
    def local(self) -> Member:
        """Our own row."""
        return self.members.local

    @property
    def stopped(self) -> bool:
        """Whether we are to begin nothing any more."""
        return self.evicting or self.name_lost

    @property
    def may_speak(self) -> bool:
        """Whether we may say anything of our own accord in our name."""
        return not (self.name_lost or self.name_in_doubt)

    @property
    def config(self) -> GossipConfig:
        """What the node goes by, without what its dialect does not have.

        It may be replaced while the node runs, so parts read it at each use; but what they are
        made with (durations of statuses, join rounds, piggybacking) stays.
        """
        return self._config

    @config.setter
    def config(self, config: GossipConfig) -> None:
        self._config = config if self.dialect.extends else config.plain()
        self.health.score_max = _score_max(self._config)
        self.judge_health(0, "configured")

    @property
    def reachable_count(self) -> int:
        """How many members may answer somebody, ourselves included."""
        return self.members.pingable_count + 1

    def is_believable(self, row: Member, now: int) -> bool:
        """Whether the incarnation of *row* can be the time of a clock."""
        return row.incarnation <= self.clock.wall_ms(now) + INCARNATION_AHEAD_MS_MAX

    def judge_health(self, by: int, reason: str) -> None:
        """Count *by* signs that we are slow; -1 is a success."""
        if self.health.move(by):
            self.emit(HealthChanged(self.health.score, reason))

    def enter(self, now: int) -> int:
        """The driver's *now* as an instant of ours: time in which we were not run is left out.

        So what a paused process waited for goes on where it stopped: what has come meanwhile is
        taken in before any of it is given up, and nobody is accused for what we have slept over.
        """
        clock = self.clock
        clock.now = now = clock.instant(now)
        due_at, config = self.timers.next_at, self._config
        if due_at is None:
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
        """Count it as an interruption that the machine was suspended until the driver's *now*.

        No timer is late for it: the driver's clock stood still, too.
        """
        self.clock.suspended_us += lasted_us
        now, due_at = self.clock.instant(now), self.timers.next_at
        late_us = 0 if due_at is None else max(0, now - due_at)  # not run before or after that
        self._count_interruption(lasted_us + late_us, now)

    def _count_interruption(self, lasted_us: int, now: int) -> None:
        if lasted_us >= microseconds(self._config.suspect_s):  # in less no member is given up
            self.clock.since_ms = self.clock.wall_ms(now)

    def emit(self, effect: Effect) -> None:
        """Have *effect* carried out, after those that came before."""
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """All effects since the last time, in their order."""
        effects, self._effects = self._effects, []
        return effects


def _score_max(config: GossipConfig) -> int:
    return config.local_health_max if config.local_health else 0
