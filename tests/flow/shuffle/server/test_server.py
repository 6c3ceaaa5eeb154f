"""Connections that send what they should not, or nothing, to a process for shuffles."""

from __future__ import annotations

import tracemalloc
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.record import Winner
from ringpop_py.flow.shuffle.server import server, wire
from tests.flow.shuffle.server.world import world_of
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

    Connect = Callable[[], Awaitable[trio.SocketStream]]

MIB = 1 << 20
LIST = c.packed_head(1, c.List(), 0)
END = c.End("mine", 1, {number: Winner(1, 1) for number in range(40_000)})


def announced(head: bytes, head_bytes: int) -> bytes:
    """The beginning of a message whose head is said to have so many bytes."""
    return c.FIXED.pack(c.MAGIC, 1, head_bytes, 0) + head


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Connect]:
    """A process; yields what makes a connection to it."""
    async with world_of(folder, "a") as world, trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = world.servers["a"]
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        port = listeners[0].socket.getsockname()[1]
        async with AsyncExitStack() as opened:

            async def connect() -> trio.SocketStream:
                return await opened.enter_async_context(
                    await trio.open_tcp_stream("127.0.0.1", port)
                )

            yield connect
        nursery.cancel_scope.cancel()


async def is_closed(stream: trio.SocketStream) -> bool:
    """Wait until something comes; return whether it was the end."""
    try:
        return not await stream.receive_some()
    except trio.BrokenResourceError:
        return True


async def reply_to(stream: trio.SocketStream, data: bytes) -> c.Reply:
    """Send a call; return the reply."""
    await stream.send_all(data)
    message = await wire.Line(stream).receive()
    assert message is not None
    return c.reply_in(message.head)


async def test_a_head_takes_no_memory_before_it_has_come(tmp_path: Path) -> None:
    async with served(tmp_path) as connect:
        streams = [await connect() for _ in range(40)]
        tracemalloc.start()
        for stream in streams:
            await stream.send_all(announced(b"\x94\xa3End", c.HEAD_BYTES_MAX))
        await wait_all_tasks_blocked(0.05)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert peak_bytes < 40 * MIB // 4
        assert isinstance(await reply_to(await connect(), LIST), c.Listed)  # others are served


async def test_a_large_head_is_read_whole(tmp_path: Path) -> None:
    data = c.packed_head(1, END, 0)
    assert len(data) > 2 * c.SMALL_HEAD_BYTES
    async with served(tmp_path) as connect:
        reply = await reply_to(await connect(), data)
    assert isinstance(reply, c.Failed)
    assert reply.code == "shuffle-unknown"


async def test_large_heads_that_stop_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HEAD_S", 0.5)
    data = c.packed_head(1, END, 0)
    async with served(tmp_path) as connect:
        stopped = [await connect() for _ in range(wire.LARGE_AT_A_TIME)]
        for stream in stopped:
            await stream.send_all(data[: c.SMALL_HEAD_BYTES + 100])
        await wait_all_tasks_blocked(0.05)
        assert [await is_closed(stream) for stream in stopped] == [True] * len(stopped)
        assert isinstance(await reply_to(await connect(), data), c.Failed)


async def test_a_connection_may_be_silent_between_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HEAD_S", 0.01)
    async with served(tmp_path) as connect:
        stream = await connect()
        for _ in range(2):
            await trio.sleep(0.05)  # longer than a head may take
            assert isinstance(await reply_to(stream, LIST), c.Listed)


async def test_most_calls_have_a_small_head_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as connect:
        for _ in range(50):
            stream = await connect()
            data = b"\x91\xa4List".ljust(c.SMALL_HEAD_BYTES, b" ")
            await stream.send_all(announced(data, c.SMALL_HEAD_BYTES + 1))
            assert await is_closed(stream)

    [event] = events_in(caplog, "shuffle-trouble")
    assert "has at most 65536 bytes" in str(event)


async def test_connections_are_limited_and_idle_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 5)
    monkeypatch.setattr(server, "RESERVED", 0)
    async with served(tmp_path) as connect:
        streams = [await connect() for _ in range(5)]
        for stream in streams[::-1]:
            await reply_to(stream, LIST)
        for number in range(20):
            streams.append(await connect())
            await reply_to(streams[-1], LIST)
            first = streams[4 - number] if number < 5 else streams[number]
            assert await is_closed(first)

    [event] = events_in(caplog, "shuffle-trouble")
    assert "it came when 5 were open: idle ones end" in str(event)
