"""One probe: a ping, ping-reqs to helpers, and a verdict (SWIM, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from ringpop_py.member.swim.effects import ProbeReport

if TYPE_CHECKING:
    from ringpop_py.member.swim.member import Member

EVIDENCE: Final = frozenset({"refused", "lost", "replaced"})
"""The failures of a ping by which the peer's own machine says that the process is gone. A process
that is stopped, overloaded or cut off is silent instead."""

WITNESSES_MIN: Final = 2
"""How many helpers must find evidence, too (or all, if there are fewer): a firewall that refuses
only our connections must not make a living member faulty."""

SILENT: Final = "silent"
UNREACHABLE: Final = "unreachable"


class Verdict(Enum):
    """How a probe ended; OPEN: it has not."""

    OPEN = "open"
    REACHABLE = "reachable"
    SUSPECT = "suspect"
    INCONCLUSIVE = "inconclusive"


@dataclass(slots=True)
class Probe:
    """The findings about *target*, a row as it was when the probe began.

    A helper that answers no (a nack) says something about the target; a helper that does not answer
    says something about itself. So a probe without a nack is inconclusive, unless there was no
    helper to ask, or *silence_accuses*.

    Attributes:
        silence_accuses: whether the target is suspect even if no helper answers, as in SWIM.
        weighs_evidence: whether refused and broken connections count for more than silence.
        strong: whether the verdict rests on such evidence.
        ping_open: whether our ping is still under way although helpers were asked.
    """

    target: Member
    started_at: int
    weighs_evidence: bool = False
    silence_accuses: bool = False
    ping_failure: str = ""
    strong: bool = False
    ping_open: bool = False
    verdict: Verdict = Verdict.OPEN
    _said: dict[str, str] = field(default_factory=dict)
    _open_count: int = 0
    _nack_count: int = 0
    _witness_count: int = 0

    @property
    def wants_second_ping(self) -> bool:
        """Whether there is no helper to ask, and one failure of our own ping is not enough."""
        return self.verdict is Verdict.OPEN and bool(self.ping_failure) and not self._said

    @property
    def slow_count(self) -> int:
        """The number of signs in a failed probe that we ourselves are slow.

        As in memberlist (`probeNode` in its state.go), each silent helper is a sign, and without
        helpers the target's silence. With helpers it is not a sign: the nacks confirm it. A refusal
        arrives immediately, so it is not a sign of slowness either.
        """
        if self._said:
            return sum(said == SILENT for said in self._said.values())
        return int(self.ping_failure == "timeout")

    def answered(self) -> None:
        """Note that the target answered, to us or to a helper."""
        self.verdict = Verdict.REACHABLE

    def ping_failed(self, reason: str, helpers: list[str]) -> None:
        """Note that our ping failed, and that *helpers* are asked next."""
        self.ping_failure = reason
        self._said = dict.fromkeys(helpers, "")
        self._open_count = len(helpers)
        if not helpers and not (self.weighs_evidence and reason in EVIDENCE):
            self.verdict = Verdict.SUSPECT

    def ping_failed_late(self, reason: str) -> None:
        """Note that our ping failed, though helpers were asked before it had time to."""
        self.ping_open = False
        if reason in EVIDENCE:
            self.ping_failure = reason
        self._settle()

    def ping_failed_again(self, reason: str) -> None:
        """Note that the second ping (see `wants_second_ping`) failed, too."""
        self.strong = reason in EVIDENCE
        self.verdict = Verdict.SUSPECT

    def nacked(self, helper: str, failure: str) -> None:
        """Note that *helper* could not reach the target either: its ping failed with *failure*."""
        self._nack_count += 1
        self._witness_count += failure in EVIDENCE
        self._helper_done(helper, failure)

    def unheard(self, helper: str, *, silent: bool) -> None:
        """Note that *helper* did not answer: it was *silent*, or could not be reached itself."""
        self._helper_done(helper, SILENT if silent else UNREACHABLE)

    def _helper_done(self, helper: str, said: str) -> None:
        assert not self._said[helper]
        self._said[helper] = said
        self._open_count -= 1
        self._settle()

    def _settle(self) -> None:
        if self.verdict is not Verdict.OPEN or self.ping_open:
            return  # what the helper said still stands in the report
        own = self.weighs_evidence and self.ping_failure in EVIDENCE
        if own and self._witness_count >= min(WITNESSES_MIN, len(self._said)):
            # Proven: we need not wait for the other helpers.
            self.strong = True
            self.verdict = Verdict.SUSPECT
        elif not self._open_count:
            known = self._nack_count or self.silence_accuses
            self.verdict = Verdict.SUSPECT if known else Verdict.INCONCLUSIVE

    def report(self, now: int) -> ProbeReport:
        """Return what was found up to *now*."""
        helpers = tuple((name, said or SILENT) for name, said in self._said.items())
        lasted_us = now - self.started_at
        return ProbeReport(self.ping_failure, helpers, self.strong, lasted_us, self._nack_count)
