"""Rows that only their own process can vouch for: they raise an incarnation far, or move a member.

Incarnations are milliseconds of some clock. One that is far ahead of our clock comes from a wrong
clock, or is invented. A row with another address diverts a member's messages to another process.
So we ask at the row's address, and believe the row only if a process answers there with that name
and incarnation. Members' clocks therefore need not agree, and a rumour alone neither raises an
incarnation beyond reach nor moves a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.member.swim.member import overrides
from ringpop_py.member.swim.messages import MemberChange, NameAck, NameReq
from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.waits import VouchCall

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.calls import Calls, Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.effects import Via
    from ringpop_py.member.swim.member import Member

ANSWERS: Final[frozenset[Via]] = frozenset({"ack", "full-sync"})
"""Ways by which the word of a process that we called arrives."""
AHEAD_MS_MAX: Final = 10 * 60 * 1000
"""How far ahead of our clock an incarnation may be to be believed as it comes."""
ASKED_MAX: Final = 64
"""How many processes at addresses that no member has are asked at a time. The rows of further
ones are dropped; gossip brings them again."""


class Unvouched(NamedTuple):
    """A change that waits for the word of its own process."""

    change: MemberChange
    via: Via
    told_by: str


class Vouching:
    """Asks the processes of rows that need their word: of a name, one call to each address."""

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self._open: dict[tuple[str, Address], Unvouched] = {}

    def __len__(self) -> int:
        return len(self._open)

    def horizon_ms(self, now: int) -> int:
        """Return the highest incarnation that is believed as it comes."""
        return self._core.clock.wall_ms(now) + AHEAD_MS_MAX

    def is_needed(self, unvouched: Unvouched, held: Member | None) -> bool:
        """Return whether *unvouched*, which is far ahead or moves *held*, needs its process's word.

        A node that joins takes the word of the hosts that it was given. Nobody could vouch for a
        member that is gone; if it is gone in our view, too, the row changes little. What a member
        has answered us about itself is its word.
        """
        core, row = self._core, unvouched.change.member
        itself = unvouched.told_by == row.name and unvouched.via in ANSWERS
        if itself and held is not None and row.address == held.address:
            return False
        if not core.dialect.extends or not core.ready or row.name == core.name:
            return False
        if held is None or not held.status.reachable:
            return row.status.reachable
        if row.address != held.address:
            return overrides(row, held)
        return row.incarnation > held.incarnation

    def ask(self, unvouched: Unvouched, now: int) -> None:
        """Ask the process that *unvouched* is about, unless it is being asked."""
        core, row = self._core, unvouched.change.member
        held = core.members.get(row.name)
        # A flood of rows at addresses of nobody must not keep members from being asked.
        known = held is not None and held.address == row.address
        full = not known and len(self._open) >= ASKED_MAX
        if core.stopped or full or (row.name, row.address) in self._open:
            return
        self._open[row.name, row.address] = unvouched
        request = NameReq(core.cluster, *core.sender, core.clock.since_ms, core.ready)
        timeout_us = microseconds(core.config.ping_timeout_s)
        self._calls.open(row.address, request, timeout_us, VouchCall(row.name, row.address), now)

    def answered(self, call: VouchCall, outcome: Outcome) -> tuple[Unvouched, bool]:
        """Return what was said, and whether the process that was called has vouched for it."""
        unvouched = self._open.pop((call.name, call.address))
        row = unvouched.change.member
        vouched = (
            isinstance(outcome, NameAck)
            and outcome.source == row.name
            and outcome.source_address == row.address
            and outcome.source_incarnation >= row.incarnation
        )
        return unvouched, vouched
