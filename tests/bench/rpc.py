"""Requests and answers of 64 bytes between two processes over loopback.

Each server and each client is a process of its own: ``python -m tests.bench.rpc MODE …``. The
peers are npm's tchannel (`rpc_npm.js`), a blocking echo in C (the floor of the kernel), and the
RPC that one would write first with trio: a task, a lock and a send for each message.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.base.address import Address
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.wire.calls import Answer, Call
from tests.bench import hop
from tests.bench.report import (
    Row,
    larger_is_better,
    smaller_is_better,
    without_peer,
)
from tests.bench.rpc_npm import npm_side, npm_tchannel
from tests.bench.sides import START_S, Side, output, python_side, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ringpop_py.net.transport.network import Network

CALLERS: Final = (1, 16, 64, 256)
BODY: Final = b"x" * 64
ROUNDS_COUNT: Final = 7
SECONDS: Final = 0.5
WARM_UP_S: Final = 0.5
NPM_TARGET: Final = 2.5
P50_TARGET: Final = 2.0
C_TARGET: Final = 0.5
TARGET_CALLERS: Final = 64

NPM: Final = "npm tchannel 4"

C_ECHO: Final = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
enum { SIZE = 168 };  /* the frame of a call with 64 bytes */
static void whole(int fd, char *data) {
    for (int got = 0, n; got < SIZE; got += n)
        if ((n = read(fd, data + got, SIZE - got)) <= 0) exit(0);
}
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char data[SIZE] = {0};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, size) || listen(listener, 1)) return 1;
    getsockname(listener, (void *)&at, &size);
    if (!fork()) {
        int fd = accept(listener, 0, 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        for (;;) { whole(fd, data); if (write(fd, data, SIZE) != SIZE) return 0; }
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0), count = 15000;
    if (connect(fd, (void *)&at, size)) return 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < count; i++) {
        if (write(fd, data, SIZE) != SIZE) return 1;
        whole(fd, data);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%f\n", count / (b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9));
}
"""


class Figures(NamedTuple):
    """What a client measured."""

    rate: float
    p50_us: float


def run() -> Iterator[Row]:
    """The rows of `rpc`."""
    ours = python_side("tests.bench.rpc", "server", "client")
    naive = python_side("tests.bench.rpc", "naive-server", "naive-client")
    home = npm_tchannel()
    npm = None if home is None else npm_side(home)
    for callers in CALLERS:
        sides = [side for side in (ours, naive, npm) if side is not None]
        figures = measured_in_turns(sides, callers)
        target, p50_target = (NPM_TARGET, P50_TARGET) if callers == TARGET_CALLERS else (None, None)
        name, latency = f"rpc.requests.{callers}_callers", f"rpc.p50.{callers}_callers"
        rate, p50_us = figures[0]
        if npm is None:
            yield without_peer(name, rate, "requests/s", NPM, target)
            yield without_peer(latency, p50_us, "us", NPM, p50_target)
        else:
            yield larger_is_better(name, rate, "requests/s", NPM, figures[2].rate, target)
            yield smaller_is_better(latency, p50_us, "us", NPM, figures[2].p50_us, p50_target)
        yield larger_is_better(name, rate, "requests/s", "naive trio", figures[1].rate)
    yield _against_c(ours)
    yield from hop.rows()
    yield from hop.many_rows()


def _against_c(ours: Side) -> Row:
    name, peer = "rpc.round_trips.1_caller", "C blocking echo"
    with tempfile.TemporaryDirectory() as folder:
        echo = _compiled_echo(Path(folder))
        if echo is None:
            (figures,) = measured_in_turns([ours], 1)
            return without_peer(name, figures.rate, "1/s", peer, C_TARGET)
        rates: list[tuple[float, float]] = []
        for _ in range(ROUNDS_COUNT):
            (figures,) = measured_in_turns([ours], 1, rounds_count=1)
            done = subprocess.run([echo], capture_output=True, check=True, timeout=START_S)
            rates.append((figures.rate, float(done.stdout)))
        rate, c_rate = (median(column) for column in zip(*rates, strict=True))
    return larger_is_better(name, rate, "1/s", peer, c_rate, C_TARGET)


def _compiled_echo(folder: Path) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, echo = folder / "echo.c", folder / "echo"
    source.write_text(C_ECHO)
    subprocess.run([compiler, "-O2", "-o", echo, source], check=True, timeout=START_S)
    return echo


