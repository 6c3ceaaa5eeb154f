"""Timers from suspect to faulty, to tombstone, to evicted: one a member at most."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.swim.timers import microseconds
from ringpop_py.swim.waits import StatusDue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.address import Address
    from ringpop_py.config.settings import GossipConfig
    from ringpop_py.swim.member import Member, Status
    from ringpop_py.swim.timers import Timers


class Span(NamedTuple):
    """How long a suspicion may last: the longest if one member accuses alone.

    Attributes:
        confirmations_max: with so many more it lasts the shortest time.
    """

    min_us: int
    max_us: int
    confirmations_max: int = 0

    def lasts_us(self, confirmation_count: int) -> int:
        """How long with that many besides the first accuser (Lifeguard, section IV-B).

        The first confirmations shorten it most: each further one tells less that is new.
        """
        if self.confirmations_max <= 0:
            return self.min_us
        share = math.log(confirmation_count + 1) / math.log(self.confirmations_max + 1)
        return max(self.min_us, round(self.max_us - (self.max_us - self.min_us) * share))


def span_for(config: GossipConfig, member_count: int) -> Span:
    """The span of a suspicion among *member_count* reachable members, ourselves included.

    The shortest time grows with the cluster, as the time does in which a refutation gets around.
    We and the suspect confirm nothing. Where that leaves fewer than *confirmations_max*, all of
    them have to agree; memberlist expects none then, and takes the shortest time at once.
    """
    min_us = microseconds(config.suspect_s)
    if not config.confirmations:
        return Span(min_us, min_us)
    min_us = round(min_us * max(1.0, math.log10(member_count)))
    max_us = round(min_us * max(1.0, config.suspect_factor))
    return Span(min_us, max_us, min(config.confirmations_max, member_count - 2))


@dataclass(slots=True)
class Suspicion:
    """Who accuses a member, and until when that gives it time to refute.

    Attributes:
        accusers: who found so independently, in the order in which we learnt of them.
        proven_until: when it ends on strong evidence of our own, if there is any.
    """

    began_at: int
    span: Span
    accusers: list[str] = field(default_factory=list)
    proven_until: int | None = None

    @property
    def ends_at(self) -> int:
        """When it ends, if nobody else accuses."""
        ends_at = self.began_at + self.span.lasts_us(max(0, len(self.accusers) - 1))
        return ends_at if self.proven_until is None else min(ends_at, self.proven_until)

    def accuse(self, accuser: str) -> bool:
        """Count *accuser* in. Returns: whether it is news, and still of use."""
        if accuser in self.accusers or len(self.accusers) > self.span.confirmations_max:
            return False
        self.accusers.append(accuser)
        return True

    def prove(self, until: int) -> bool:
        """End it at *until*, by evidence. Returns: whether that is sooner than before."""
        sooner = until < self.ends_at
        if sooner:
            self.proven_until = until
        return sooner


class _Entry(NamedTuple):
    member: Member
    suspicion: Suspicion | None
    timer: int


class StatusTimers:
    """Watches how long members stay in a status that ends by itself.

    The timer belongs to (status, incarnation, address): the same again changes nothing, a
    suspicion of a higher incarnation starts afresh. Entries go when their timer fires (uber's
    keep them and then never time the same status again).

    Args:
        after_us: how long each status lasts; one without an entry does not end, and a suspicion
            knows by itself.
    """

    def __init__(self, timers: Timers, after_us: Mapping[Status, int]) -> None:
        self._timers = timers
        self._after_us = after_us
        self._entries: dict[str, _Entry] = {}

    def watch(self, member: Member, now: int, suspicion: Suspicion | None = None) -> None:
        """Set, keep or cancel the timer of *member*, whose row is new at *now*."""
        entry = self._entries.get(member.name)
        if entry and _version(entry.member) == _version(member):
            return
        self.forget(member.name)
        after_us = self._after_us.get(member.status)
        if suspicion is not None:
            self._set(member, suspicion, suspicion.ends_at)
        elif after_us is not None:
            self._set(member, None, now + after_us)

    def suspicion_of(self, name: str) -> Suspicion | None:
        """The suspicion of *name*, if it is suspect. Whoever changes it calls `hasten`."""
        entry = self._entries.get(name)
        return entry.suspicion if entry else None

    def hasten(self, name: str, now: int) -> int:
        """Go by what the suspicion of *name* says now. Returns: how long it still lasts."""
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
        """*name* is due. Returns: its row as it was when it was first watched; the suspicion."""
        entry = self._entries.pop(name)
        return entry.member, entry.suspicion

    def __len__(self) -> int:
        return len(self._entries)


def _version(member: Member) -> tuple[Status, int, Address]:
    return member.status, member.incarnation, member.address
