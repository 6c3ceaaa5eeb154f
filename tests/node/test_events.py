"""The last facts of a node."""

from __future__ import annotations

import trio
import trio.testing

from ringpop_py.base.address import Address
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Member
from ringpop_py.node.events import (
    EVENTS_MAX,
    FORGET_S,
    PAGE_MAX,
    TROUBLED_MAX,
    TROUBLES_MAX,
    EventLog,
    LoggedTroubles,
)

A = Member("a", *Address("10.0.0.1", 3000), 7)


def test_events_are_numbered_and_pages_follow_each_other() -> None:
    log = EventLog()
    for score in range(PAGE_MAX + 5):
        log.note(fx.HealthChanged(score, "test"))

    first = log.after(0)
    second = log.after(first[-1]["number"])

    assert [record["number"] for record in first] == list(range(1, PAGE_MAX + 1))
    assert [record["score"] for record in second] == list(range(PAGE_MAX, PAGE_MAX + 5))
    assert [record["score"] for record in log.last(2)] == [PAGE_MAX + 3, PAGE_MAX + 4]
    assert log.last_number == PAGE_MAX + 5


def test_records_about_a_member_are_found() -> None:
    log = EventLog()
    log.note(fx.StatusChanged(None, A, "join", "b", "b"))
    log.note(fx.Stalled(1))

    assert [record["event"] for record in log.about("a")] == ["member-changed"]
    assert log.about("b") == []
    assert [record["event"] for record in log.about("b", is_own=True)] == ["stalled"]


def test_the_oldest_are_forgotten() -> None:
    log = EventLog()
    for score in range(EVENTS_MAX + 1):
        log.note(fx.HealthChanged(score, "test"))

    assert log.after(0)[0]["number"] == 2


async def test_a_reader_waits_for_the_next_event_and_not_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = EventLog()
    assert autojump_clock.rate == 0
    began = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.wait_after, 0, 20)
        await trio.sleep(3)
        log.note(fx.Stalled(1))
    assert trio.current_time() - began == 3
    await log.wait_after(1, 5)

    assert trio.current_time() - began == 8


# Which troubles have been told.


def test_a_trouble_is_told_once_a_peer() -> None:
    told = LoggedTroubles()

    first = [told.first_time(peer, "unreadable", 0.0) for peer in ("a", "a", "b")]

    assert first == [True, False, True]
    assert told.first_time("a", "something else", 0.0)


def test_of_one_peer_only_so_many_troubles_are_told() -> None:
    told = LoggedTroubles()

    count = sum(told.first_time("a", str(number), 0.0) for number in range(10 * TROUBLES_MAX))

    assert count == TROUBLES_MAX
    assert told.first_time("b", "0", 0.0)


def test_many_peers_are_told_of_again_after_a_while_and_never_more_than_so_many() -> None:
    told = LoggedTroubles()
    peers = range(3 * TROUBLED_MAX)

    at_first = sum(told.first_time(str(peer), "unreadable", 1.0) for peer in peers)
    soon = sum(told.first_time(f"new {peer}", "unreadable", FORGET_S) for peer in peers)
    later = sum(told.first_time(f"later {peer}", "unreadable", 1.0 + FORGET_S) for peer in peers)

    assert (
        at_first == 2 * TROUBLED_MAX
    )  # forgotten once, when they were too many for the first time
    assert soon == 0
    assert later == TROUBLED_MAX
    assert len(told._told) <= TROUBLED_MAX


def test_of_a_long_trouble_the_beginning_is_kept() -> None:
    told = LoggedTroubles()

    assert told.first_time("a", "x" * 10**6, 0.0)
    assert not told.first_time("a", "x" * 10**6 + "y", 0.0)
    assert max(len(what) for what in told._told["a"]) < 1_000
