"""A connection that the calls of an event loop share, to a daemon that answers as a test wants."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from ringpop_py import AsyncClient
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    PeerDeclined,
)
from ringpop_py.client.lines import asyncio_line
from ringpop_py.net.wire.calls import Answer, Call, CallReceived, CancelReceived
from ringpop_py.net.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

ECHO, WAIT = "/echo", "/wait"


class Daemon:
    """It answers `ECHO` immediately, and `WAIT` when it is told to.

    Attributes:
        ends: a connection each.
        waiting: the calls that have no answer, in their order.
        cancelled: what was in those that were cancelled.
    """

    def __init__(self, *, is_silent: bool = False) -> None:
        self.ends: list[_End] = []
        self.waiting: dict[bytes, Callable[[], None]] = {}
        self.cancelled: list[bytes] = []
        self.is_silent = is_silent
        self.changed = asyncio.Condition()
        self.address = ""

    def notify(self) -> None:
        async def tell() -> None:
            async with self.changed:
                self.changed.notify_all()

        self._telling = asyncio.get_running_loop().create_task(tell())

    async def until(self, condition: Callable[[], object]) -> None:
        async with self.changed:
            await self.changed.wait_for(condition)


class _End(asyncio.Protocol):
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._bodies: dict[int, bytes] = {}
        self.is_lost = False
        self.connection = Connection(
            host_port="127.0.0.1:1", process_name="x", initiates=False, limits=WireLimits()
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._daemon.ends.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio says why
        self.is_lost = True
        self._daemon.notify()

    def data_received(self, data: bytes) -> None:
        if self._daemon.is_silent:
            return
        for event in self.connection.receive(data):
            match event:
                case CallReceived(id=number, head=head, arg3=body):
                    self._bodies[number] = body
                    if head.endpoint == ECHO:
                        self._answer(number)
                    else:
                        self._daemon.waiting[body] = partial(self._answer, number)
                case CancelReceived(number):
                    self._daemon.cancelled.append(self._bodies[number])
                case _:
                    pass
        self.flush()
        self._daemon.notify()

    def _answer(self, number: int) -> None:
        self.connection.send_answer(number, Answer(ok=True, arg3=self._bodies[number]))
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.connection.take_outgoing())


@asynccontextmanager
async def a_daemon(
    path: Path | None = None, *, is_silent: bool = False
) -> AsyncIterator[tuple[Daemon, AsyncClient]]:
    daemon, loop = Daemon(is_silent=is_silent), asyncio.get_running_loop()
    if path is None:
        server = await loop.create_server(lambda: _End(daemon), "127.0.0.1", 0)
        daemon.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    else:
        server = await loop.create_unix_server(lambda: _End(daemon), path)
        daemon.address = f"unix:{path}"
    async with AsyncClient(daemon.address, cluster_key="") as client:
        yield daemon, client
    server.close()
    for end in daemon.ends:
        end.transport.abort()
    await server.wait_closed()


def call_of(body: bytes, endpoint: str = ECHO, ttl_s: float = 30.0) -> Call:
    return Call("ringpop", endpoint, b"", body, ttl_s=ttl_s)


async def ask(client: AsyncClient, body: bytes, endpoint: str = ECHO) -> bytes:
    return bytes((await client.call(call_of(body, endpoint))).arg3)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run *main* under asyncio. Nothing is left of it: neither a task nor an open socket."""

    async def checked() -> None:
        await asyncio.wait_for(main(), 30)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(checked())
    gc.collect()  # which would warn of an open transport


def line_of(client: AsyncClient) -> Any:  # noqa: ANN401 - its private parts are looked at
    return client._mine().line


@pytest.mark.parametrize("is_unix", [True, False])
def test_calls_at_the_same_time_share_a_connection(tmp_path: Path, *, is_unix: bool) -> None:
    async def main() -> None:
        async with a_daemon(tmp_path / "sock" if is_unix else None) as (daemon, client):
            bodies = [b"%d" % number for number in range(100)]
            asked = [asyncio.ensure_future(ask(client, body, WAIT)) for body in bodies]
            await daemon.until(lambda: len(daemon.waiting) == 100)
            assert await ask(client, b"x" * 300_000) == b"x" * 300_000
            for body in reversed(bodies):
                daemon.waiting[body]()
            assert await asyncio.gather(*asked) == bodies
            assert len(daemon.ends) == 1
            assert line_of(client)._pending == {}

    run(main)


def test_a_call_that_is_cancelled_ends_at_the_daemon_and_leaves_the_others_alone() -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            asked = {b: asyncio.ensure_future(ask(client, b, WAIT)) for b in (b"a", b"b", b"c")}
            await daemon.until(lambda: len(daemon.waiting) == 3)
            asked[b"b"].cancel()
            await daemon.until(lambda: daemon.cancelled)
            daemon.waiting[b"b"]()  # too late
            daemon.waiting[b"a"]()
            daemon.waiting[b"c"]()

            assert {await asked[body] for body in (b"a", b"c")} == {b"a", b"c"}
            assert daemon.cancelled == [b"b"]
            assert line_of(client)._pending == {}
            assert len(daemon.ends) == 1

    run(main)


def test_a_call_that_is_cancelled_when_its_answer_is_here_is_not_cancelled_there() -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            asked = asyncio.ensure_future(ask(client, b"a", WAIT))
            await daemon.until(lambda: daemon.waiting)
            line = line_of(client)
            receive = line.data_received

            def data_received(data: bytes) -> None:
                receive(data)
                asked.cancel()

            line.data_received = data_received
            daemon.waiting[b"a"]()
            with pytest.raises(asyncio.CancelledError):
                await asked
            line.data_received = receive
            assert await ask(client, b"b") == b"b"
            assert daemon.cancelled == []
            assert line._pending == {}

    run(main)


