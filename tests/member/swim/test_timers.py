"""`swim.timers`: taken in order, cancelled without a search, and never in the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.member.swim.timers import SWEEP_TIMERS_MIN, Timers
from ringpop_py.member.swim.waits import CallDue, Deadline


def all_due(timers: Timers, now: int) -> list[Deadline]:
    """Take out and return what is due by *now*."""
    due = []
    while (next_ := timers.take(now)) is not None:
        due.append(next_)
    return due


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=300))
def test_timers_are_due_in_order_and_cancelled_ones_never(plan: list[tuple[int, bool]]) -> None:
    timers = Timers()
    for number, (at, is_cancelled) in enumerate(plan):
        token = timers.set(at, CallDue(number))
        if is_cancelled:
            timers.cancel(token)

    due = all_due(timers, 9)

    kept = [(at, number) for number, (at, is_cancelled) in enumerate(plan) if not is_cancelled]
    assert due == [CallDue(number) for _, number in sorted(kept)]
    assert timers.next_at is None


def test_a_token_is_known_until_its_timer_is_over() -> None:
    timers = Timers()
    over = timers.set(1, CallDue(1))
    cancelled = timers.set(2, CallDue(2))
    waiting = timers.set(3, CallDue(3))

    timers.take(1)
    timers.cancel(cancelled)
    timers.cancel(over)
    timers.cancel(0)

    assert [token in timers for token in (0, over, cancelled, waiting)] == [False] * 3 + [True]


def test_cancelled_timers_of_the_far_future_do_not_pile_up() -> None:
    timers = Timers()

    for at in range(10_000):
        timers.cancel(timers.set(10**9 + at, CallDue(at)))

    assert len(timers) <= SWEEP_TIMERS_MIN


def test_a_sweep_loses_no_timer() -> None:
    timers = Timers()
    for at in range(SWEEP_TIMERS_MIN * 4, 0, -1):
        timers.set(at, CallDue(at))
        timers.cancel(timers.set(at, CallDue(0)))

    due = all_due(timers, 10**6)

    assert due == [CallDue(at) for at in range(1, SWEEP_TIMERS_MIN * 4 + 1)]
