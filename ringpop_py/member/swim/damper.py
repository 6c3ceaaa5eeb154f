"""Flap damping: members that change too often are left out of the ring for a while.

Each change in another member's life adds to its score, which is halved at intervals (`Scores`). At
`damp_suppress` the member is a flapper, and others are asked for their scores of it (`Vote`). If
they agree, the verdict is written to the member's row (`Member.damping`), and every node leaves
the member out of its ring (`MemberList.in_ring`). A node that receives the verdict sets its own
score to `damp_suppress` at least. The first node with a score at `damp_reuse` again releases it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import DampVoted
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import DAMP_NAMES_MAX, DampAck, DampReq
from ringpop_py.member.swim.timers import SECOND_US, microseconds
from ringpop_py.member.swim.waits import VoteCall

if TYPE_CHECKING:
    from ringpop_py.member.swim.calls import Calls, Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.rows import Rows
    from ringpop_py.member.swim.scores import Scores


@dataclass(slots=True)
class Vote:
    """A vote on *names*: other members send their scores, and the first *quorum* answers decide.

    Attributes:
        open_count: how many voters may still answer.
        answers: each voter that answered, with its scores by name.
    """

    names: tuple[str, ...]
    quorum: int
    open_count: int
    answers: list[tuple[str, dict[str, int]]] = field(default_factory=list)

    def done(self, voter: str, scores: dict[str, int] | None) -> bool:
        """Count the answer of *voter*; None if it failed. Return whether that settles the vote."""
        if self.settled:
            return False
        self.open_count -= 1
        if scores is not None:
            self.answers.append((voter, scores))
        return self.settled

    @property
    def settled(self) -> bool:
        """Whether the quorum has answered or can no longer be reached."""
        return len(self.answers) >= self.quorum or not self.attainable

    @property
    def attainable(self) -> bool:
        """Whether the quorum has answered or can still be reached."""
        return 0 < self.quorum <= len(self.answers) + self.open_count

    def scores_of(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return each voter with its score of *name*: 0 if it knows no such member."""
        return tuple((voter, scores.get(name, 0)) for voter, scores in self.answers)


@dataclass(frozen=True, slots=True)
class DampState:
    """How often one member changes, for an operator.

    Attributes:
        score: our score of it; 0 for ourselves.
        flapper: whether we ask others about it.
        reuse_in_s: in how many seconds our score will be low enough to release it; None if it is
            not damped, or has no score here.
    """

    member: Member
    score: int
    flapper: bool
    reuse_in_s: float | None


class Damper:
    """Acts on the scores of other members: asks for votes, and passes verdicts.

    Attributes:
        vote: the open vote of ours, if there is one.
    """

    def __init__(self, core: Core, scores: Scores, rows: Rows, calls: Calls) -> None:
        self._core = core
        self._scores = scores
        self._rows = rows
        self._calls = calls
        self.vote: Vote | None = None
        self._vote_count = 0

    def clear(self, name: str, now: int) -> None:
        """Release *name*, and forget our score of it.

        As after every release, the others lower their scores to `damp_reuse` at most.
        """
        row = self._core.members.get(name)
        if row is not None and row.damped:
            self._pass_verdict(row, now)
        self._scores.forget(name)

    def states(self, now: int) -> list[DampState]:
        """Return the state of each member that has a score or was ever judged, by name."""
        members = self._core.members
        return [
            self.state(row, now)
            for row in sorted(members, key=lambda member: member.name)
            if row.damping or row.name in self._scores
        ]

    def state(self, row: Member, now: int) -> DampState:
        """Return the state of the member of *row*."""
        reuse_in_s = None
        if row.damped and row.name in self._scores:
            at = self._scores.falls_to(row.name, self._core.config.damp_reuse, now)
            reuse_in_s = (at - now) / SECOND_US
        score = self._scores.of(row.name, now)
        return DampState(row, score, row.name in self._scores.flappers, reuse_in_s)

    def look(self, name: str, now: int) -> None:
        """Release *name*, forget its score, or look again later: its score has fallen."""
        config, score = self._core.config, self._scores.of(name, now)
        row = self._core.members.get(name)
        assert row is not None
        if score == 0 or not config.damping:
            self._scores.forget(name)
        elif row.damped and score <= config.damp_reuse:
            self._pass_verdict(row, now)
        else:
            self._scores.plan_look(row, now)

    def _pass_verdict(self, row: Member, now: int) -> None:
        # An odd counter damps the member, an even one releases it; nodes that agree write the same.
        self._rows.declare(replace(row, damping=row.damping + 1), now, via="damping")

    # Votes.

    def begin_vote(self, now: int) -> None:
        """Ask others about our flappers, and again after `damp_vote_period_s` if any are left."""
        core, config = self._core, self._core.config
        self._scores.drop_flappers(now)
        if not self._scores.flappers or core.stopped:
            return
        self._scores.plan_vote(now + microseconds(config.damp_vote_period_s))
        names = self._accused(now)
        if self.vote is not None or not names or self._room <= 0:
            return
        voters = self._voters()
        quorum = min(config.damp_quorum, len(voters))
        self._vote_count += 1
        vote = self.vote = Vote(names, quorum, len(voters))
        if not voters:
            self._end_vote(vote, now)
        for voter in voters:
            self._ask(vote, voter, now)

    def _accused(self, now: int) -> tuple[str, ...]:
        # The worst ones come first. Members that left own no keys anyway.
        members, scores = self._core.members, self._scores
        here = [
            name
            for name in scores.flappers
            if (row := members.get(name)) and row.status <= Status.FAULTY
        ]
        worst = sorted(here, key=lambda name: (-scores.of(name, now), name))
        return tuple(worst[:DAMP_NAMES_MAX])

    def _voters(self) -> list[Member]:
        members = self._core.members
        sound = [
            member
            for member in members
            if members.is_pingable(member)
            and member.name not in self._scores.flappers
            and not member.damped
        ]
        return self._core.rng.sample(sound, min(self._core.config.damp_vote_size, len(sound)))

    @property
    def _room(self) -> int:
        """The number of members that may still be damped."""
        members = self._core.members
        return members.damped_max - len(members.damped)

    def _ask(self, vote: Vote, voter: Member, now: int) -> None:
        core = self._core
        request = DampReq(core.cluster, *core.sender, vote.names)
        timeout_us = microseconds(core.config.damp_vote_timeout_s)
        then = VoteCall(self._vote_count, voter.name)
        self._calls.open(voter.address, request, timeout_us, then, now)

    def voted(self, call: VoteCall, outcome: Outcome, now: int) -> None:
        """Count the answer of a voter, or that it failed; end the vote if that settles it."""
        vote = self.vote
        if vote is None or call.vote != self._vote_count:
            return
        scores = dict(outcome.scores) if isinstance(outcome, DampAck) else None
        if vote.done(call.voter, scores):
            self._end_vote(vote, now)

    def _end_vote(self, vote: Vote, now: int) -> None:
        self.vote = None
        for name in vote.names:
            # A name that is no longer there was judged by another node meanwhile, or evicted.
            if name in self._scores.flappers:
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
        if vote.quorum == 0:
            return "nobody to ask"
        if not vote.attainable:
            return f"{len(answers)} of {vote.quorum} answered"
        suppress = self._core.config.damp_suppress
        steady = [voter for voter, score in answers if score < suppress]
        if steady:
            return f"not to {', '.join(steady)}"
        return "" if self._room > 0 else "no more members may be left out"
