"""One probe: ping, ping-req through k helpers, verdict (SWIM 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.effects import ProbeReport

if TYPE_CHECKING:
    from ringpop_py.swim.member import Member

EVIDENCE: Final = frozenset({"refused", "lost", "replaced"})
"""How a ping fails where the peer's machine itself says that the process is gone. A process that
is stopped, overloaded or cut off is silent; it never fails like this."""

WITNESSES_MIN: Final = 2
"""So many helpers must have found the same as we (or all, if there are fewer): a firewall that
refuses one of us must not cost a member its place."""

SILENT: Final = "silent"
UNREACHABLE: Final = "unreachable"


class Verdict(Enum):
    """How a probe ended, if it has."""

    OPEN = "open"
    REACHABLE = "reachable"
    SUSPECT = "suspect"
    INCONCLUSIVE = "inconclusive"


@dataclass(slots=True)
class Probe:
    """What one round has learnt about *target*, as known when it began.

    A helper that answers no (a nack) says something of the target; a helper that does not
    answer says something of the helper. So without any nack nothing is known, unless there was
    nobody to ask, or *silence_accuses*.

    Attributes:
        silence_accuses: whether it is a suspicion, too, that no helper answers, as in SWIM.
        weighs_evidence: whether refused and broken connections count for more than silence.
        strong: whether the verdict rests on such evidence.
    """

    target: Member
    started_at: int
    weighs_evidence: bool = False
    silence_accuses: bool = False
    ping_failure: str = ""
    strong: bool = False
    verdict: Verdict = Verdict.OPEN
    _said: dict[str, str] = field(default_factory=dict)
    _open_count: int = 0
    _nack_count: int = 0
    _witness_count: int = 0

    @property
    def wants_second_ping(self) -> bool:
        """Whether our own word alone decides, and one failure is not enough for it."""
        return self.verdict is Verdict.OPEN and bool(self.ping_failure) and not self._said

    @property
    def slow_count(self) -> int:
        """How many signs a failed probe gives that it is we who are slow.

        As memberlist counts (`probeNode` in its state.go): if helpers were asked, each whose nack
        did not come, and nothing for the target's silence, to which the nacks testify; without
        helpers one for the silence itself. A refusal comes at once; it is no sign of slowness.
        """
        if self._said:
            return sum(said == SILENT for said in self._said.values())
        return int(self.ping_failure == "timeout")

    def answered(self) -> None:
        """The target answered, to us or to a helper."""
        self.verdict = Verdict.REACHABLE

    def ping_failed(self, reason: str, helpers: list[str]) -> None:
        """The target did not answer us; *helpers* are being asked."""
        self.ping_failure = reason
        self._said = dict.fromkeys(helpers, "")
        self._open_count = len(helpers)
        if not helpers and not (self.weighs_evidence and reason in EVIDENCE):
            self.verdict = Verdict.SUSPECT

    def ping_failed_again(self, reason: str) -> None:
        """The second ping, which `wants_second_ping` asks for, has failed, too."""
        self.strong = reason in EVIDENCE
        self.verdict = Verdict.SUSPECT

    def nacked(self, helper: str, failure: str) -> None:
        """*helper* could not reach the target either: its ping failed with *failure*."""
        self._nack_count += 1
        self._witness_count += failure in EVIDENCE
        self._helper_done(helper, failure)

    def unheard(self, helper: str, *, silent: bool) -> None:
        """*helper* gave no answer: *silent*, or because it could not be reached itself."""
        self._helper_done(helper, SILENT if silent else UNREACHABLE)

    def _helper_done(self, helper: str, said: str) -> None:
        assert not self._said[helper]
        self._said[helper] = said
        self._open_count -= 1
        if self.verdict is not Verdict.OPEN:
            return
        if self._is_proven():
            self.strong = True
            self.verdict = Verdict.SUSPECT
        elif not self._open_count:
            known = self._nack_count or self.silence_accuses
            self.verdict = Verdict.SUSPECT if known else Verdict.INCONCLUSIVE

    def _is_proven(self) -> bool:
        """Whether enough have seen the same; then nobody waits for those that are silent."""
        own = self.weighs_evidence and self.ping_failure in EVIDENCE
        return own and self._witness_count >= min(WITNESSES_MIN, len(self._said))

    def report(self, now: int) -> ProbeReport:
        """What was found up to *now*."""
        helpers = tuple((name, said or SILENT) for name, said in self._said.items())
        return ProbeReport(self.ping_failure, helpers, self.strong, now - self.started_at)