def test_a_call_cancelled_while_it_connects_does_not_end_the_connection_of_others() -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            first = asyncio.ensure_future(ask(client, b"a"))
            await asyncio.sleep(0)
            others = [asyncio.ensure_future(ask(client, body)) for body in (b"b", b"c")]
            await asyncio.sleep(0)
            first.cancel()

            assert await asyncio.gather(*others) == [b"b", b"c"]
            assert first.cancelled()
            assert len(daemon.ends) == 1

    run(main)


def test_an_answer_that_does_not_come_is_a_time_out_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio_line, "GRACE_S", 0.0)

    async def main() -> None:
        async with a_daemon() as (daemon, client):
            with pytest.raises(CallTimeout):
                await client.call(call_of(b"a", WAIT, ttl_s=0.01))
            daemon.waiting[b"a"]()
            assert await ask(client, b"b") == b"b"
            assert len(daemon.ends) == 1

    run(main)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda end: end.transport.abort(), ConnectionLost),
        (lambda end: end.transport.write(bytes(64)), ConnectionLost),
        (lambda end: (end.connection.send_goodbye("it ends"), end.flush()), PeerDeclined),
    ],
    ids=["closed", "nonsense", "goodbye"],
)
def test_when_a_connection_ends_its_calls_know_and_the_next_one_begins_another(
    end: Callable[[Any], None], kind: type[CallError]
) -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            asked = [asyncio.ensure_future(ask(client, body, WAIT)) for body in (b"a", b"b")]
            await daemon.until(lambda: len(daemon.waiting) == 2)
            end(daemon.ends[0])
            errors = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(error) for error in errors] == [kind, kind]

            assert await ask(client, b"c") == b"c"
            assert len(daemon.ends) == 2

    run(main)


def test_a_daemon_that_was_restarted_is_found_again() -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            assert await ask(client, b"a") == b"a"
            daemon.ends[0].transport.close()
            await daemon.until(lambda: daemon.ends[0].is_lost)
            while line_of(client).is_open:  # the end of it is on its way
                await asyncio.sleep(0)
            assert await ask(client, b"b") == b"b"

    run(main)


@pytest.mark.parametrize("is_unix", [True, False])
def test_nobody_who_listens_has_not_run_it(tmp_path: Path, *, is_unix: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    peer = f"unix:{tmp_path / 'sock'}" if is_unix else f"localhost:{port}"

    async def main() -> None:
        async with AsyncClient(peer, cluster_key="") as client:
            for error in await asyncio.gather(
                *(ask(client, b"a") for _ in range(3)), return_exceptions=True
            ):
                assert isinstance(error, ConnectRefused)

    run(main)


def test_what_says_nothing_or_nonsense_is_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_line, "CONNECT_TIMEOUT_S", 0.05)

    async def main() -> None:
        async with a_daemon(is_silent=True) as (daemon, client):
            with pytest.raises(ConnectFailed, match="no answer in time"):
                await ask(client, b"a")
            with pytest.raises(ConnectFailed, match="no answer in time"):
                await client.call(call_of(b"a", ttl_s=0.01))
            with suppress(TimeoutError):
                await asyncio.wait_for(ask(client, b"a"), 0.01)
            await daemon.until(lambda: all(end.is_lost for end in daemon.ends))
        monkeypatch.undo()
        async with a_daemon() as (daemon, client):
            asked = asyncio.ensure_future(ask(client, b"a"))
            while not daemon.ends:
                await asyncio.sleep(0)
            daemon.ends[0].transport.write(bytes(64))
            with pytest.raises(ConnectFailed, match="does not speak TChannel"):
                await asked

    run(main)


@pytest.mark.parametrize("end", ["answer", "cancellation", "time-out"])
def test_a_client_closes_its_connection_after_the_last_call_under_way(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio_line, "GRACE_S", 0.0)

    async def main() -> None:
        async with a_daemon() as (daemon, client):
            ttl_s = 0.2 if end == "time-out" else 20
            asked = asyncio.ensure_future(client.call(call_of(b"a", WAIT, ttl_s)))
            await daemon.until(lambda: daemon.waiting)
            await client.aclose()
            assert await ask(client, b"b") == b"b"  # over another one
            if end == "answer":
                daemon.waiting[b"a"]()
                assert (await asked).arg3 == b"a"
            elif end == "cancellation":
                asked.cancel()
            await daemon.until(lambda: daemon.ends[0].is_lost)
            assert not daemon.ends[1].is_lost
            with suppress(asyncio.CancelledError, CallTimeout):
                await asked

    run(main)


def test_a_call_that_is_begun_and_closed_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with a_daemon() as (daemon, client):
            unwanted = await client.begin(call_of(b"a", WAIT))
            await daemon.until(lambda: daemon.waiting)
            await unwanted.aclose()
            await daemon.until(lambda: daemon.cancelled)
            assert line_of(client)._pending == {}
            assert client._mine().slots.value == 256
            del unwanted

    run(main)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_call_that_is_given_up_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_line, "GRACE_S", 0.0)

    async def main() -> None:
        async with a_daemon() as (_, client):
            with pytest.raises(CallTimeout):
                await client.call(call_of(b"a", WAIT, ttl_s=0.01))
            assert len(line_of(client)._connection.calls) == 0
            assert client._mine().slots.value == 256

    run(main)
