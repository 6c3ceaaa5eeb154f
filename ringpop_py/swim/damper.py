"""Flap damping: members that change too often are kept out of the ring for a while.

Each change in another member's life costs it a penalty, which is forgotten by halves (`Scores`).
Above `damp_suppress` the member is a flapper, and others are asked for their scores of it
(`Vote`). If they agree, the verdict goes into the member's row (`Member.damping`), and every node
leaves it out of its ring (`MemberList.in_ring`). Whoever learns of a verdict has the member at
`damp_suppress` from then on, and whoever first has it down at `damp_reuse` again releases it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringpop_py.swim.effects import DampVoted
from ringpop_py.swim.member import Member, Status
from ringpop_py.swim.messages import DAMP_NAMES_MAX, DampAck, DampReq
from ringpop_py.swim.timers import SECOND_US, microseconds
from ringpop_py.swim.waits import VoteCall
from ringpop_py.values.declared import replace

if TYPE_CHECKING:
    from ringpop_py.swim.calls import Calls, Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.rows import Rows
    from ringpop_py.swim.scores import Scores


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
    """Acts on scores: asks for votes, and passes verdicts; never on ourselves."""

    def __init__(self, core: Core, scores: Scores, rows: Rows, calls: Calls) -> None:
        self._core = core
        self._scores = scores
        self._rows = rows
        self._calls = calls
        self._vote: Vote | None = None
        self._vote_count = 0

    def clear(self, name: str, now: int) -> None:
        """Release *name*, and have nothing against it any more.

        The others have it at `damp_reuse` at most, as after every release.
        """
        row = self._core.members.get(name)
        if row is not None and row.damped:
            self._pass_verdict(row, now)
        self._scores.forget(name)

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
        return DampState(row, score, row.name in self._scores.flappers, reuse_in_s)

    def look(self, name: str, now: int) -> None:
        """The score of *name* has fallen: release it, forget it, or look again later."""
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
        """Damp *row*, or release it if it is damped. Whoever does the same says the same."""
        self._rows.declare(replace(row, damping=row.damping + 1), now, via="damping")

    # Votes.

    def begin_vote(self, now: int) -> None:
        """Ask others about our flappers, and again after `damp_vote_period_s`, if any are left."""
        core, config = self._core, self._core.config
        self._scores.drop_flappers(now)
        if not self._scores.flappers or core.stopped:
            return
        self._scores.plan_vote(now + microseconds(config.damp_vote_period_s))
        names = self._accused(now)
        if self._vote is not None or not names or self._room <= 0:
            return
        voters = self._voters()
        quorum = min(config.damp_quorum, len(voters))
        self._vote_count += 1
        vote = self._vote = Vote(names, quorum, len(voters))
        if not voters:
            self._end_vote(vote, now)
        for voter in voters:
            self._ask(vote, voter, now)

    def _accused(self, now: int) -> tuple[str, ...]:
        """The worst of our flappers; those that left are gone from the ring anyway."""
        members, scores = self._core.members, self._scores
        here = [
            name
            for name in scores.flappers
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
            and member.name not in self._scores.flappers
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
        request = DampReq(
            core.cluster, core.name, *core.address, core.local.incarnation, vote.names
        )
        timeout_us = microseconds(core.config.damp_vote_timeout_s)
        then = VoteCall(self._vote_count, voter.name)
        self._calls.open(voter.address, request, timeout_us, then, now)

    def voted(self, call: VoteCall, outcome: Outcome, now: int) -> None:
        """A voter has answered, or will not."""
        vote = self._vote
        if vote is None or call.vote != self._vote_count:
            return
        scores = dict(outcome.scores) if isinstance(outcome, DampAck) else None
        if vote.done(call.voter, scores):
            self._end_vote(vote, now)

    def _end_vote(self, vote: Vote, now: int) -> None:
        self._vote = None
        for name in vote.names:
            # Otherwise there was a verdict meanwhile, or it was evicted.
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
