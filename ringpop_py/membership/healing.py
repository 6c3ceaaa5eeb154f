"""Merging two sides of a split that hold each other for faulty (Ringpop's partition healing).

A side that was declared faulty must raise its incarnations before the other side will believe
that it lives; only its own members can. So the first pass tells each side, as a suspicion, what
the other believes of it; the members refute. The second pass finds lists that no longer
contradict each other, and exchanges them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ringpop_py.membership.effects import Healed
from ringpop_py.membership.member import Member, Status, overrides
from ringpop_py.membership.messages import Ack, Change, JoinAck
from ringpop_py.membership.timers import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.address import Address
    from ringpop_py.membership.asking import Asker
    from ringpop_py.membership.calls import Outcome
    from ringpop_py.membership.core import Core
    from ringpop_py.membership.joining import JoinRounds
    from ringpop_py.membership.rows import Rows
    from ringpop_py.membership.timers import Timer

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


class Healer:
    """Begins a run now and then, by chance, and whenever an operator says so; one at a time."""

    def __init__(self, core: Core, rows: Rows, asker: Asker, rounds: JoinRounds) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._rounds = rounds
        self._timer: Timer | None = None
        self._healing: Healing | None = None

    def plan(self, now: int) -> None:
        """Think of healing by ourselves, every `heal_period_s` from now on."""
        at = now + microseconds(self._core.config.heal_period_s)
        self._timer = self._core.timers.set(at, self._begin_by_chance)

    def stop(self) -> None:
        """Begin no further run by ourselves; an open one goes on to its end."""
        if self._timer is not None:
            self._timer.cancel()

    def begin(self, now: int) -> None:
        """Begin a run, unless one is open."""
        if self._healing is not None or self._core.evicting:
            return
        apart = self._hosts_apart()
        self._core.rng.shuffle(apart)
        self._healing = Healing(apart)
        self._next(self._healing, now)

    def _begin_by_chance(self, now: int) -> None:
        """Keep the load on the cluster the same, whatever its size."""
        core = self._core
        self.plan(now)
        size = max(len(self._rounds.hosts), core.members.pingable_count + 1)
        chosen = core.rng.random() < core.config.heal_share / size
        if chosen and self._hosts_apart():
            self.begin(now)

    def _hosts_apart(self) -> list[Address]:
        """The hosts where nobody listens whom we hold for reachable."""
        reachable = {member.address for member in self._core.members if member.status.reachable}
        return [host for host in self._rounds.hosts if host not in reachable]

    def _next(self, healing: Healing, now: int) -> None:
        target = healing.next_target()
        if target is None:
            self._healing = None
            self._core.emit(Healed(tuple(healing.healed)))
            return

        def done(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, JoinAck):
                self._heal_with(healing, target, outcome, now)
            else:
                healing.failure_count += 1
                self._next(healing, now)

        self._asker.fetch_list(target, self._core.config.heal_timeout_s, done, now)

    def _heal_with(self, healing: Healing, target: Address, theirs: JoinAck, now: int) -> None:
        ours = {member.name: member for member in self._core.members}
        for_us, for_them = contradictions(ours, theirs.members)
        if for_us or for_them:
            self._rows.update(for_us, now, via="heal", told_by=theirs.source)
        else:
            changes = [Change(member) for member in theirs.members]
            self._rows.update(changes, now, via="heal", told_by=theirs.source)
            for_them = [Change(member) for member in self._core.members]

        def done(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, Ack):
                # What it says beside is not taken in: old rumours that we are faulty may still
                # ride there, and would override the suspicions before they are refuted.
                healing.succeeded(theirs.members)
            else:
                healing.failure_count += 1
            self._next(healing, now)

        if for_them:
            timeout_s = self._core.config.heal_timeout_s
            self._asker.tell(target, tuple(for_them), timeout_s, done, now)
        else:
            healing.succeeded(theirs.members)
            self._next(healing, now)
