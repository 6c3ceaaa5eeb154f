"""Timers from suspect to faulty, to tombstone, to evicted: one a member at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.membership.member import Member, Status
    from ringpop_py.membership.timers import Timer, Timers


class _Entry(NamedTuple):
    status: Status
    incarnation: int
    timer: Timer


class StatusTimers:
    """Watches how long members stay in a status that ends by itself.

    The timer belongs to (status, incarnation): the same again changes nothing, a suspicion of
    a higher incarnation starts afresh. Entries go when their timer fires (uber's keep them and
    then never time the same status again).
    """

    def __init__(
        self,
        timers: Timers,
        after_us: Mapping[Status, int],
        expired: Callable[[Member, int], None],
    ) -> None:
        self._timers = timers
        self._after_us = after_us
        self._expired = expired
        self._entries: dict[str, _Entry] = {}

    def watch(self, member: Member, now: int) -> None:
        """Set, keep or cancel the timer of *member*, whose row is new at *now*."""
        entry = self._entries.get(member.name)
        if entry and (entry.status, entry.incarnation) == (member.status, member.incarnation):
            return
        self.forget(member.name)
        after_us = self._after_us.get(member.status)
        if after_us is not None:
            timer = self._timers.set(now + after_us, self._fire, member)
            self._entries[member.name] = _Entry(member.status, member.incarnation, timer)

    def forget(self, name: str) -> None:
        """Cancel the timer of *name*, if there is one."""
        entry = self._entries.pop(name, None)
        if entry:
            entry.timer.cancel()

    def _fire(self, member: Member, now: int) -> None:
        del self._entries[member.name]
        self._expired(member, now)

    def __len__(self) -> int:
        return len(self._entries)
