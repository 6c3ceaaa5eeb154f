"""What `handle_or_proxy` costs where another node owns the key, beside a plain call.

Processor time of each end, entry and owner, over the same channel with the same body: load of the
machine changes it less than it changes rates. ``python -m tests.bench.hop MODE …`` is one end.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import ProxyConfig
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.wire.calls import Answer, Call
from ringpop_py.route.proxy.application import Application
from ringpop_py.route.proxy.forward import Proxy
from ringpop_py.route.proxy.owners import RingOwners
from ringpop_py.route.proxy.receive import ProxyServer
from ringpop_py.route.proxy.request import AppCall, ManyCall, ManyRequest, Request
from tests.bench.report import Row, larger_is_better, smaller_is_better
from tests.bench.sides import output, python_side, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

BODY: Final = b"x" * 64
CALLERS: Final = 64
TURNS: Final = 300
ROUNDS: Final = 7
TARGET: Final = 1 / 1.6
"""Of a plain call's time to that of `handle_or_proxy`, both ends together."""

PLAIN: Final = "a plain call"
ENTRY: Final = "entry"
OWNER: Final = "owner"
RING: Final = HashRing([ENTRY, OWNER])
KEY: Final = next(key for key in map(str, range(100)) if RING.lookup(key) == OWNER)


MANY: Final = 100_000
MANY_TARGET: Final = 50.0
"""Of the requests a second of many keys at a time to those of a call for each."""
MANY_GOAL: Final = 2e6


class CpuTime(NamedTuple):
    """Microseconds of a processor for one call, at each end."""

    entry_us: float
    owner_us: float


def rows() -> Iterator[Row]:
    """Yield the rows of `rpc` about `handle_or_proxy`."""
    plain, hop = (python_side("tests.bench.hop", "server", mode) for mode in ("plain", "hop"))
    taken: dict[str, list[CpuTime]] = {"plain": [], "hop": []}
    for _ in range(ROUNDS):
        for mode, side in (("plain", plain), ("hop", hop)):
            with serving(side) as port:
                said = output([*side.client, f"127.0.0.1:{port}"], side.environment)
                taken[mode].append(CpuTime(**json.loads(said)))
    for name, of, target in (
        ("both", sum, TARGET),
        (ENTRY, lambda time: time.entry_us, None),
        (OWNER, lambda time: time.owner_us, None),
    ):
        ours_us, plain_us = (median(map(of, taken[mode])) for mode in ("hop", "plain"))
        yield smaller_is_better(
            f"rpc.handle_or_proxy.cpu.{name}", ours_us, "CPU us/call", PLAIN, plain_us, target
        )


def many_rows() -> Iterator[Row]:
    """Yield the rows of `rpc` about many keys at a time."""
    side = python_side("tests.bench.hop", "server", "many")
    taken: dict[str, list[float]] = {"many": [], "each": []}
    for _ in range(ROUNDS):
        with serving(side) as port:
            for mode, rates in taken.items():
                command = [sys.executable, "-m", "tests.bench.hop", mode, f"127.0.0.1:{port}"]
                rates.append(float(output(command, side.environment)))
    many, each = (median(taken[mode]) for mode in ("many", "each"))
    yield larger_is_better("rpc.many", many, "keys/s", "a call a key", each, MANY_TARGET)
    yield larger_is_better("rpc.many.goal", many, "keys/s", "goal", MANY_GOAL, 1.0)


async def _serve() -> None:
    channel = Channel(process_name="bench")
    proxy = _proxy(channel, OWNER, None)

    def echo(incoming: IncomingCall) -> Answer:
        return Answer(ok=True, arg3=incoming.arg3)

    def handle(call: AppCall) -> bytes:
        return call.body

    def cpu_time(_incoming: IncomingCall) -> Answer:
        return Answer(ok=True, arg3=str(process_time()).encode())

    channel.serve("bench", "/echo", echo)
    channel.serve("bench", "/cpu", cpu_time)

    def handle_many(call: ManyCall) -> Sequence[bytes]:
        return call.bodies

    proxy.application.add_handler("/echo", handle)
    proxy.application.add_many_handler("/many", handle_many)
    print((await channel.listen(Address("127.0.0.1", 0))).port, flush=True)
    await channel.run()


async def _call(to: Address, mode: str) -> None:
    channel = Channel(process_name="bench")
    proxy = _proxy(channel, ENTRY, to)

    async def plain() -> None:
        answer = await channel.call(to, Call("bench", "/echo", b"", BODY, ttl_s=10.0, scheme="raw"))
        assert answer.arg3 == BODY

    async def hop() -> None:
        reply = await proxy.handle_or_proxy(KEY, Request("/echo", BODY))
        assert reply is not None

    async def owner_s() -> float:
        answer = await channel.call(to, Call("bench", "/cpu", ttl_s=10.0, scheme="raw"))
        return float(answer.arg3)

    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        turn = plain if mode == "plain" else hop
        await _turns(turn, TURNS // 5)
        owner_before_s, before_s = await owner_s(), process_time()
        await _turns(turn, TURNS)
        entry_us = 1e6 * (process_time() - before_s) / (CALLERS * TURNS)
        owner_us = 1e6 * (await owner_s() - owner_before_s) / (CALLERS * TURNS)
        print(json.dumps(CpuTime(entry_us, owner_us)._asdict()))
        nursery.cancel_scope.cancel()


async def _rate(to: Address, mode: str) -> None:
    """Print how many requests a second the owner answers, of many keys at a time or of each."""
    channel = Channel(process_name="bench")
    proxy = _proxy(channel, ENTRY, to)
    numbers = map(str, range(10 * MANY))
    keys = [key for key in numbers if RING.lookup(key) == OWNER][:MANY]
    bodies = [BODY] * len(keys)

    async def each() -> None:
        await proxy.handle_or_proxy(KEY, Request("/echo", BODY))

    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        rates = []
        for _ in range(3):
            began_at = perf_counter()
            if mode == "many":
                results = await proxy.proxy_many(keys, ManyRequest("/many", bodies))
                assert results == bodies
                rates.append(len(keys) / (perf_counter() - began_at))
            else:
                await _turns(each, TURNS // 3)
                rates.append(CALLERS * (TURNS // 3) / (perf_counter() - began_at))
        print(max(rates))
        nursery.cancel_scope.cancel()


async def _turns(turn: Callable[[], Awaitable[None]], count: int) -> None:
    async def caller() -> None:
        for _ in range(count):
            await turn()

    async with trio.open_nursery() as nursery:
        for _ in range(CALLERS):
            nursery.start_soon(caller)


def _proxy(channel: Channel, local: str, owner: Address | None) -> Proxy:
    async def reconcile(_owner: str, _keys: Sequence[str]) -> None:
        """Both ends have one ring, always."""

    application = Application(local, ProxyConfig())
    owners = RingOwners(local, lambda: RING, reconcile, application.config.consistency)
    proxy = Proxy(channel, application, owners, service="app", address_of=lambda _name: owner)
    ProxyServer(channel, proxy)
    return proxy


def _main(mode: str, *rest: str) -> None:
    match mode:
        case "server":
            trio.run(_serve)
        case "plain" | "hop":
            trio.run(_call, Address.parse(rest[0]), mode)
        case "many" | "each":
            trio.run(_rate, Address.parse(rest[0]), mode)
        case _:
            sys.exit(f"there is no mode {mode}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
