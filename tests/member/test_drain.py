"""What a node that ends waits for, and for how long."""

from __future__ import annotations

import pytest

from ringpop_py.member.drain import (
    ANNOUNCE_S_MAX,
    DECLINED,
    OF_PARTITIONS,
    STALLED_S,
    Draining,
    Phase,
    Work,
    text_of_left,
)


def test_it_closes_when_the_others_know_and_have_its_partitions() -> None:
    draining = Draining(now=0, timeout_s=30)
    busy = {Work.REQUESTS: 1}

    phases = [
        draining.look({**busy, Work.PARTITIONS: 2}, 0.1, announced=False),
        draining.look({**busy, Work.PARTITIONS: 2}, 0.2, announced=True),
        draining.look({**busy, Work.PARTITIONS: 0}, 0.3, announced=True),
    ]

    assert phases == [Phase.DRAINING, Phase.DRAINING, Phase.CLOSING]


def test_it_does_not_close_before_the_others_know_unless_they_keep_silent() -> None:
    draining = Draining(now=0, timeout_s=30)

    assert draining.look({}, 0.1, announced=False) is Phase.DRAINING
    assert draining.look({}, ANNOUNCE_S_MAX, announced=False) is not Phase.DRAINING


@pytest.mark.parametrize("work", [work for work in Work if work is not Work.PARTITIONS])
def test_it_ends_when_what_was_under_way_is_done(work: Work) -> None:
    draining = Draining(now=0, timeout_s=30)

    phases = [
        draining.look({work: 2}, 1, announced=True),
        draining.look({work: 1}, 2, announced=True),
        draining.look({work: 0}, 3, announced=True),
    ]

    assert phases == [Phase.CLOSING, Phase.CLOSING, Phase.ENDED]


def test_it_ends_at_once_where_nothing_is_under_way() -> None:
    assert Draining(now=5, timeout_s=30).look({}, 5, announced=True) is Phase.ENDED


@pytest.mark.parametrize("announced", [True, False])
def test_it_ends_when_its_time_is_over_whatever_is_left(announced: bool) -> None:  # noqa: FBT001
    draining = Draining(now=5, timeout_s=30)
    left = {Work.REQUESTS: 1, Work.PARTITIONS: 1}

    assert draining.look(left, 34.9, announced=announced) is not Phase.ENDED
    assert draining.look(left, 35.0, announced=announced) is Phase.ENDED


def test_without_time_it_ends_at_once() -> None:
    draining = Draining(now=5, timeout_s=0)

    assert draining.look({Work.REQUESTS: 1}, 5, announced=False) is Phase.ENDED


def test_an_end_that_is_given_up_waits_for_nothing() -> None:
    draining = Draining(now=5, timeout_s=30)

    draining.give_up()

    assert draining.look({Work.REQUESTS: 1}, 6, announced=False) is Phase.ENDED


def test_partitions_are_waited_for_while_they_go() -> None:
    draining = Draining(now=0, timeout_s=1_000)

    for number in range(10):
        left = {Work.PARTITIONS: 20 - number}
        assert draining.look(left, number * (STALLED_S - 1), announced=True) is Phase.DRAINING


def test_partitions_that_nobody_takes_are_not_waited_for_until_the_end() -> None:
    draining = Draining(now=0, timeout_s=1_000)
    left = {Work.PARTITIONS: 3, Work.REQUESTS: 1}

    phases = [
        draining.look(left, 1, announced=True),
        draining.look(left, STALLED_S, announced=True),
        draining.look(left, 1 + STALLED_S, announced=True),
        draining.look({Work.PARTITIONS: 3}, 7, announced=True),
    ]

    assert phases == [Phase.DRAINING, Phase.DRAINING, Phase.CLOSING, Phase.ENDED]


def test_the_text_of_remaining_work_counts_it_by_kind() -> None:
    left = {Work.PARTITIONS: 4, Work.HTTP_REQUESTS: 1, Work.REQUESTS: 3, Work.JOB_REQUESTS: 0}

    assert text_of_left(left) == "requests 3, HTTP requests 1, partitions 4"
    assert text_of_left({}) == ""


def test_requests_to_partitions_are_declined_only_where_some_stay_behind() -> None:
    moved, stuck = Draining(now=0, timeout_s=30), Draining(now=0, timeout_s=30)
    busy = {Work.KEYSPACE_REQUESTS: 1}

    before = moved.declined
    moved.look(busy, 1, announced=True)
    stuck.look({**busy, Work.PARTITIONS: 3}, 1, announced=True)
    while_they_may_move = stuck.declined
    stuck.look({**busy, Work.PARTITIONS: 3}, 1 + STALLED_S, announced=True)

    assert (before, while_they_may_move) == (frozenset(), frozenset())
    assert moved.declined == DECLINED
    assert stuck.declined == DECLINED | OF_PARTITIONS
