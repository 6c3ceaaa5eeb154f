"""One candidate for a name, from its first look at the record to its release (pure).

A driver asks `Election.next` what to do, does it, and says what came of it. One thing is under way
at a time. The safety lies in compare-and-set alone: a clock decides only when to try, and when a
holder has to stop believing that it leads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ringpop_py.state.leaders.record import LeaderRecord

BEATS: Final = 4
"""How many beats a holder sends within the time for which it may be silent."""
LOOKS: Final = 5
"""How often a candidate reads the record within that time."""
RETRIES: Final = 20
RETRY_S_MAX: Final = 0.5
"""The most seconds between tries after a failure; with a short ttl it is ttl / `RETRIES`."""
PATIENCE_S_MAX: Final = 5.0
"""The most seconds of one read or swap; it is half of a ttl that is short."""


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the record; then call `Election.seen` or `Election.failed`."""


@dataclass(frozen=True, slots=True)
class SwapRecord:
    """Put *after* in the place of *before*; then call `Election.swapped` or `Election.failed`."""

    before: LeaderRecord | None
    after: LeaderRecord


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing is due before *at*.

    Attributes:
        watches: whether to call `Election.look` when the holder in `Election.record` is gone.
    """

    at: float
    watches: bool = False


@dataclass(frozen=True, slots=True)
class TermGained:
    """The name is held; said once."""

    term: int


@dataclass(frozen=True, slots=True)
class TermLost:
    """The name is held no longer."""

    why: str


@dataclass(frozen=True, slots=True)
class ElectionOver:
    """The candidate has given up, or has released the name."""


Effect = ReadRecord | SwapRecord | WaitUntil | TermGained | TermLost | ElectionOver


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Who wants a name.

    Attributes:
        holder, is_member, nonce, ttl_s: see `LeaderRecord`; no other candidate has this nonce.
        above: the term will be above this one, which a refusal by a fence has named.
        wall_offset_s: Unix time minus the clock of which instants are passed to `Election`.
    """

    holder: str
    is_member: bool
    nonce: str
    ttl_s: float
    above: int = 0
    wall_offset_s: float = 0.0


class _Role(Enum):
    WAITING = auto()
    TAKING = auto()  # a swap for a new term was sent, and its outcome is open
    LEADING = auto()
    RELEASING = auto()
    LOST = auto()
    OVER = auto()