def measured_in_turns(
    sides: Sequence[Side], callers: int, rounds_count: int = ROUNDS_COUNT
) -> list[Figures]:
    """The medians of each side, in turns, because what slows one round slows all in it."""
    measured: list[list[Figures]] = [[] for _ in sides]
    for _ in range(rounds_count):
        for side, figures in zip(sides, measured, strict=True):
            with serving(side) as port:
                command = [*side.client, f"127.0.0.1:{port}", str(callers), str(SECONDS)]
                figures.append(Figures(**json.loads(output(command, side.environment))))
    return [Figures(*map(median, zip(*figures, strict=True))) for figures in measured]


# The processes on our side.


async def _measured(callers: int, seconds: float, turn: Callable[[], Awaitable[object]]) -> Figures:
    """Figures of *callers* tasks that take turn after turn."""
    times: list[float] = []
    warm_at = perf_counter() + WARM_UP_S
    end_at = warm_at + seconds

    async def caller() -> None:
        now = perf_counter()
        while now < end_at:
            began = now
            await turn()
            now = perf_counter()
            if warm_at <= began and now <= end_at:
                times.append(now - began)

    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(caller)
    return Figures(len(times) / seconds, 1e6 * median(times))


async def serve(network: Network | None = None) -> None:
    """Echo calls, at a port that is printed."""

    def echo(incoming: IncomingCall) -> Answer:
        return Answer(ok=True, arg2=incoming.arg2, arg3=incoming.arg3)

    channel = Channel(process_name="bench", network=network)
    channel.serve("bench", "/echo", echo)
    print((await channel.listen(Address("127.0.0.1", 0))).port, flush=True)
    await channel.run()


async def call(to: Address, callers: int, seconds: float, network: Network | None = None) -> None:
    """Call *to* from so many callers, and print their figures."""
    channel = Channel(process_name="bench", network=network)

    async def turn() -> None:
        answer = await channel.call(to, Call("bench", "/echo", b"", BODY, ttl_s=10.0, scheme="raw"))
        assert answer.arg3 == BODY

    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        print(json.dumps((await _measured(callers, seconds, turn))._asdict()))
        nursery.cancel_scope.cancel()


_NAIVE_HEAD: Final = struct.Struct(">II")


class _Naive:
    """One end that takes a task, a lock and a send for each message."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._lock = trio.Lock()
        self._rest = b""
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, bytes] = {}
        self._next_id = 0

    async def send(self, call_id: int, body: bytes) -> None:
        async with self._lock:
            await self._stream.send_all(_NAIVE_HEAD.pack(len(body), call_id) + body)

    async def call(self, body: bytes) -> bytes:
        call_id = self._next_id = self._next_id + 1
        event = self._waiting[call_id] = trio.Event()
        with trio.fail_after(10):
            await self.send(call_id, body)
            await event.wait()
        return self._answers.pop(call_id)

    async def serve(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self.send, *await self._message())

    async def take_answers(self) -> None:
        while True:
            call_id, body = await self._message()
            self._answers[call_id] = body
            self._waiting.pop(call_id).set()

    async def _message(self) -> tuple[int, bytes]:
        size, call_id = _NAIVE_HEAD.unpack(await self._exactly(_NAIVE_HEAD.size))
        return call_id, await self._exactly(size)

    async def _exactly(self, count: int) -> bytes:
        while len(self._rest) < count:
            data = await self._stream.receive_some()
            if not data:
                await trio.sleep_forever()  # until this process is stopped
            self._rest += data
        data, self._rest = self._rest[:count], self._rest[count:]
        return data


async def _naive_serve() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listener.socket.getsockname()[1], flush=True)
    await _Naive(await listener.accept()).serve()


async def _naive_call(to: Address, callers: int, seconds: float) -> None:
    naive = _Naive(await trio.open_tcp_stream(*to))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(naive.take_answers)
        figures = await _measured(callers, seconds, lambda: naive.call(BODY))
        print(json.dumps(figures._asdict()))
        nursery.cancel_scope.cancel()


def _main(mode: str, *rest: str) -> None:
    match mode:
        case "server":
            trio.run(serve)
        case "naive-server":
            trio.run(_naive_serve)
        case "client" | "naive-client":
            to, callers, seconds = rest
            caller = call if mode == "client" else _naive_call
            trio.run(caller, Address.parse(to), int(callers), float(seconds))
        case _:
            sys.exit(f"there is no mode {mode}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
