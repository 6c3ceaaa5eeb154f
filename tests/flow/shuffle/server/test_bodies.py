"""A body of a message comes in time, or not at all."""

from __future__ import annotations

from typing import Final

import pytest
import trio

from ringpop_py.flow.shuffle.server.wire import Line

pytestmark = pytest.mark.virtual_time
BYTES: Final = 20


@pytest.mark.parametrize(
    ("pauses", "is_whole", "took_s"),
    [
        ([1.0] * BYTES, True, 20.0),
        ([2.0] * BYTES, False, 30.0),  # never silent, and too long in all
        ([1.0, 1.0, 6.0], False, 7.0),  # silent
        ([], False, 5.0),
    ],
)
async def test_a_body_is_given_up_if_it_is_silent_or_too_slow(
    pauses: list[float], *, is_whole: bool, took_s: float
) -> None:
    ours, theirs = trio.socket.socketpair()
    line, body, began = Line(trio.SocketStream(ours)), bytearray(BYTES), trio.current_time()

    async def send() -> None:
        for pause in pauses:
            await trio.sleep(pause)
            await theirs.send(b"x")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        found = await line.fill(memoryview(body), within_s=30.0, silent_s=5.0)
        assert found is is_whole
        assert trio.current_time() - began == pytest.approx(took_s)
        nursery.cancel_scope.cancel()
    assert (body == b"x" * BYTES) is is_whole
    await line.aclose()
    theirs.close()
