"""L5: damping judges a flapping member by what nodes saw, and lets it back once it is calm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.timers import microseconds
from ringpop_sim.checks import Check
from ringpop_sim.checks.bounds import Bounds
from ringpop_sim.units import s, seconds

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member
    from ringpop_sim.world.process import Process

SCORE_SLACK: Final = 0.01
SLACK_US: Final = 10 * s


class DampingIsFair(Check):
    """L5: scores follow from the changes seen, verdicts from the scores, and members come back.

    - When a vote ends, the member's score is computed anew from all changes of its row at that
      node: a penalty for each, halved in each half-life.
    - A member is damped only if every node counted in the vote had its score above the limit.
    - If the row of a damped member does not change for the time that the highest score takes to
      fall to the limit of reuse, the member is no longer damped.

    `EqualListsEqualRings` checks that damped members are out of every ring, and how many may be.
    Exempt: rows at nodes that were disturbed in the meantime, and networks for which nothing is
    claimed (`Bounds.usual`).
    """

    invariants: ClassVar = ("L5",)

    def begin(self) -> None:
        world = self.world
        config = self._config = world.config
        self._on = world.dialect.extends and config.damping
        self._half_life_us = microseconds(config.damp_half_life_s)
        halvings = math.log2(max(2.0, config.damp_score_max / config.damp_reuse))
        bounds = Bounds(world.plan, world.config, world.dialect)
        self._usual = bounds.usual
        self._bound_us = round(halvings * self._half_life_us) + bounds.spread_us + SLACK_US
        self._scores: dict[Process, dict[str, tuple[float, int]]] = {}
        self._stalled_us: dict[Process, int] = {}
        self._flapped_at: dict[str, int] = {}

    def started(self, process: Process) -> None:
        self._scores.setdefault(process, {})  # a revived process goes on with its scores

    def fact(self, process: Process, effect: Effect) -> None:
        if not self._on:
            return
        if isinstance(effect, fx.StatusChanged):
            row = effect.after or effect.before
            assert row is not None
            if row.name != process.name:
                self._changed(process, effect.before, effect.after, row.name)
        elif isinstance(effect, fx.Stalled):
            self._stalled_us[process] = self._stalled_us.get(process, 0) + effect.for_us
        elif isinstance(effect, fx.DampVoted):
            self._voted(process, effect)

    def _clock(self, process: Process) -> int:
        # By the clock by which the node halves its scores: its own, without its stalls.
        return process.time(self.world.now) - self._stalled_us.get(process, 0)

    def _score(self, process: Process, name: str) -> float:
        points, at = self._scores[process].get(name, (0.0, 0))
        elapsed_us = self._clock(process) - at
        return points * math.exp2(-elapsed_us / self._half_life_us) if points else 0.0

    def _changed(
        self, process: Process, before: Member | None, after: Member | None, name: str
    ) -> None:
        scores, config = self._scores[process], self._config
        if after is None:
            scores.pop(name, None)
            return
        if _flaps(before, after):
            self._flapped_at[name] = self.world.now
            score = self._score(process, name) + config.damp_penalty
            scores[name] = min(score, config.damp_score_max), self._clock(process)
        if after.damping != (before.damping if before is not None else 0):
            # A verdict moves the score at every node that receives it, so that their scores stay
            # close.
            score, limit = self._score(process, name), config.damp_reuse
            score = max(score, config.damp_suppress) if after.damped else min(score, limit)
            scores[name] = score, self._clock(process)
            if after.damped and self._usual:
                due = process, name, after.damping
                self.world.push(self.world.now + self._bound_us, self._due, due)

    def _voted(self, process: Process, vote: fx.DampVoted) -> None:
        score, suppress = self._score(process, vote.name), self._config.damp_suppress
        # The node rounds its score to whole points at each penalty, and this check does not.
        if abs(score - vote.score) > 2 + SCORE_SLACK * score:
            detail = f"{vote.score}, but the changes that it saw amount to {score:.0f}"
            self.broke("L5", f"{process.name} scores {vote.name} at {detail}")
        if vote.damped and not (vote.answers and all(said >= suppress for _, said in vote.answers)):
            self.broke("L5", f"{process.name} damps {vote.name} by the scores {dict(vote.answers)}")

    def _due(self, verdict: tuple[Process, str, int]) -> None:
        process, name, damping = verdict
        now = self.world.now
        row = process.node.members.get(name)
        # Released, or judged again since.
        if row is None or row.damping != damping or not process.running:
            return
        again_at = self._flapped_at.get(name, 0) + self._bound_us
        # It has flapped again since, so its time of calm began anew.
        if again_at > now:
            self.world.push(again_at, self._due, verdict)
        elif self.world.left_alone_for_us(process) > self._bound_us:
            for_s = f"{seconds(self._bound_us):.0f} s"
            self.broke("L5", f"{process.name} still damps {name}, which is calm for {for_s}")


def _flaps(before: Member | None, after: Member) -> bool:
    """Return whether a change costs a penalty: planned ones, arrivals and labels do not."""
    # Written anew, because the product's own rule (`scores.is_flap`) is what is checked.
    if before is None or Status.LEAVE in (before.status, after.status):
        return False
    if Status.TOMBSTONE in (before.status, after.status):
        return False
    lives = before.status is Status.ALIVE and after.status is Status.ALIVE
    if lives and before.labels != after.labels:
        return False
    return (before.status, before.incarnation) != (after.status, after.incarnation)
