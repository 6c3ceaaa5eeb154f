"""The same over real sockets of this machine."""

from __future__ import annotations

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import (
    CallError,
    ConfigError,
    ConnectFailed,
    ConnectRefused,
)
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.wire.calls import Answer, Call

ANY_PORT = Address("127.0.0.1", 0)


def echo(incoming: IncomingCall) -> Answer:
    return Answer(ok=True, arg3=incoming.arg3)


async def start(nursery: trio.Nursery) -> tuple[Channel, Address]:
    channel = Channel(process_name="test")
    channel.serve("app", "/echo", echo)
    address = await channel.listen(ANY_PORT)
    await nursery.start(channel.run)
    return channel, address


@pytest.mark.parametrize("size", [0, 5_000_000])
async def test_bodies_of_every_size_go_both_ways(nursery: trio.Nursery, size: int) -> None:
    a, at_a = await start(nursery)
    b, at_b = await start(nursery)
    body = bytes(range(256)) * (size // 256)

    for _ in range(3):
        there = await a.call(at_b, Call("app", "/echo", b"", body, ttl_s=20))
        back = await b.call(at_a, Call("app", "/echo", b"", body, ttl_s=20))
        assert there.arg3 == back.arg3 == body

    assert len(a.links) == len(b.links) == 1


async def test_large_messages_both_ways_at_once_do_not_block_each_other(
    nursery: trio.Nursery,
) -> None:
    a, at_a = await start(nursery)
    b, at_b = await start(nursery)
    await a.call(at_b, Call("app", "/echo", ttl_s=20))
    done = 0

    async def caller(channel: Channel, to: Address) -> None:
        nonlocal done
        answer = await channel.call(to, Call("app", "/echo", b"", bytes(3 << 20), ttl_s=20))
        done += answer.ok

    async with trio.open_nursery() as callers:
        for _ in range(4):
            callers.start_soon(caller, a, at_b)
            callers.start_soon(caller, b, at_a)

    assert done == 8


async def test_many_callers_share_a_connection(nursery: trio.Nursery) -> None:
    a, _ = await start(nursery)
    _, at_b = await start(nursery)
    answers: list[bytes] = []

    async def caller(number: int) -> None:
        for turn in range(5):
            body = b"%d/%d" % (number, turn)
            answers.append((await a.call(at_b, Call("app", "/echo", b"", body, ttl_s=5))).arg3)

    async with trio.open_nursery() as callers:
        for number in range(100):
            callers.start_soon(caller, number)

    assert len(set(answers)) == 500
    assert len(a.links) == 1


async def test_a_refused_connection_fails_at_once(nursery: trio.Nursery) -> None:
    a, _ = await start(nursery)
    spare = Channel(process_name="x")
    closed = await spare.listen(ANY_PORT)
    for listener in spare.listeners:
        listener.close()
    outcomes: list[Answer | CallError] = []

    with trio.fail_after(10):
        with pytest.raises(ConnectRefused):
            await a.call(closed, Call("app", "/echo", ttl_s=20))
        a.begin(Address("127.0.0.1", 1), Call("app", "/echo", ttl_s=20), outcomes.append)
        while not outcomes:
            await trio.sleep(0.01)

    assert isinstance(outcomes[0], ConnectRefused)


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 64])
async def test_a_host_that_can_be_no_name_fails_its_call_and_no_more(
    nursery: trio.Nursery, host: str
) -> None:
    a, at_a = await start(nursery)

    with pytest.raises(ConnectFailed, match="not a host name"):
        await a.call(Address(host, 3000), Call("app", "/echo", ttl_s=5))
    with pytest.raises(ConfigError, match="not a host name"):
        await a.listen(Address(host, 3000))

    assert (await a.call(at_a, Call("app", "/echo", arg3=b"x", ttl_s=5))).arg3 == b"x"


async def test_a_port_in_use_says_what_to_do(nursery: trio.Nursery) -> None:
    _, address = await start(nursery)

    with pytest.raises(ConfigError, match="choose another address") as caught:
        await Channel(process_name="x").listen(address)

    assert "\n" not in str(caught.value)


async def test_a_peer_that_goes_away_is_noticed(nursery: trio.Nursery) -> None:
    a, _ = await start(nursery)
    gone: list[Address] = []
    a.on_disconnect = gone.append

    async with trio.open_nursery() as short:
        b, at_b = await start(short)
        await a.call(at_b, Call("app", "/echo", ttl_s=5))
        short.cancel_scope.cancel()
    with trio.fail_after(10):
        while not gone:
            await trio.sleep(0.01)

    assert gone == [at_b]
    assert len(b.links) == 0
