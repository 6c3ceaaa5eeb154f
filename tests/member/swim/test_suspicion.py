"""`membership.suspicion`: one timer a member, and how long a suspicion lasts."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.suspicion import Span, StatusTimers, Suspicion, span_for
from ringpop_py.member.swim.timers import Timers
from ringpop_py.member.swim.waits import StatusDue


@dataclass
class Watched:
    """Status timers on a clock of their own, and what has expired when."""

    timers: Timers = field(default_factory=Timers)
    expired: list[tuple[int, Member]] = field(default_factory=list)

    def __post_init__(self) -> None:
        after_us = {Status.SUSPECT: 5, Status.FAULTY: 20, Status.TOMBSTONE: 10}
        self.status = StatusTimers(self.timers, after_us)

    def run(self, until: int) -> None:
        """Let the time pass, each instant once."""
        for now in range(until + 1):
            self.take_due(now)

    def take_due(self, now: int) -> None:
        """Let the timers that are due by *now* fire."""
        while isinstance(due := self.timers.take(now), StatusDue):
            self.expired.append((now, self.status.expire(due.name)[0]))


def member(status: Status, incarnation: int = 1, name: str = "a") -> Member:
    return Member(name, *Address("10.0.0.1", 3000), incarnation, status)


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


def test_a_suspicion_of_a_process_elsewhere_starts_again() -> None:
    watched = Watched()
    elsewhere = replace(member(Status.SUSPECT), host="10.0.0.2")
    watched.status.watch(member(Status.SUSPECT), 0)

    watched.status.watch(elsewhere, 3)
    watched.run(30)

    assert watched.expired == [(8, elsewhere)]


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


# How long.


@pytest.mark.parametrize(
    ("members", "span"),
    [
        (2, Span(5_000_000, 30_000_000, 0)),
        (3, Span(5_000_000, 30_000_000, 1)),
        (5, Span(5_000_000, 30_000_000, 3)),
        (10, Span(5_000_000, 30_000_000, 3)),
        (1000, Span(15_000_000, 90_000_000, 3)),
    ],
)
def test_the_span_grows_with_the_cluster_and_expects_no_more_than_there_are(
    members: int, span: Span
) -> None:
    assert span_for(GossipConfig(), members) == span


def test_without_confirmations_the_time_is_the_set_one_whatever_the_size() -> None:
    span = span_for(GossipConfig().plain(), 1000)

    assert span.lasts_us(0) == 5_000_000


def test_a_factor_below_one_does_not_turn_the_span_around() -> None:
    span = span_for(GossipConfig(suspect_factor=0.5), 5)

    assert span.max_us == span.min_us


def test_the_first_accuser_confirms_nothing_and_nobody_counts_twice() -> None:
    suspicion = Suspicion(0, Span(5, 30, 3))

    news = [suspicion.accuse(name) for name in ("a", "b", "a", "b")]

    assert news == [True, True, False, False]
    assert suspicion.ends_at == Span(5, 30, 3).lasts_us(1)


def test_accusers_beyond_those_that_matter_are_not_kept() -> None:
    suspicion = Suspicion(0, Span(5, 30, 2))

    news = [suspicion.accuse(name) for name in "abcd"]

    assert news == [True, True, True, False]
    assert suspicion.accusers == ["a", "b", "c"]
    assert suspicion.ends_at == 5


def test_evidence_ends_a_suspicion_sooner_but_never_later() -> None:
    suspicion = Suspicion(0, Span(5, 30, 0))

    sooner = [suspicion.prove(until) for until in (9, 3, 4)]

    assert sooner == [False, True, False]
    assert suspicion.ends_at == 3


def test_a_confirmed_suspicion_fires_when_it_says() -> None:
    watched = Watched()
    suspicion = Suspicion(0, Span(5, 30, 1), ["a"])
    watched.status.watch(member(Status.SUSPECT), 0, suspicion)

    suspicion.accuse("b")
    left = watched.status.hasten("a", 2)
    watched.run(40)

    assert left == 3
    assert [now for now, _ in watched.expired] == [5]


def test_a_suspicion_that_is_over_by_a_confirmation_ends_now_and_not_before() -> None:
    watched = Watched()
    suspicion = Suspicion(0, Span(5, 30, 1), ["a"])
    watched.status.watch(member(Status.SUSPECT), 0, suspicion)
    watched.take_due(20)

    suspicion.accuse("b")
    left = watched.status.hasten("a", 20)

    assert left == 0
    assert watched.timers.next_at == 20


def test_the_suspicion_of_who_is_no_suspect_is_none() -> None:
    watched = Watched()
    suspicion = Suspicion(0, Span(5, 30))
    watched.status.watch(member(Status.SUSPECT), 0, suspicion)
    watched.status.watch(member(Status.FAULTY, name="b"), 0)

    assert watched.status.suspicion_of("a") is suspicion
    assert watched.status.suspicion_of("b") is None
    assert watched.status.suspicion_of("c") is None
