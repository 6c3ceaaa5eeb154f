"""Timers of statuses that expire, and how long a suspicion lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.waits import StatusDue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import GossipConfig
    from ringpop_py.member.swim.member import Member, Status
    from ringpop_py.member.swim.timers import Timers


class Span(NamedTuple):
    """How long a suspicion may last: *max_us* if it has one accuser.

    Attributes:
        confirmations_max: with this many further accusers it lasts *min_us*.
    """

    min_us: int
    max_us: int
    confirmations_max: int = 0

    def lasts_us(self, confirmation_count: int) -> int:
        """Return how long it lasts with *confirmation_count* accusers after the first one.

        As in Lifeguard, section IV-B, each confirmation shortens it less than the one before.
        """
        if self.confirmations_max <= 0:
            return self.min_us
        share = math.log(confirmation_count + 1) / math.log(self.confirmations_max + 1)
        return max(self.min_us, round(self.max_us - (self.max_us - self.min_us) * share))


def span_for(config: GossipConfig, member_count: int) -> Span:
    """Return the span of a suspicion among *member_count* reachable members, ourselves included.

    The shortest time grows with the cluster, as does the time in which a refutation spreads. We and
    the suspect cannot confirm. If fewer than *confirmations_max* others are left, all of them have
    to confirm; memberlist then uses the shortest time immediately.
    """
    min_us = microseconds(config.suspect_s)
    if not config.confirmations:
        return Span(min_us, min_us)
    min_us = round(min_us * max(1.0, math.log10(member_count)))
    max_us = round(min_us * max(1.0, config.suspect_factor))
    return Span(min_us, max_us, min(config.confirmations_max, member_count - 2))


@dataclass(slots=True)
class Suspicion:
    """The accusers of a member, and until when it may refute.

    Attributes:
        accusers: the independent ones, in the order in which their accusations arrived.
        proven_until: when it ends because of our own evidence, if there is any.
        witnessed: whether our own probe failed, and helpers could not reach the member either.
    """

    began_at: int
    span: Span
    accusers: list[str] = field(default_factory=list)
    proven_until: int | None = None
    witnessed: bool = False

    @property
    def ends_at(self) -> int:
        """The instant at which it ends, if there are no further accusers."""
        ends_at = self.began_at + self.span.lasts_us(max(0, len(self.accusers) - 1))
        return ends_at if self.proven_until is None else min(ends_at, self.proven_until)

    def accuse(self, accuser: str) -> bool:
        """Add *accuser*. Return whether it is new and can still shorten the suspicion."""
        if accuser in self.accusers or len(self.accusers) > self.span.confirmations_max:
            return False
        self.accusers.append(accuser)
        return True

    def prove(self, until: int) -> bool:
        """End it at *until* because of evidence. Return whether that is sooner than before."""
        sooner = until < self.ends_at
        if sooner:
            self.proven_until = until
        return sooner


class _Entry(NamedTuple):
    member: Member
    suspicion: Suspicion | None
    timer: int


class StatusTimers:
    """One timer for each member whose status expires.

    A timer belongs to (status, incarnation, address): the same again changes nothing, but a
    suspicion of a higher incarnation starts a new one. An entry is removed when its timer fires;
    Ringpop keeps it, and then never times the same status again.

    Args:
        after_us: how long each status lasts. A status that is missing does not expire, apart from
            suspect, which a `Suspicion` times.
    """

    def __init__(self, timers: Timers, after_us: Mapping[Status, int]) -> None:
        self._timers = timers
        self._after_us = after_us
        self._entries: dict[str, _Entry] = {}

    def watch(
        self,
        member: Member,
        now: int,
        suspicion: Suspicion | None = None,
        *,
        most_us: int | None = None,
    ) -> None:
        """Set, keep or cancel the timer of *member*, whose row was replaced at *now*.

        Args:
            most_us: how long a status other than suspect may last.
        """
        entry = self._entries.get(member.name)
        if entry and version_of(entry.member) == version_of(member):
            return  # its time is running already; repeated news must not prolong it
        self.forget(member.name)
        after_us = self._after_us.get(member.status)
        if suspicion is not None:
            self._set(member, suspicion, suspicion.ends_at)
        elif after_us is not None:
            self._set(member, None, now + min(after_us, most_us or after_us))

    def suspicion_of(self, name: str) -> Suspicion | None:
        """Return the suspicion of *name*, if it is suspect. After changing it, call `hasten`."""
        entry = self._entries.get(name)
        return entry.suspicion if entry else None

    def hasten(self, name: str, now: int) -> int:
        """Set the timer of *name* to the end of its suspicion. Return how long that still lasts."""
        entry = self._entries[name]
        assert entry.suspicion is not None
        self._timers.cancel(entry.timer)
        at = max(now, entry.suspicion.ends_at)  # a deadline in the past would look like a stall
        self._set(entry.member, entry.suspicion, at)
        return at - now

    def forget(self, name: str) -> None:
        """Cancel the timer of *name*, if there is one."""
        entry = self._entries.pop(name, None)
        if entry:
            self._timers.cancel(entry.timer)

    def _set(self, member: Member, suspicion: Suspicion | None, at: int) -> None:
        timer = self._timers.set(at, StatusDue(member.name))
        self._entries[member.name] = _Entry(member, suspicion, timer)

    def expire(self, name: str) -> tuple[Member, Suspicion | None]:
        """Remove *name*, whose timer fired. Return its row as it was watched, and its suspicion."""
        entry = self._entries.pop(name)
        return entry.member, entry.suspicion

    def __len__(self) -> int:
        return len(self._entries)


def version_of(member: Member) -> tuple[Status, int, Address]:
    """Return what a timer belongs to; a claim with another version is about something else."""
    return member.status, member.incarnation, member.address
