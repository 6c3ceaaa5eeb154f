"""How much goes wrong in a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import Self

PAUSE: Final = 6
"""The most time between two requests of a client, as a rule."""


@dataclass(slots=True)
class Odds:
    """The probabilities of events in a schedule; drawn for each, so that schedules differ.

    Attributes:
        lag: of owners that learn nothing from the store for a while.
        freeze: of processes that handle no event for a while.
        trim, sweep: of nodes that trim their own journal, or any.
        pause: the most time between two writes of a client.
        recall: of a driver that answers a request with what it found in that slot before.
    """

    lost: float
    late: float
    doubled: float
    no_room: float
    slow: float
    stall: float
    crash: float
    whim: float
    takes: float
    hears: float
    leaves: float
    checkpoint: float
    whole: float
    follow: float
    drop: float
    patience: int
    lag: float = 0.0
    freeze: float = 0.0
    trim: float = 0.0
    sweep: float = 0.0
    recall: float = 0.0
    pause: int = PAUSE

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Return odds drawn from *rng*."""
        # The odds are drawn in this order; in another, each seed would be another schedule.
        some = drawing(rng)
        odds = cls(
            lost=some(0.12),
            late=some(0.15),
            doubled=some(0.25),
            no_room=some(0.05),
            slow=some(0.3),
            stall=some(0.06),
            crash=some(0.03),
            whim=some(0.3),
            takes=some(0.95),
            hears=0.03 + rng.random() ** 2,
            leaves=0.05 + rng.random() * 0.5,
            checkpoint=some(0.8),
            whole=rng.random(),
            follow=some(0.5),
            drop=some(0.02),
            patience=20 + int(rng.random() * 60),
        )
        odds.stall *= 0.4  # many steps lead to an owner
        odds.lag = 0.0 if rng.random() < 0.3 else rng.random() * 0.03  # noqa: PLR2004
        odds.freeze = 0.0 if rng.random() < 0.4 else rng.random() * 0.03  # noqa: PLR2004
        odds.trim = rng.random() * 0.3
        odds.sweep = rng.random() * 0.2
        odds.recall = 0.0 if rng.random() < 0.3 else rng.random()  # noqa: PLR2004
        odds.pause = PAUSE if rng.random() < 0.6 else 100  # noqa: PLR2004
        return odds


def drawing(rng: random.Random) -> Callable[[float], float]:
    """Draw whether a schedule is hard; return the function that draws its probabilities."""
    hard = rng.random() < 0.35  # noqa: PLR2004 - a share

    def some(most: float) -> float:
        """Return 0 often, otherwise up to *most*; more of everything in a hard schedule."""
        if hard:
            return (0.4 + 0.6 * rng.random()) * most
        return 0.0 if rng.random() < 0.25 else rng.random() * most  # noqa: PLR2004 - a share

    return some
