"""`membership.timers`: fired in order, cancelled without a search, and never in the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.swim.timers import SWEEP_TIMERS_MIN, Timers


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=300))
def test_timers_fire_in_order_and_cancelled_ones_do_not(plan: list[tuple[int, bool]]) -> None:
    timers = Timers()
    fired: list[tuple[int, int]] = []
    for number, (at, is_cancelled) in enumerate(plan):
        timer = timers.set(at, lambda at, number, _now: fired.append((at, number)), at, number)
        if is_cancelled:
            timer.cancel()

    timers.fire(9)

    kept = [(at, number) for number, (at, is_cancelled) in enumerate(plan) if not is_cancelled]
    assert fired == sorted(kept)
    assert timers.next_at is None


def test_only_what_is_due_fires() -> None:
    timers = Timers()
    fired: list[int] = []
    timers.set(3, fired.append)
    timers.set(7, fired.append)

    timers.fire(5)

    assert fired == [5]
    assert timers.next_at == 7


def test_what_firing_sets_fires_too_if_it_is_due() -> None:
    timers = Timers()
    fired: list[int] = []

    def set_another(now: int) -> None:
        timers.set(now, fired.append)

    timers.set(3, set_another)
    timers.fire(5)

    assert fired == [5]


def test_a_timer_is_false_once_it_fired_or_was_cancelled() -> None:
    timers = Timers()
    fired = timers.set(1, lambda _now: None)
    cancelled = timers.set(2, lambda _now: None)
    waiting = timers.set(3, lambda _now: None)

    timers.fire(1)
    cancelled.cancel()
    fired.cancel()

    assert (bool(fired), bool(cancelled), bool(waiting)) == (False, False, True)


def test_a_timer_that_is_cancelled_by_another_of_the_same_instant_does_not_fire() -> None:
    timers = Timers()
    fired: list[int] = []
    timers.set(1, lambda _now: second.cancel())
    second = timers.set(1, fired.append)

    timers.fire(1)

    assert fired == []


def test_cancelled_timers_of_the_far_future_do_not_pile_up() -> None:
    timers = Timers()

    for at in range(10_000):
        timers.set(10**9 + at, lambda _now: None).cancel()

    assert len(timers) <= SWEEP_TIMERS_MIN


def test_a_sweep_loses_no_timer() -> None:
    timers = Timers()
    fired: list[int] = []
    for at in range(SWEEP_TIMERS_MIN * 4, 0, -1):
        timers.set(at, lambda at, _now: fired.append(at), at)
        timers.set(at, lambda _now: None).cancel()

    timers.fire(10**6)

    assert fired == list(range(1, SWEEP_TIMERS_MIN * 4 + 1))
