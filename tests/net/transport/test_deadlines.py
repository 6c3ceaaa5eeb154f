"""Entries expire on time, once, and an idle wheel sleeps."""

# ruff: noqa: PT019 - pytest-trio runs a test by the clock that it takes as an argument

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock as Clock

from ringpop_py.net.transport.deadlines import TICK_S, Alarm, Wheel


@pytest.fixture
def _clock() -> Clock:
    """Time that jumps to whatever is waited for."""
    return Clock(autojump_threshold=0)


async def test_entries_expire_in_order_and_on_time(nursery: trio.Nursery, _clock: Clock) -> None:
    wheel = Wheel()
    nursery.start_soon(wheel.run)
    began = trio.current_time()
    expired: list[tuple[int, float]] = []

    for seconds in (30, 1, 600, 2):  # the second is sooner than what the wheel sleeps for
        await trio.lowlevel.checkpoint()
        alarm = Alarm(lambda s=seconds: expired.append((s, trio.current_time() - began)))  # type: ignore[misc]
        wheel.add(alarm, began + seconds)
    await trio.sleep(700)

    assert [seconds for seconds, _ in expired] == [1, 2, 30, 600]
    assert all(seconds <= at <= seconds + 2 * TICK_S for seconds, at in expired)


async def test_a_forgotten_entry_does_not_expire_and_leaves_nothing(
    nursery: trio.Nursery, _clock: Clock
) -> None:
    wheel = Wheel()
    nursery.start_soon(wheel.run)
    expired: list[int] = []
    for number in range(1_000):
        alarm = Alarm(lambda n=number: expired.append(n))  # type: ignore[misc]
        wheel.add(alarm, trio.current_time() + number / 100)
        wheel.discard(alarm)
        wheel.discard(alarm)

    await trio.sleep(20)

    assert expired == []
    assert not wheel._buckets
    assert not wheel._order


async def test_an_entry_that_expires_may_be_added_again(
    nursery: trio.Nursery, _clock: Clock
) -> None:
    wheel = Wheel()
    nursery.start_soon(wheel.run)
    count = 0

    def again() -> None:
        nonlocal count
        count += 1
        wheel.add(alarm, trio.current_time() + 1)

    alarm = Alarm(again)
    again()
    await trio.sleep(10.5)

    assert 9 <= count <= 11


async def test_nobody_wakes_for_a_forgotten_entry_and_those_after_it_are_on_time(
    nursery: trio.Nursery, _clock: Clock
) -> None:
    wheel, woken, expired = Wheel(), list[float](), list[float]()
    look = wheel._expire_until

    def looked(now: float) -> None:
        woken.append(now - began)
        look(now)

    wheel._expire_until = looked  # type: ignore[method-assign]
    nursery.start_soon(wheel.run)
    await trio.lowlevel.checkpoint()
    began = trio.current_time()
    first, other, last = (
        Alarm(lambda: expired.append(trio.current_time() - began)) for _ in range(3)
    )

    wheel.add(last, began + 10)
    wheel.add(first, began + 1)
    wheel.add(other, began + 2)
    wheel.discard(other)
    wheel.discard(first)  # the task sleeps until this one
    await trio.sleep(4)
    wheel.add(first, began + 5)  # sooner than what it sleeps for now
    await trio.sleep(30)

    assert expired == woken == pytest.approx([5, 10], abs=2 * TICK_S)
