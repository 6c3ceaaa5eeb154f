"""`membership.suspicion`: one timer a member, of one status and incarnation."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringpop_py.address import Address
from ringpop_py.membership.member import Member, Status
from ringpop_py.membership.suspicion import StatusTimers
from ringpop_py.membership.timers import Timers


@dataclass
class Watched:
    """Status timers on a clock of their own, and what has expired when."""

    timers: Timers = field(default_factory=Timers)
    expired: list[tuple[int, Member]] = field(default_factory=list)

    def __post_init__(self) -> None:
        after_us = {Status.SUSPECT: 5, Status.FAULTY: 20, Status.TOMBSTONE: 10}
        self.status = StatusTimers(
            self.timers, after_us, lambda member, now: self.expired.append((now, member))
        )

    def run(self, until: int) -> None:
        """Let the time pass, each instant once."""
        for now in range(until + 1):
            self.timers.fire(now)


def member(status: Status, incarnation: int = 1, name: str = "a") -> Member:
    return Member(name, Address("10.0.0.1", 3000), incarnation, status)


def test_a_status_expires_after_its_time() -> None:
    watched = Watched()

    for name, status in zip("abc", (Status.SUSPECT, Status.FAULTY, Status.TOMBSTONE), strict=True):
        watched.status.watch(member(status, name=name), 0)
    watched.run(30)

    assert [(now, m.name) for now, m in watched.expired] == [(5, "a"), (10, "c"), (20, "b")]


def test_the_same_status_of_the_same_incarnation_does_not_start_again() -> None:
    watched = Watched()
    watched.status.watch(member(Status.SUSPECT), 0)

    watched.status.watch(member(Status.SUSPECT), 3)
    watched.run(30)

    assert watched.expired == [(5, member(Status.SUSPECT))]


def test_a_suspicion_of_a_higher_incarnation_starts_again() -> None:
    watched = Watched()
    watched.status.watch(member(Status.SUSPECT, 1), 0)

    watched.status.watch(member(Status.SUSPECT, 2), 3)
    watched.run(30)

    assert watched.expired == [(8, member(Status.SUSPECT, 2))]


def test_a_status_that_does_not_expire_cancels_the_timer() -> None:
    watched = Watched()
    for status in (Status.ALIVE, Status.LEAVE):
        watched.status.watch(member(Status.SUSPECT), 0)
        watched.status.watch(member(status, 2), 1)

    watched.run(30)

    assert watched.expired == []
    assert len(watched.status) == 0
    assert watched.timers.next_at is None


def test_an_entry_goes_when_its_timer_fires_so_that_the_same_is_timed_again() -> None:
    watched = Watched()
    watched.status.watch(member(Status.SUSPECT), 0)
    watched.run(5)

    left = len(watched.status)
    watched.status.watch(member(Status.SUSPECT), 6)
    watched.run(30)

    assert left == 0
    assert [now for now, _ in watched.expired] == [5, 11]


def test_forgetting_a_member_cancels_its_timer() -> None:
    watched = Watched()
    watched.status.watch(member(Status.SUSPECT), 0)

    watched.status.forget("a")
    watched.status.forget("unknown")
    watched.run(30)

    assert watched.expired == []
