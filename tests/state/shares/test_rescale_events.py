"""`ringpop_py.state.shares.rescale_events`: what one listener does is nothing to the others."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from ringpop_py.state.shares.rescale_events import Gained, Lost, RescaleEvents

if TYPE_CHECKING:
    from ringpop_py.state.shares.rescale_events import RescaleEvent, RescaleListener

pytestmark = pytest.mark.virtual_time

FIRST, SECOND = Gained(0, 1, {"topic": [42]}), Lost(0)


async def following(listener: RescaleListener) -> RescaleEvent:
    """The next event of *listener*, which has one."""
    with trio.fail_after(1):
        return await anext(listener)


async def test_a_loop_that_is_cancelled_while_it_waits_misses_nothing() -> None:
    events = RescaleEvents()
    listener = events.listen([])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(anext, listener)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    events.tell(FIRST)

    assert await following(listener) == FIRST


async def test_a_loop_that_is_cancelled_with_an_event_at_hand_leaves_it() -> None:
    listener = RescaleEvents().listen([FIRST, SECOND])
    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(listener)

    assert scope.cancelled_caught
    assert [await following(listener), await following(listener)] == [FIRST, SECOND]


async def test_a_loop_that_is_cancelled_in_its_body_takes_nothing_from_others() -> None:
    events = RescaleEvents()
    one, other = events.listen([]), events.listen([])
    seen: list[RescaleEvent] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, other, seen)
        with trio.CancelScope() as scope, trio.fail_after(1):
            events.tell(FIRST)
            async for _ in one:
                scope.cancel()
                await trio.sleep_forever()
        events.tell(SECOND)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert seen == [FIRST, SECOND]
    assert await following(one) == SECOND


async def _read(listener: RescaleListener, seen: list[RescaleEvent]) -> None:
    while True:
        seen.append(await anext(listener))


async def test_a_loop_that_changes_an_event_does_not_change_it_for_others() -> None:
    events = RescaleEvents()
    one, other = events.listen([]), events.listen([])
    events.tell(FIRST)

    mine = await following(one)
    assert isinstance(mine, Gained)
    offsets: Any = mine.offsets
    offsets["topic"].clear()
    offsets["another"] = 1

    assert await following(other) == FIRST
    assert FIRST.offsets == {"topic": [42]}


async def test_all_events_wait_for_a_listener_that_does_not_read() -> None:
    events = RescaleEvents()
    listener = events.listen([])
    for _ in range(10_000):
        events.tell(SECOND)
    events.tell(FIRST)

    for _ in range(10_000):
        assert await following(listener) == SECOND
    assert await following(listener) == FIRST


def test_a_listener_that_an_application_has_dropped_is_told_nothing() -> None:
    events = RescaleEvents()
    dropped = weakref.ref(events.listen([]))
    gc.collect()

    assert dropped() is None
    events.tell(FIRST)


async def test_listeners_come_and_go_while_events_are_told() -> None:
    events = RescaleEvents()
    listeners = [events.listen([]) for _ in range(3)]
    events.tell(FIRST)
    del listeners[1]
    listeners.append(events.listen([SECOND]))
    events.tell(SECOND)

    told = [[await following(listener), await following(listener)] for listener in listeners]

    assert told == [[FIRST, SECOND], [FIRST, SECOND], [SECOND, SECOND]]
