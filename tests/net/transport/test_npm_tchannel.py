"""Calls to and from the implementation that Ringpop itself runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BadRequest
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.wire.calls import Answer, Call
from tests.bench.rpc_npm import npm_call, npm_side, npm_tchannel
from tests.bench.sides import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def home() -> Path:
    installed = npm_tchannel()
    if installed is None:
        pytest.skip("node, npm, or npm's tchannel is not to be had here")
    return installed


@pytest.mark.parametrize("checksum_type", [0, 1])
async def test_it_calls_us(nursery: trio.Nursery, home: Path, checksum_type: int) -> None:
    seen: list[IncomingCall] = []

    def echo(incoming: IncomingCall) -> Answer:
        seen.append(incoming)
        return Answer(ok=True, arg3=incoming.arg3[::-1])

    channel = Channel(process_name="test")
    channel.serve("bench", "/echo", echo)
    address = await channel.listen(Address("127.0.0.1", 0))
    await nursery.start(channel.run)

    def call() -> dict[str, object]:
        return npm_call(home, address.port, "abc", checksum_type)

    assert await trio.to_thread.run_sync(call) == {"ok": True, "body": "cba"}
    assert (seen[0].scheme, seen[0].event.head.headers["cn"]) == ("raw", "bench")


@pytest.mark.parametrize("checksum_type", [0, 1])
@pytest.mark.parametrize("size", [3, 200_000])
async def test_we_call_it(nursery: trio.Nursery, home: Path, size: int, checksum_type: int) -> None:
    channel = Channel(process_name="test")
    await nursery.start(channel.run)
    body = b"abc" * (size // 3)

    with serving(npm_side(home)) as port:
        at = Address("127.0.0.1", port)
        call = Call(
            "bench", "/echo", b"h", body, ttl_s=9.0, scheme="raw", checksum_type=checksum_type
        )
        assert await channel.call(at, call) == Answer(ok=True, arg2=b"h", arg3=body, scheme="raw")
        with pytest.raises(BadRequest):
            await channel.call(at, Call("bench", "/none", ttl_s=9.0, scheme="raw"))
