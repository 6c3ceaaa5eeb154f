"""What all parts of a node share: who we are, whom we know, and what we have to say so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringpop_py.membership.memberlist import MemberList
from ringpop_py.membership.timers import Timers

if TYPE_CHECKING:
    import random

    from ringpop_py.config import GossipConfig
    from ringpop_py.dialect import Dialect
    from ringpop_py.membership.effects import Effect
    from ringpop_py.membership.member import Member


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
    refutations: int = 0
    refusals: int = 0
    changes_applied: int = 0
    members_over_limit: int = 0
    incarnations_refused: int = 0
    dampings_refused: int = 0
    probes_inconclusive: int = 0
    periods_skipped: int = 0


class Core:
    """Handed to each part of a node. It decides nothing, and knows none of the parts.

    Attributes:
        ready: whether the first join is done; set by `Joiner` alone.
        evicting: whether we are on our way out; set by `Node` alone, and for good.
        name_lost: whether our name is another's by now; set by `Rows` alone, and for good.
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
        self.ready = False
        self.evicting = False
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
    def config(self) -> GossipConfig:
        """What the node goes by, without what its dialect does not have.

        It may be replaced while the node runs, so parts read it at each use; but what they are
        made with (durations of statuses, join rounds, piggybacking) stays.
        """
        return self._config

    @config.setter
    def config(self, config: GossipConfig) -> None:
        self._config = config if self.dialect.extends else config.plain()

    def emit(self, effect: Effect) -> None:
        """Have *effect* carried out, after those that came before."""
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """All effects since the last time, in their order."""
        effects, self._effects = self._effects, []
        return effects
