"""Calls to a process for shuffles, over connections that break at the wrong moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import ShuffleFull, ShuffleUnavailable
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.server.wire import Peer

if TYPE_CHECKING:
    from pathlib import Path

CALL = c.Describe("any")


async def served(nursery: trio.Nursery, reply: bytes) -> str:
    """Serve connections: read what comes, send *reply* and close. Return the address."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(reply)
        await stream.aclose()

    listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    return f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"


@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize(
    "reply",
    [b"", b"no message", c.packed_head(1, c.File(), 1000), c.packed_head(1, c.File(), 9) + b"some"],
    ids=["nothing", "noise", "no-body", "half-a-body"],
)
async def test_a_reply_that_breaks_off_ends_its_call(
    tmp_path: Path, reply: bytes, *, to_file: bool
) -> None:
    async with trio.open_nursery() as nursery:
        peer = Peer("a", await served(nursery, reply), nursery, None)
        with trio.fail_after(10), pytest.raises(ShuffleUnavailable):
            await peer.call(CALL, timeout_s=600, path=tmp_path / "file" if to_file else None)
        nursery.cancel_scope.cancel()


async def test_a_call_after_a_lost_connection_makes_a_new_one() -> None:
    async with trio.open_nursery() as nursery:
        whole = c.packed_head(1, c.Said(200), 0)
        peer = Peer("a", await served(nursery, whole), nursery, None)
        with trio.fail_after(10):
            assert await peer.call(CALL, timeout_s=5) == (c.Said(200), bytearray())
            # The second call has number 2, and the reply is to number 1: nobody takes it.
            with pytest.raises(ShuffleUnavailable):
                await peer.call(CALL, timeout_s=5)
        nursery.cancel_scope.cancel()


async def test_the_error_of_a_peer_is_raised_so_that_a_client_hears_why() -> None:
    async with trio.open_nursery() as nursery:
        failed = c.packed_head(1, c.Failed("shuffle-full", "no room"), 0)
        peer = Peer("a", await served(nursery, failed), nursery, None)
        with trio.fail_after(10), pytest.raises(ShuffleFull, match="no room"):
            await peer.call(CALL, timeout_s=5)
        nursery.cancel_scope.cancel()
