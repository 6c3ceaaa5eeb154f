"""Addresses that are cut off: calls to them wait, in both directions, until they are back."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ringpop_py.base.address import Address
from ringpop_py.base.errors import CallTimeout, ConnectTooSlow
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.transport.cuts import CutNetwork
from ringpop_py.net.wire.calls import Answer, Call


async def start(nursery: trio.Nursery) -> tuple[Channel, Address, CutNetwork]:
    network = CutNetwork()
    channel = Channel(process_name="test", network=network)
    channel.serve("app", "/echo", echo)
    address = await channel.listen(Address("127.0.0.1", 0))
    await nursery.start(channel.run)
    return channel, address, network


def echo(incoming: IncomingCall) -> Answer:
    return Answer(ok=True, arg3=incoming.arg3)


def asking(ttl_s: float) -> Call:
    return Call("app", "/echo", b"", b"x", ttl_s=ttl_s)


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "new"])
async def test_nobody_gets_through_a_cut_until_it_is_over(
    nursery: trio.Nursery, *, connected: bool
) -> None:
    a, at_a, network_a = await start(nursery)
    b, at_b, network_b = await start(nursery)
    if connected:
        await a.call(at_b, asking(5))

    network_a.cut([at_b])
    network_b.cut([at_a])
    for channel, to in ((a, at_b), (b, at_a)):
        with pytest.raises((CallTimeout, ConnectTooSlow)):
            await channel.call(to, asking(0.2))
    network_a.cut([])
    network_b.cut([])

    assert (await a.call(at_b, asking(5))).arg3 == b"x"
    assert (await b.call(at_a, asking(5))).arg3 == b"x"


async def test_a_call_that_waits_long_enough_goes_on_after_the_cut(nursery: trio.Nursery) -> None:
    a, _, network = await start(nursery)
    _, at_b, _ = await start(nursery)
    await a.call(at_b, asking(5))
    network.cut([at_b])

    async def heal() -> None:
        await trio.testing.wait_all_tasks_blocked()
        network.cut([])

    nursery.start_soon(heal)
    assert (await a.call(at_b, asking(10))).arg3 == b"x"


async def test_others_are_reached_during_a_cut(nursery: trio.Nursery) -> None:
    a, _, network = await start(nursery)
    _, at_b, _ = await start(nursery)
    network.cut([Address("127.0.0.1", 1)])

    assert (await a.call(at_b, asking(5))).arg3 == b"x"


async def test_waiting_calls_end_when_their_stream_is_closed(nursery: trio.Nursery) -> None:
    network = CutNetwork()
    [listener] = await network.listen(Address("127.0.0.1", 0))
    stream = await network.connect(listener.address, origin=None)
    network.cut([listener.address])
    assert stream.send_nowait(b"x") == 0

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await stream.send_some(memoryview(b"x"))

    nursery.start_soon(send)
    await trio.testing.wait_all_tasks_blocked()
    stream.close()
    listener.close()
