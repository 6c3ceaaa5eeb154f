"""Scores of flap damping: each change in another member's life adds points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.member import DAMPING_MAX, Member, Status
from ringpop_py.member.swim.timers import SECOND_US, microseconds
from ringpop_py.member.swim.waits import Due, ScoreDue

if TYPE_CHECKING:
    from ringpop_py.member.swim.core import Core

LOOK_AGAIN_US: Final = SECOND_US
"""The least time between two checks of a score, however close it is to the limit."""


class Scores:
    """The points of each member, which are halved every `damp_half_life_s`.

    Decay is computed when a score is read. A timer for each member fires when its score has fallen
    far enough to release or forget it.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._points_at: dict[str, tuple[int, int]] = {}
        self._looks: dict[str, int] = {}
        # The members that others have to be asked about, in the order in which they were found.
        self.flappers: dict[str, None] = {}
        self._next_vote = 0

    def row_changed(self, before: Member | None, after: Member | None, now: int) -> None:
        """Update the score of another member after a change of its row."""
        row = after or before
        assert row is not None
        if after is None or not self._core.config.damping:
            self.forget(row.name)
            return
        if is_flap(before, after):
            self._penalise(after, now)
        if after.damping != (before.damping if before else 0):
            self._judged(after, now)

    def _penalise(self, row: Member, now: int) -> None:
        config, name = self._core.config, row.name
        score = self.of(name, now) + config.damp_penalty
        self.put(name, score, now)
        if self._looks.get(name, 0) not in self._core.timers:
            self.plan_look(row, now)
        judgeable = not row.damped and row.damping < DAMPING_MAX
        if score >= config.damp_suppress and judgeable and name not in self.flappers:
            self.flappers[name] = None
            if self._next_vote not in self._core.timers:
                self.plan_vote(now)

    def _judged(self, row: Member, now: int) -> None:
        # All nodes adjust their scores to the verdict, so that these stay close.
        config, score = self._core.config, self.of(row.name, now)
        limit = max(score, config.damp_suppress) if row.damped else min(score, config.damp_reuse)
        self.put(row.name, limit, now)
        self.flappers.pop(row.name, None)
        self.plan_look(row, now)

    def plan_look(self, row: Member, now: int) -> None:
        """Set the timer for when the score of *row* is low enough to release or forget it."""
        self._cancel_look(row.name)
        if row.name in self:
            # A score below 0.5 is rounded to 0, and then it is forgotten.
            points = self._core.config.damp_reuse if row.damped else 0.5
            at = max(self.falls_to(row.name, points, now), now + LOOK_AGAIN_US)
            self._looks[row.name] = self._core.timers.set(at, ScoreDue(row.name))

    def plan_vote(self, at: int) -> None:
        """Plan the next vote on the flappers for *at*."""
        self._next_vote = self._core.timers.set(at, Due.VOTE)

    def _cancel_look(self, name: str) -> None:
        self._core.timers.cancel(self._looks.pop(name, 0))

    def drop_flappers(self, now: int) -> None:
        """Drop the flappers whose score is low enough to release them."""
        reuse = self._core.config.damp_reuse
        for name in list(self.flappers):
            if self.of(name, now) <= reuse:
                del self.flappers[name]

    def of(self, name: str, now: int) -> int:
        """Return the score of *name*; 0 if it has not changed for a long time."""
        points, at = self._points_at.get(name, (0, now))
        return round(points * math.exp2((at - now) / self._half_life_us))

    def put(self, name: str, points: int, now: int) -> None:
        """Set the score of *name* to *points*, but at most `damp_score_max`."""
        points = min(points, self._core.config.damp_score_max)
        if points > 0:
            self._points_at[name] = points, now
        else:
            self._points_at.pop(name, None)

    def forget(self, name: str) -> None:
        """Forget the score of *name*."""
        self._points_at.pop(name, None)
        self.flappers.pop(name, None)
        self._cancel_look(name)

    def falls_to(self, name: str, points: float, now: int) -> int:
        """Return the instant, *now* or later, at which the score of *name* is at *points*."""
        score, at = self._points_at.get(name, (0, now))
        if score <= points:
            return now
        return max(now, at + math.ceil(math.log2(score / points) * self._half_life_us))

    @property
    def _half_life_us(self) -> int:
        return microseconds(self._core.config.damp_half_life_s)

    def __contains__(self, name: str) -> bool:
        return name in self._points_at

    def __len__(self) -> int:
        return len(self._points_at)


def is_flap(before: Member | None, after: Member) -> bool:
    """Return whether this change of a member's row costs it a penalty.

    Arriving is free, and so is what is planned: leaving, coming back afterwards, new labels.
    """
    if before is None or max(before.status, after.status) > Status.FAULTY:
        return False
    if (before.status, before.incarnation) == (after.status, after.incarnation):
        return False
    stays_alive = before.status is after.status is Status.ALIVE
    return not (stays_alive and before.labels != after.labels)
