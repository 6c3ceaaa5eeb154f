"""Merging two sides of a split that hold each other for faulty (Ringpop's partition healing).

A side that was declared faulty must raise its incarnations before the other side will believe
that it lives; only its own members can. So the first pass tells each side, as a suspicion, what
the other believes of it; the members refute. The second pass finds lists that no longer
contradict each other, and exchanges them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ringpop_py.membership.member import Member, Status, overrides
from ringpop_py.membership.messages import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.address import Address

FAILURES_MAX: Final = 10


@dataclass(slots=True)
class Healing:
    """One run: the hosts still to be tried, and those that were."""

    left: list[Address]
    healed: list[Address] = field(default_factory=list)
    failure_count: int = 0
    current: Address | None = None

    def next_target(self) -> Address | None:
        """Whom to try next; None once the run is over."""
        over = not self.left or self.failure_count >= FAILURES_MAX
        self.current = None if over else self.left.pop()
        return self.current

    def succeeded(self, theirs: Iterable[Member]) -> None:
        """The current target was reached; whoever it can reach need not be tried."""
        assert self.current is not None
        self.healed.append(self.current)
        reachable = {member.address for member in theirs if member.status.reachable}
        self.left = [address for address in self.left if address not in reachable]


def contradictions(
    ours: dict[str, Member], theirs: Iterable[Member]
) -> tuple[list[Change], list[Change]]:
    """What each side has to refute before the lists may be merged: (for us, for them).

    As suspicions without a source: so nobody takes them for the start of an exchange, and
    nobody who lives is declared faulty by healing.
    """
    for_us, for_them = [], []
    for b in theirs:
        a = ours.get(b.name)
        if a is None:
            continue
        if b.status.reachable and _is_given_up(a) and overrides(a, b):
            for_them.append(Change(replace(a, status=Status.SUSPECT)))
        elif a.status.reachable and _is_given_up(b) and overrides(b, a):
            for_us.append(Change(replace(b, status=Status.SUSPECT)))
    return for_us, for_them


def _is_given_up(member: Member) -> bool:
    """Whether *member* is held for dead; who left said so itself, and has nothing to refute."""
    return member.status in (Status.FAULTY, Status.TOMBSTONE)
