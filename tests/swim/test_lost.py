"""`membership.lost`: a bounded memory of those who were given up."""

from __future__ import annotations

import pytest

from ringpop_py.swim.lost import LOST_MAX, LostMembers
from ringpop_py.swim.member import Member, Status
from tests.swim.world import address_of


def row(index: int, status: Status) -> Member:
    return Member(f"m{index}", address_of(index), 1, status)


@pytest.mark.parametrize(
    ("before", "remembered"),
    [(Status.FAULTY, True), (Status.ALIVE, True), (Status.LEAVE, False)],
)
def test_who_was_given_up_is_remembered_and_who_left_is_not(
    before: Status, *, remembered: bool
) -> None:
    lost = LostMembers()

    lost.follow(row(1, before), row(1, Status.TOMBSTONE), 0)

    assert lost.addresses == ((address_of(1),) if remembered else ())


def test_who_is_seen_again_is_not_lost() -> None:
    lost = LostMembers()
    lost.follow(row(1, Status.FAULTY), row(1, Status.TOMBSTONE), 0)

    lost.follow(None, row(1, Status.ALIVE), 1)

    assert lost.addresses == ()


def test_the_oldest_are_dropped_first() -> None:
    lost = LostMembers()

    for index in range(LOST_MAX + 2):
        lost.follow(row(index, Status.FAULTY), row(index, Status.TOMBSTONE), 0)

    assert len(lost) == LOST_MAX
    assert lost.addresses[0] == address_of(2)


def test_the_last_time_that_somebody_was_given_up_is_known() -> None:
    lost = LostMembers()
    assert lost.given_up_at is None

    lost.follow(row(1, Status.SUSPECT), row(1, Status.FAULTY), 7)
    lost.follow(row(2, Status.FAULTY), row(2, Status.TOMBSTONE), 9)

    assert lost.given_up_at == 7
