"""Flap damping: members that change too often are kept out of the ring for a while.

Each change in another member's life costs it a penalty, which is forgotten by halves (`Scores`).
Above `damp_suppress` the member is a flapper, and others are asked for their scores of it
(`Vote`). If they agree, the verdict goes into the member's row (`Member.damping`), and every node
leaves it out of its ring (`MemberList.in_ring`). Whoever learns of a verdict has the member at
`damp_suppress` from then on, and whoever first has it down at `damp_reuse` again releases it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.effects import DampVoted
from ringpop_py.swim.member import DAMPING_MAX, Member, Status
from ringpop_py.swim.messages import DAMP_NAMES_MAX, DampAck, DampReq
from ringpop_py.swim.timers import SECOND_US, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.swim.calls import Calls, Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.rows import Rows
    from ringpop_py.swim.timers import Timer

LOOK_AGAIN_US: Final = SECOND_US
"""The least time between two looks at a score, however close it is to where it has to fall."""


class Scores:
    """A number a member, halved every `damp_half_life_s`; decay is computed at use."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._points_at: dict[str, tuple[int, int]] = {}

    def of(self, name: str, now: int) -> int:
        """The score of *name*; 0 if it has not changed for long."""
        points, at = self._points_at.get(name, (0, now))
        return round(points * math.exp2((at - now) / self._half_life_us))

    def put(self, name: str, points: int, now: int) -> None:
        """Make *points* the score of *name*, as far as scores go."""
        points = min(points, self._core.config.damp_score_max)
        if points > 0:
            self._points_at[name] = points, now
        else:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Have nothing against *name* any more."""
        self._points_at.pop(name, None)

    def falls_to(self, name: str, points: float, now: int) -> int:
        """The instant from *now* on at which the score of *name* is at *points*."""
        score, at = self._points_at.get(name, (0, now))
        if score <= points:
            return now
        return max(now, at + math.ceil(math.log2(score / points) * self._half_life_us))

    @property
    def _half_life_us(self) -> int:
        return microseconds(self._core.config.damp_half_life_s)

    def __contains__(self, name: str) -> bool:
        return name in self._points_at

    def __iter__(self) -> Iterator[str]:
        """The members that have a score."""
        return iter(self._points_at)

    def __len__(self) -> int:
        return len(self._points_at)


def is_flap(before: Member | None, after: Member) -> bool:
    """Whether this change of a member's row is one that costs it a penalty.

    Arriving costs nothing, nor does what is planned: leaving, coming back after it, labels.
    """
    if before is None or max(before.status, after.status) > Status.FAULTY:
        return False
    if (before.status, before.incarnation) == (after.status, after.incarnation):
        return False
    stays_alive = before.status is after.status is Status.ALIVE
    return not (stays_alive and before.labels != after.labels)


@dataclass(slots=True)
class Vote:
    """Others are asked for their scores of *names*; the first *quorum* answers decide.

    Attributes:
        open_count: how many may still answer.
        answers: who answered, and its scores.
    """

    names: tuple[str, ...]
    quorum: int
    open_count: int
    answers: list[tuple[str, dict[str, int]]] = field(default_factory=list)

    def done(self, voter: str, scores: dict[str, int] | None) -> bool:
        """*voter* has answered, or will not. Returns: whether that settles the vote."""
        if self.settled:
            return False
        self.open_count -= 1
        if scores is not None:
            self.answers.append((voter, scores))
        return self.settled

    @property
    def settled(self) -> bool:
        """Whether there are answers enough, or cannot be any more."""
        return len(self.answers) >= self.quorum or not self.attainable

    @property
    def attainable(self) -> bool:
        """Whether there are answers enough, or still can be."""
        return 0 < self.quorum <= len(self.answers) + self.open_count

    def scores_of(self, name: str) -> tuple[tuple[str, int], ...]:
        """Who said what of *name*; who does not know it has nothing against it."""
        return tuple((voter, scores.get(name, 0)) for voter, scores in self.answers)


@dataclass(frozen=True, slots=True)
class DampState:
    """What there is to say of one member, for an operator.

    Attributes:
        score: ours of it; of ourselves we keep none.
        flapper: whether others are asked about it.
        reuse_in_s: in how long our score of it will be low enough to release it.
    """

    member: Member
    score: int
    flapper: bool
    reuse_in_s: float | None


class Damper:
    """Keeps the scores, asks for votes, and passes verdicts; never on ourselves."""

    def __init__(self, core: Core, rows: Rows, calls: Calls, scores: Scores) -> None:
        self._core = core
        self._rows = rows
        self._calls = calls
        self._scores = scores
        self._looks: dict[str, Timer] = {}
        self._flappers: dict[str, None] = {}
        self._vote: Vote | None = None
        self._next_vote: Timer | None = None

    def row_changed(self, before: Member | None, after: Member | None, now: int) -> None:
        """Take note of what became of another member's row."""
        row = after or before
        assert row is not None
        if after is None or not self._core.config.damping:
            self._forget(row.name)
            return
        if is_flap(before, after):
            self._penalise(after, now)
        if after.damping != (before.damping if before else 0):
            self._judged(after, now)

    def clear(self, name: str, now: int) -> None:
        """Release *name*, and have nothing against it any more.

        The others have it at `damp_reuse` at most, as after every release.
        """
        row = self._core.members.get(name)
        if row is not None and row.damped:
            self._pass_verdict(row, now)
        self._forget(name)

    def states(self, now: int) -> list[DampState]:
        """Who has a score, or was ever judged, by name."""
        members = self._core.members
        return [
            self.state(row, now)
            for row in sorted(members, key=lambda member: member.name)
            if row.damping or row.name in self._scores
        ]

    def state(self, row: Member, now: int) -> DampState:
        """What there is to say of *row*."""
        reuse_in_s = None
        if row.damped and row.name in self._scores:
            at = self._scores.falls_to(row.name, self._core.config.damp_reuse, now)
            reuse_in_s = (at - now) / SECOND_US
        score = self._scores.of(row.name, now)
        return DampState(row, score, row.name in self._flappers, reuse_in_s)

    # Scores.

    def _penalise(self, row: Member, now: int) -> None:
        config, name = self._core.config, row.name
        score = self._scores.of(name, now) + config.damp_penalty
        self._scores.put(name, score, now)
        if name not in self._looks:
            self._plan_look(row, now)
        judgeable = not row.damped and row.damping < DAMPING_MAX
        if score >= config.damp_suppress and judgeable and name not in self._flappers:
            self._flappers[name] = None
            if not self._next_vote:
                self._next_vote = self._core.timers.set(now, self._begin_vote)

    def _judged(self, row: Member, now: int) -> None:
        """There is a verdict on *row*: from here on all have about the same score of it."""
        config, score = self._core.config, self._scores.of(row.name, now)
        limit = max(score, config.damp_suppress) if row.damped else min(score, config.damp_reuse)
        self._scores.put(row.name, limit, now)
        self._flappers.pop(row.name, None)
        self._plan_look(row, now)

    def _plan_look(self, row: Member, now: int) -> None:
        """Look at the score of *row* when it will have fallen to where something follows."""
        self._cancel_look(row.name)
        if row.name in self._scores:
            points = self._core.config.damp_reuse if row.damped else 0.5
            at = max(self._scores.falls_to(row.name, points, now), now + LOOK_AGAIN_US)
            self._looks[row.name] = self._core.timers.set(at, self._look, row.name)

    def _look(self, name: str, now: int) -> None:
        del self._looks[name]
        config, score = self._core.config, self._scores.of(name, now)
        row = self._core.members.get(name)
        assert row is not None
        if score == 0 or not config.damping:
            self._forget(name)
        elif row.damped and score <= config.damp_reuse:
            self._pass_verdict(row, now)
        else:
            self._plan_look(row, now)

    def _pass_verdict(self, row: Member, now: int) -> None:
        """Damp *row*, or release it if it is damped. Whoever does the same says the same."""
        self._rows.declare(replace(row, damping=row.damping + 1), now, via="damping")

    def _cancel_look(self, name: str) -> None:
        timer = self._looks.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, name: str) -> None:
        self._scores.forget(name)
        self._flappers.pop(name, None)
        self._cancel_look(name)

    # Votes.

    def _begin_vote(self, now: int) -> None:
        """Ask others about our flappers, and again after `damp_vote_period_s`, if any are left."""
        core, config = self._core, self._core.config
        self._drop_flappers(now)
        if not self._flappers or core.stopped:
            return
        self._next_vote = core.timers.set(
            now + microseconds(config.damp_vote_period_s), self._begin_vote
        )
        names = self._accused(now)
        if self._vote is not None or not names or self._room <= 0:
            return
        voters = self._voters()
        quorum = min(config.damp_quorum, len(voters))
        vote = self._vote = Vote(names, quorum, len(voters))
        if not voters:
            self._end_vote(vote, now)
        for voter in voters:
            self._ask(vote, voter, now)

    def _drop_flappers(self, now: int) -> None:
        reuse = self._core.config.damp_reuse
        for name in list(self._flappers):
            if self._scores.of(name, now) <= reuse:
                del self._flappers[name]

    def _accused(self, now: int) -> tuple[str, ...]:
        """The worst of our flappers; those that left are gone from the ring anyway."""
        members, scores = self._core.members, self._scores
        here = [
            name
            for name in self._flappers
            if (row := members.get(name)) and row.status <= Status.FAULTY
        ]
        worst = sorted(here, key=lambda name: (-scores.of(name, now), name))
        return tuple(worst[:DAMP_NAMES_MAX])

    def _voters(self) -> list[Member]:
        """Members at random whose own state is not in doubt."""
        members = self._core.members
        sound = [
            member
            for member in members
            if members.is_pingable(member)
            and member.name not in self._flappers
            and not member.damped
        ]
        return self._core.rng.sample(sound, min(self._core.config.damp_vote_size, len(sound)))

    @property
    def _room(self) -> int:
        """How many more members may be damped now."""
        members = self._core.members
        return members.damped_max - members.damped_count

    def _ask(self, vote: Vote, voter: Member, now: int) -> None:
        core = self._core

        def done(outcome: Outcome, now: int) -> None:
            scores = dict(outcome.scores) if isinstance(outcome, DampAck) else None
            if vote.done(voter.name, scores):
                self._end_vote(vote, now)

        request = DampReq(core.cluster, core.name, core.address, core.local.incarnation, vote.names)
        timeout_us = microseconds(core.config.damp_vote_timeout_s)
        self._calls.open(voter.address, request, timeout_us, done, now)

    def _end_vote(self, vote: Vote, now: int) -> None:
        self._vote = None
        for name in vote.names:
            if name in self._flappers:  # else there was a verdict meanwhile, or it was evicted
                self._decide(vote, name, now)

    def _decide(self, vote: Vote, name: str, now: int) -> None:
        row = self._core.members.get(name)
        assert row is not None
        answers = vote.scores_of(name)
        reason = self._why_not(vote, answers)
        score = self._scores.of(name, now)
        self._core.emit(DampVoted(name, score, answers, not reason, reason))
        if not reason:
            self._pass_verdict(row, now)

    def _why_not(self, vote: Vote, answers: tuple[tuple[str, int], ...]) -> str:
        """Why a member is not damped after *answers*; empty if it is."""
        if vote.quorum == 0:
            return "nobody to ask"
        if not vote.attainable:
            return f"{len(answers)} of {vote.quorum} answered"
        suppress = self._core.config.damp_suppress
        steady = [voter for voter, score in answers if score < suppress]
        if steady:
            return f"not to {', '.join(steady)}"
        return "" if self._room > 0 else "no more members may be left out"
