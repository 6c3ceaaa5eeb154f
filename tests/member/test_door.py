"""The door: an application that fails steadily is away, and one that answers so is back."""

from __future__ import annotations

from typing import Final

from ringpop_py.member.door import STEADY_US, ApplicationDoor

HALF: Final = STEADY_US // 2


def test_a_door_shuts_after_a_second_of_failures() -> None:
    door = ApplicationDoor()

    moved = [door.failed(at, "refused") for at in (0, HALF, STEADY_US - 1, STEADY_US)]

    assert moved == [False, False, False, True]
    assert (door.is_open, door.trouble) == (False, "refused")


def test_one_answer_ends_a_row_of_failures() -> None:
    door = ApplicationDoor()
    door.failed(0, "refused")

    door.answered(HALF)
    moved = [door.failed(at, "refused") for at in (HALF + 1, STEADY_US + 1)]

    assert moved == [False, False]
    assert door.is_open
    assert door.failed(HALF + 1 + STEADY_US, "refused")


def test_a_door_opens_after_a_second_of_answers() -> None:
    door = ApplicationDoor("refused")

    moved = [door.answered(at) for at in (0, STEADY_US - 1, STEADY_US)]

    assert moved == [False, False, True]
    assert (door.is_open, door.trouble) == (True, "")


def test_one_failure_ends_a_row_of_answers() -> None:
    door = ApplicationDoor("refused")
    door.answered(0)

    door.failed(HALF, "slow")
    door.answered(HALF + 1)

    assert not door.answered(STEADY_US)
    assert not door.is_open
    assert door.answered(HALF + 1 + STEADY_US)


def test_a_door_is_in_doubt_while_outcomes_contradict_it() -> None:
    door = ApplicationDoor()
    before = door.in_doubt

    door.failed(0, "refused")
    meanwhile = door.in_doubt
    door.failed(STEADY_US, "refused")

    assert (before, meanwhile, door.in_doubt) == (False, True, False)


def test_outcomes_that_agree_with_the_door_do_not_move_it() -> None:
    is_open, is_shut = ApplicationDoor(), ApplicationDoor("refused")

    moved = [is_open.answered(at) for at in (0, STEADY_US)]
    moved += [is_shut.failed(at, "refused") for at in (0, STEADY_US)]

    assert moved == [False] * 4
