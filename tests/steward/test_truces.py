"""Two sides of a cut do not seal each other's epochs in a tight loop."""

from ringpop_py.steward.truces import FORGIVEN_US, WAIT_US_MAX, WAIT_US_MIN, Truces


def test_who_was_never_fenced_takes_at_once() -> None:
    assert Truces().left_us(3, now_us=0) == 0


def test_each_fence_doubles_the_wait_up_to_a_limit() -> None:
    truces, now_us, waits = Truces(), 0, []

    for _ in range(8):
        truces.fenced(3, now_us)
        waits.append(truces.left_us(3, now_us))
        now_us += waits[-1]

    assert waits[:3] == [WAIT_US_MIN, 2 * WAIT_US_MIN, 4 * WAIT_US_MIN]
    assert waits[-1] == WAIT_US_MAX
    assert truces.left_us(3, now_us) == 0
    assert truces.left_us(4, now_us) == 0


def test_a_fence_after_a_long_peace_counts_as_the_first() -> None:
    truces = Truces()
    truces.fenced(3, 0)
    truces.fenced(3, WAIT_US_MIN)

    later_us = 10 * FORGIVEN_US
    truces.fenced(3, later_us)

    assert truces.left_us(3, later_us) == WAIT_US_MIN
