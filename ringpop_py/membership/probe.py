"""One probe: ping, ping-req through k helpers, verdict (SWIM 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringpop_py.membership.member import Member


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
    nobody to ask.
    """

    target: Member
    started_at: int
    ping_failure: str = ""
    helpers_open: set[str] = field(default_factory=set)
    nacks: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    verdict: Verdict = Verdict.OPEN

    def answered(self) -> None:
        """The target answered, to us or to a helper."""
        self.verdict = Verdict.REACHABLE

    def ping_failed(self, reason: str, helpers: list[str]) -> None:
        """The target did not answer us; *helpers* are being asked."""
        self.ping_failure = reason
        self.helpers_open.update(helpers)
        if not helpers:
            self.verdict = Verdict.SUSPECT

    def helper_done(self, helper: str, *, nacked: bool) -> None:
        """*helper* could not reach the target either, or could not be reached itself."""
        self.helpers_open.discard(helper)
        (self.nacks if nacked else self.silent).append(helper)
        if not self.helpers_open and self.verdict is Verdict.OPEN:
            self.verdict = Verdict.SUSPECT if self.nacks else Verdict.INCONCLUSIVE
