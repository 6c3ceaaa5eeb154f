"""Rows with an incarnation far ahead of our clock: only their own process can vouch for them.

Incarnations are milliseconds of some clock. One that is far ahead comes from a wrong clock, or from
nobody. We ask at its address: a process that answers in that name, with that incarnation, has set
it; then we believe the row, whatever the clocks say. So members need no clocks that agree, and no
rumour alone raises an incarnation beyond reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.swim.messages import MemberChange, NameAck, NameReq
from ringpop_py.swim.timers import microseconds
from ringpop_py.swim.waits import FarClaimCall

if TYPE_CHECKING:
    from ringpop_py.swim.calls import Calls, Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.effects import Via
    from ringpop_py.swim.member import Member

AHEAD_MS_MAX: Final = 10 * 60 * 1000
"""How far ahead of our clock an incarnation is believed as it comes."""
ASKED_MAX: Final = 64
"""How many processes are asked at a time. The claims of others are dropped, and come again."""


class FarClaim(NamedTuple):
    """A change that waits for the word of its own process."""

    change: MemberChange
    via: Via
    told_by: str


class FarClaims:
    """Asks the processes of rows that are far ahead, one call for each name at a time."""

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self._open: dict[str, FarClaim] = {}

    def __len__(self) -> int:
        return len(self._open)

    def horizon_ms(self, now: int) -> int:
        """Return the highest incarnation that is believed as it comes."""
        return self._core.clock.wall_ms(now) + AHEAD_MS_MAX

    def concerns(self, row: Member) -> bool:
        """Return whether *row*, which is beyond the horizon, has to be vouched for.

        A node that joins takes the word of the hosts that it was given. A row that overrides
        nothing, about a member that is gone, changes nothing; and nobody could vouch for it.
        """
        core = self._core
        if not core.dialect.extends or not core.ready or row.name == core.name:
            return False
        held = core.members.get(row.name)
        return row.status.reachable if held is None else row.incarnation > held.incarnation

    def ask(self, claim: FarClaim, now: int) -> None:
        """Ask the process that *claim* is about, unless it is being asked."""
        core, row = self._core, claim.change.member
        if core.stopped or row.name in self._open or len(self._open) >= ASKED_MAX:
            return
        self._open[row.name] = claim
        request = NameReq(core.cluster, *core.sender, core.clock.since_ms, core.ready)
        timeout_us = microseconds(core.config.ping_timeout_s)
        self._calls.open(row.address, request, timeout_us, FarClaimCall(row.name), now)

    def answered(self, name: str, outcome: Outcome) -> tuple[FarClaim, bool]:
        """Return the claim about *name*, and whether its process has vouched for it."""
        claim = self._open.pop(name)
        vouched = (
            isinstance(outcome, NameAck)
            and outcome.source == name
            and outcome.source_incarnation >= claim.change.member.incarnation
        )
        return claim, vouched
