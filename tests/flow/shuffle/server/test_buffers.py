"""The memory for what comes over connections: so much at a time, and used again."""

from __future__ import annotations

import trio
import trio.testing

from ringpop_py.flow.shuffle.server.server import Buffers

FRAME = 1 << 20


async def test_more_than_there_is_waits_until_some_is_given_back() -> None:
    buffers = Buffers(2 * FRAME)
    first, second = await buffers.acquire(FRAME), await buffers.acquire(FRAME)
    came: list[memoryview] = []

    async def want() -> None:
        came.append(await buffers.acquire(FRAME))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(want)
        await trio.testing.wait_all_tasks_blocked()
        assert not came
        buffers.release(first)

    assert came[0].obj is first.obj
    assert came[0].obj is not second.obj


async def test_one_that_is_longer_than_all_comes_when_nothing_else_is_held() -> None:
    buffers = Buffers(FRAME)

    assert len(await buffers.acquire(3 * FRAME)) == 3 * FRAME


async def test_a_buffer_is_used_again_for_what_needs_at_least_half_of_it() -> None:
    buffers = Buffers(8 * FRAME)
    used = await buffers.acquire(2 * FRAME)
    buffers.release(used)

    small = await buffers.acquire(FRAME - 1)
    half = await buffers.acquire(FRAME)

    assert small.obj is not used.obj
    assert half.obj is used.obj
    assert len(half) == FRAME


async def test_free_and_held_buffers_together_stay_within_the_limit() -> None:
    buffers = Buffers(4 * FRAME)
    held = [await buffers.acquire(FRAME) for _ in range(4)]
    for each in held:
        buffers.release(each)

    await buffers.acquire(3 * FRAME)

    assert sum(map(len, buffers._free)) == FRAME
