"""The record of a schedule, and how a tick is claimed and ended (pure).

One record has all of it: what is due next, which attempt it is, and who runs it. What is skipped
goes with the claim, and what is due next with the end, each by one compare-and-set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.base.values.declared import Natural, Text, convert, replace
from ringpop_py.state.leaders.election import Candidate, Election
from ringpop_py.state.leaders.record import LeaderRecord

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value

KEYSPACE: Final = "~ticks"
"""The cluster's own keyspace in which each schedule has its record, under its name."""
ATTEMPT_BITS: Final = 20
ATTEMPTS_MAX: Final = (1 << ATTEMPT_BITS) - 1
TTL_S: Final = 10.0
"""Another process takes a tick over when its beat has stood still for so many seconds."""
LOOK_S: Final = 60.0
"""How often a process reads the record of which nothing is due: clocks are set, plans change."""
PAUSE_S_MAX: Final = 60.0
"""The longest pause before the next attempt; the first takes a second, each further one doubles."""


class Plan(Protocol):
    """When a schedule is due."""

    @property
    def text(self) -> str:
        """What it was given as."""

    @property
    def tz(self) -> str:
        """The time zone by which it goes."""

    def after(self, instant: int) -> int:
        """Return the first instant after *instant* that is due, in seconds of Unix time."""


class TickRecord(LeaderRecord, frozen=True, kw_only=True):
    """A schedule: its holder runs the tick *due*; without a holder it is not begun, or has failed.

    The term is that of the last claim: the tick's number, then its attempt in `ATTEMPT_BITS`.

    Attributes:
        due: the tick that runs, or runs next: an instant in seconds of Unix time.
        plan, tz: by what further ones follow, as text, and the time zone.
    """

    due: Natural
    plan: Text
    tz: Text

    @property
    def attempt(self) -> int:
        """How often the tick *due* was begun."""
        number, attempt = number_and_attempt(self.term)
        return attempt if number == self.due else 0

    def follows(self, plan: Plan) -> bool:
        """Return whether the record goes by *plan*."""
        return (self.plan, self.tz) == (plan.text, plan.tz)


def number_and_attempt(term: int) -> tuple[int, int]:
    """Return the tick's number and the attempt in *term*."""
    return term >> ATTEMPT_BITS, term & ATTEMPTS_MAX


def tick_record_in(value: Value, name: str) -> TickRecord | None:
    """Return the record of the schedule *name* in *value*. Raises BodyError if it is malformed."""
    return None if value is None else convert(TickRecord, value, f"the record of schedule {name!r}")


def defined(
    record: TickRecord | None, plan: Plan, wall_s: float, *, redefines: bool
) -> TickRecord | None:
    """Return *record* as it has to be before a tick is claimed by *plan*; None if it is so.

    Args:
        redefines: whether the plan in the record gives way to *plan*.
    """
    if record is None:
        due = plan.after(int(wall_s))
        return TickRecord(
            term=1,
            holder="",
            nonce="",
            is_member=True,
            ttl_s=TTL_S,
            since=wall_s,
            beat_at=wall_s,
            due=due,
            plan=plan.text,
            tz=plan.tz,
        )
    if record.holder or record.follows(plan) or not redefines:
        return None
    # What was due before is not lost, and no tick comes again that was begun.
    number, _ = number_and_attempt(record.term)
    due = record.due
    if due > wall_s and not record.attempt:
        due = plan.after(max(int(wall_s), number))
    return replace(record, due=due, plan=plan.text, tz=plan.tz)


def latest(plan: Plan, due: int, wall_s: float) -> int:
    """Return the last tick from *due* on that is due at *wall_s*."""
    low, high = due, max(int(wall_s), due)
    if plan.after(low) > high:
        return due
    while high - low > 1:  # `after` rises: the last instant with one that is due follows it
        middle = (low + high) // 2
        if plan.after(middle) <= wall_s:
            low = middle
        else:
            high = middle
    return plan.after(low)


def pause_s(attempt: int) -> float:
    """Return for how long a tick rests after *attempt*."""
    return min(float(1 << min(attempt - 1, ATTEMPT_BITS)), PAUSE_S_MAX)


class TickElection(Election):
    """One try to run the next tick of a schedule, whichever it is: claim, beats, end.

    Args:
        skips: whether of several ticks that are due only the last one runs.

    Attributes:
        is_over: whether the release ends the tick; otherwise there is another attempt.
        wall_offset_s: Unix time minus the clock of which instants are passed, as of the last read.
    """

    def __init__(self, me: Candidate, plan: Plan, *, skips: bool) -> None:
        super().__init__(me)
        self._plan = plan
        self._skips = skips
        self.is_over = False
        self.wall_offset_s = me.wall_offset_s

    def _taken(self, record: LeaderRecord | None, now: float) -> LeaderRecord | float:
        assert isinstance(record, TickRecord)
        assert self._still_at is not None
        me, wall_s, due, attempt = self._me, now + self.wall_offset_s, record.due, record.attempt
        if not record.follows(self._plan):
            return now + LOOK_S
        if attempt:
            # One that has ended its process may do so again, so it pauses, too.
            free_at = self._still_at + pause_s(attempt)
            if self._asked_at < free_at:
                return free_at
        elif due > wall_s:
            return now + min(due - wall_s, LOOK_S)
        elif self._skips:
            due = latest(self._plan, due, wall_s)
        return replace(
            record,
            term=(due << ATTEMPT_BITS) + attempt + 1,
            holder=me.holder,
            nonce=me.nonce,
            is_member=me.is_member,
            ttl_s=me.ttl_s,
            since=wall_s,
            beat_at=wall_s,
            beat=0,
            due=due,
        )

    def _freed(self, record: LeaderRecord) -> LeaderRecord:
        assert isinstance(record, TickRecord)
        released = record.released()
        return replace(released, due=self._plan.after(record.due)) if self.is_over else released
