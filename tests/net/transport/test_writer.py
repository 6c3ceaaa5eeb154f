"""What is queued leaves in order and once, however little of it the stream takes at a time."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.transport.writer import LinkWriter
from ringpop_py.net.wire.frames import FRAME_BYTES_MAX, FrameQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.transport.calls import LinkEnd

PATIENCE_S = 5.0
LARGEST = bytes(FRAME_BYTES_MAX)

sizes = st.integers(1, 2_000) | st.integers(FRAME_BYTES_MAX - 20, FRAME_BYTES_MAX)
batches = st.lists(st.lists(sizes, max_size=20), min_size=1, max_size=4)


class Gate:
    """A stream that takes as many bytes of each send as it is told, and then all.

    Attributes:
        taken: what it has taken.
        offered: how many bytes each send had.
        ends: how often the sending was ended.
    """

    def __init__(
        self, takes: list[int], *, each_s: float = 0.0, breaks_at: float = math.inf
    ) -> None:
        self.remote_host = "there"
        self.identity: Identity | None = None
        self.proof = LASTING
        self.taken = bytearray()
        self.offered: list[int] = []
        self.ends = 0
        self._breaks_at = breaks_at
        self._each_s = each_s
        self._takes = takes
        self._turn = trio.Lock()  # of the one task that may wait

    def send_nowait(self, data: bytes | memoryview) -> int:
        if len(self.taken) >= self._breaks_at:
            raise trio.BrokenResourceError("it broke")
        assert not self.ends
        self.offered.append(len(data))
        count = min(len(data), self._takes.pop(0)) if self._takes else len(data)
        self.taken += data[:count]
        return count

    async def send_some(self, data: memoryview) -> int:
        self._turn.acquire_nowait()
        try:
            while True:
                await trio.sleep(self._each_s)
                if count := self.send_nowait(data):
                    return count
        finally:
            self._turn.release()

    async def receive(self) -> bytes:
        raise AssertionError

    def end_sending(self) -> None:
        self.ends += 1

    def close(self) -> None:
        raise AssertionError


class Setting:
    """A writer with its queue and its stream, in the nursery that its task runs in."""

    def __init__(self, nursery: trio.Nursery, stream: Gate) -> None:
        self.queue = FrameQueue()
        self.stream = stream
        self.ends: list[LinkEnd] = []
        self.writer = LinkWriter(
            self.queue, patience_s=PATIENCE_S, spawn=nursery.start_soon, give_up=self.ends.append
        )
        self.writer.stream = stream

    def put(self, *frames: bytes) -> None:
        for each in frames:
            self.queue.put(each)


def in_time_that_jumps(test: Callable[[], Awaitable[None]]) -> None:
    trio.run(test, clock=MockClock(autojump_threshold=0))


@given(batches, st.lists(st.sampled_from([0, 1, 2, 1_000, FRAME_BYTES_MAX]), max_size=60))
def test_all_that_is_queued_leaves_in_order_however_little_is_taken_at_a_time(
    batches: list[list[int]], takes: list[int]
) -> None:
    in_time_that_jumps(partial(_queued_leaves_in_order, batches, takes))


async def _queued_leaves_in_order(batches: list[list[int]], takes: list[int]) -> None:
    number = 0
    expected = b""
    async with trio.open_nursery() as nursery:
        setting = Setting(nursery, Gate(takes))
        writer = setting.writer
        for batch in batches:  # the later ones are queued while a task sends the earlier ones
            for size in batch:
                number += 1
                raw = bytes((number % 256,)) * size
                expected += raw
                setting.put(raw)
            writer.flush()
            assert writer.written_bytes == len(setting.stream.taken)
            assert writer.unsent_bytes == len(expected) - len(setting.stream.taken)
            await trio.lowlevel.checkpoint()
        await writer.wait_drained()
        assert writer.in_hand is None
        writer.finish()

    assert setting.stream.taken == expected
    assert writer.written_bytes == len(expected)
    assert (writer.unsent_bytes, setting.queue.chunks) == (0, [])
    assert max(setting.stream.offered, default=0) <= FRAME_BYTES_MAX
    assert setting.stream.ends == 1
    assert setting.ends == []


async def test_few_bytes_leave_in_one_send_and_a_large_message_in_its_frames(
    nursery: trio.Nursery,
) -> None:
    setting = Setting(nursery, Gate([]))

    setting.put(b"a", b"b", b"c")
    setting.writer.flush()
    setting.put(LARGEST, LARGEST, b"d", b"e")
    setting.writer.flush()

    assert setting.stream.offered == [3, FRAME_BYTES_MAX, FRAME_BYTES_MAX, 2]
    assert setting.stream.taken == b"abc" + LARGEST + LARGEST + b"de"


async def test_one_task_at_a_time_waits_for_the_stream(nursery: trio.Nursery) -> None:
    setting = Setting(nursery, Gate([10, 0, 20, 5, 0, 0, 30]))  # which refuses a second

    for _ in range(3):
        setting.put(LARGEST, b"x")
        setting.writer.flush()
    await setting.writer.wait_drained()

    assert setting.stream.taken == (LARGEST + b"x") * 3


async def test_the_end_comes_after_all_that_was_queued_before_it(nursery: trio.Nursery) -> None:
    setting = Setting(nursery, Gate([10]))
    setting.put(LARGEST, LARGEST)

    setting.writer.finish()
    before = setting.stream.ends
    await setting.writer.wait_drained()
    setting.writer.flush()

    assert (before, setting.stream.ends) == (0, 1)
    assert len(setting.stream.taken) == 2 * FRAME_BYTES_MAX


async def test_patience_is_for_some_progress_and_not_for_all_of_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    setting = Setting(nursery, Gate([1] * 20, each_s=0.9 * PATIENCE_S))
    setting.put(LARGEST, LARGEST)

    setting.writer.flush()
    await setting.writer.wait_drained()

    assert autojump_clock.current_time() > 10 * PATIENCE_S
    assert len(setting.stream.taken) == 2 * FRAME_BYTES_MAX
    assert setting.ends == []


async def test_a_stream_that_takes_nothing_for_so_long_is_given_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    setting = Setting(nursery, Gate([5] + [0] * 100, each_s=1.0))
    setting.put(LARGEST, LARGEST)

    setting.writer.flush()
    await wait_all_tasks_blocked()
    await trio.sleep(PATIENCE_S + 1)

    (end,) = setting.ends
    assert "does not read" in end.reason
    assert setting.writer.written_bytes == 5
    del autojump_clock


@pytest.mark.parametrize("takes", [[], [0]], ids=["without waiting", "while it waits"])
async def test_a_stream_that_breaks_between_pieces_counts_what_has_left(
    nursery: trio.Nursery, takes: list[int]
) -> None:
    setting = Setting(nursery, Gate(takes, breaks_at=FRAME_BYTES_MAX))
    setting.put(LARGEST, LARGEST, LARGEST)
    setting.writer.flush()
    await wait_all_tasks_blocked()

    assert [end.reason for end in setting.ends] == ["it broke"]
    assert setting.writer.written_bytes == FRAME_BYTES_MAX
    assert setting.writer.unsent_bytes == 2 * FRAME_BYTES_MAX


async def test_a_writer_that_is_cancelled_has_counted_what_has_left() -> None:
    async with trio.open_nursery() as nursery:
        setting = Setting(nursery, Gate([10, 0, 20] + [0] * 1_000))
        setting.put(LARGEST, LARGEST)
        setting.writer.flush()
        while len(setting.stream.taken) < 30:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert setting.writer.written_bytes == len(setting.stream.taken) == 30
    assert setting.ends == []
