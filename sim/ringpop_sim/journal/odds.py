"""How much goes wrong in a schedule of journals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringpop_sim.schedules.clients import PAUSE
from ringpop_sim.schedules.odds import Odds

if TYPE_CHECKING:
    import random
    from typing import Self


@dataclass(slots=True)
class JournalOdds(Odds):
    """See `Odds`.

    Attributes:
        lag: of owners that learn nothing from the store for a while.
        freeze: of processes that handle no event for a while.
        trim, sweep: of nodes that trim their own journal, or any.
        pause: the most time between two writes of a client.
        recall: of a driver that answers a request with what it found in that slot before.
    """

    lag: float = 0.0
    freeze: float = 0.0
    trim: float = 0.0
    sweep: float = 0.0
    recall: float = 0.0
    pause: int = PAUSE

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """See `Odds`."""
        odds = super(JournalOdds, cls).drawn(rng)
        odds.stall *= 0.4  # many steps lead to an owner
        odds.lag = 0.0 if rng.random() < 0.3 else rng.random() * 0.03  # noqa: PLR2004
        odds.freeze = 0.0 if rng.random() < 0.4 else rng.random() * 0.03  # noqa: PLR2004
        odds.trim = rng.random() * 0.3
        odds.sweep = rng.random() * 0.2
        odds.recall = 0.0 if rng.random() < 0.3 else rng.random()  # noqa: PLR2004
        odds.pause = PAUSE if rng.random() < 0.6 else 100  # noqa: PLR2004
        return odds