class Election:
    """One try to hold a name, once. Instants are those of a monotonic clock, in seconds.

    Attributes:
        record: the record as it was last seen.
        term: the term that was gained; 0 before.
        lost_at: when the holder has to stop, if no beat takes effect before.
    """

    def __init__(self, me: Candidate) -> None:
        self._me = me
        self._role = _Role.WAITING
        self.record: LeaderRecord | None = None
        self.term = 0
        self.lost_at = 0.0
        self._still_at: float | None = None  # since when the record is as it is
        self._looks = True  # the next thing to do is to read
        self._asked_at = 0.0
        self._due_at = 0.0
        self._watches = False  # for a failure, a change of members brings no earlier try
        self._open: SwapRecord | None = None  # to be sent, or of unknown outcome
        self._mine: LeaderRecord | None = None
        self._not_before = 0.0  # the open swap has taken effect later than this, if at all
        self._is_told = False
        self._why = ""

    @property
    def leads(self) -> bool:
        """Whether it holds the name, as far as it knows; see `lost_at`."""
        return self._role is _Role.LEADING

    @property
    def waits(self) -> bool:
        """Whether it waits for the name to become free."""
        return self._role is _Role.WAITING

    @property
    def _retry_s(self) -> float:
        return min(self._me.ttl_s / RETRIES, RETRY_S_MAX)

    def patience_s(self, now: float) -> float:
        """Return how long what `next` has returned may take."""
        most_s = min(self._me.ttl_s / 2, PATIENCE_S_MAX)
        return min(max(self.lost_at - now, 0.0), most_s) if self.leads else most_s

    def why_lost(self, now: float) -> str:
        """Return why the name is not held; empty if it is. Another thread may ask."""
        if not self.leads:
            return self._why or "it was released"
        return f"no beat took effect in {self._me.ttl_s:g} s" if now >= self.lost_at else ""

    def next(self, now: float) -> Effect:
        """Return what to do now."""
        if self.leads and (why := self.why_lost(now)):
            self._lose(why)
        if self._role is _Role.LOST:
            return TermLost(self._why)
        if self._role is _Role.OVER:
            return ElectionOver()
        if self.leads and not self._is_told:
            self._is_told = True
            return TermGained(self.term)
        if now < self._due_at:
            until = min(self._due_at, self.lost_at) if self.leads else self._due_at
            return WaitUntil(until, self._watches)
        self._watches = False
        if self._looks:
            self._asked_at = now
            return ReadRecord()
        if self._open is None:
            assert self._mine is not None
            after = self._mine.beaten(now + self._me.wall_offset_s)
            self._open, self._not_before = SwapRecord(self._mine, after), now
        return self._open

    def seen(self, record: LeaderRecord | None, now: float, *, is_gone: bool) -> None:
        """Note the record that was read.

        Args:
            is_gone: whether its holder is a member that is faulty, or not there.
        """
        if self._still_at is None or record != self.record:
            self.record, self._still_at = record, now
        swap = self._open
        if self._role is _Role.RELEASING:
            self._release(record, now)
        elif swap is None:
            self._consider(record, now, is_gone=is_gone)
        elif record == swap.after:
            self._settle(now)
        elif record == swap.before:
            # It may still take effect: the same one is sent again, as another would race with it.
            self._looks, self._not_before = False, self._asked_at
            self._due_at = now + self._retry_s
        elif self.leads:
            by = repr(record.holder) if record is not None and record.holder else "nobody"
            self._lose(f"the name is held by {by} now")
        else:
            self._role, self._open = _Role.WAITING, None
            self._consider(record, now, is_gone=is_gone)

    def swapped(self, now: float, *, is_done: bool) -> None:
        """Note whether the swap took effect. If it was refused, an earlier try may have."""
        if is_done:
            self._settle(now)
        else:
            self._looks, self._due_at = True, now

    def failed(self, now: float) -> None:
        """Note that the read failed, or that it is open whether the swap took effect."""
        self._looks, self._due_at = True, now + self._retry_s

    def look(self, now: float) -> None:
        """Read the record soon, because its holder may be gone."""
        if self._watches:
            self._due_at = min(self._due_at, now)

    def resign(self, now: float) -> None:
        """Release the name, or stop to wait for it. What is under way needs no answer."""
        if self._role is _Role.WAITING:
            self._role = _Role.OVER
        elif self._role in (_Role.TAKING, _Role.LEADING):
            self._role, self._due_at, self._looks = _Role.RELEASING, now, self._open is not None
            if self._open is None:
                assert self._mine is not None
                self._open = SwapRecord(self._mine, self._freed(self._mine))

    def _consider(self, record: LeaderRecord | None, now: float, *, is_gone: bool) -> None:
        assert self._still_at is not None
        me, still_at = self._me, self._still_at
        if record is not None and record.holder and record.nonce != me.nonce and not is_gone:
            free_at = still_at + record.ttl_s
            # By the instant of the question: of the time after it, the answer knows nothing.
            if self._asked_at < free_at:
                self._due_at = min(now + record.ttl_s / LOOKS, free_at)
                self._watches = True
                return
        after = self._taken(record, now)
        if isinstance(after, float):
            self._due_at = after
            return
        self._role, self._open = _Role.TAKING, SwapRecord(record, after)
        self._looks, self._not_before, self._due_at = False, self._asked_at, now

    def _taken(self, record: LeaderRecord | None, now: float) -> LeaderRecord | float:
        """Return *record*, which nobody holds, as it is once taken; or when to look again."""
        me, wall_s = self._me, now + self._me.wall_offset_s
        term = max(me.above, record.term if record is not None else 0) + 1
        return LeaderRecord(
            term, me.holder, me.nonce, me.is_member, me.ttl_s, since=wall_s, beat_at=wall_s
        )

    def _freed(self, record: LeaderRecord) -> LeaderRecord:
        """Return *record* as it is once released."""
        return record.released()

    def _settle(self, now: float) -> None:
        assert self._open is not None
        me, self._mine, self._open = self._me, self._open.after, None
        self.lost_at = self._not_before + me.ttl_s
        self._looks, self._due_at = False, self._not_before + me.ttl_s / BEATS
        if self._role is _Role.RELEASING:
            self._role = _Role.OVER
        elif self._role is _Role.TAKING and now < self.lost_at:
            self._role, self.term = _Role.LEADING, self._mine.term
        elif self._role is _Role.TAKING:  # too late to lead by it: others may have waited long
            self._role, self._looks, self._due_at = _Role.WAITING, True, now

    def _release(self, record: LeaderRecord | None, now: float) -> None:
        if record is None or record.nonce != self._me.nonce:
            self._role = _Role.OVER
        else:
            self._open, self._looks, self._due_at = (
                SwapRecord(record, self._freed(record)),
                False,
                now,
            )

    def _lose(self, why: str) -> None:
        self._why, self._role = why, _Role.LOST
