"""A connection that the calls of trio's loop share, to a daemon that answers as a test wants."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.lowlevel

from ringpop_py import AsyncClient
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    PeerDeclined,
    TooManyInFlight,
)
from ringpop_py.client.lines import anyio_line, concurrent
from ringpop_py.net.wire.calls import Answer, Call, CallReceived, CancelReceived
from ringpop_py.net.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ECHO, WAIT = "/echo", "/wait"


class End:
    """The daemon's end of a connection: it answers `ECHO` immediately, and `WAIT` when told to."""

    def __init__(self, daemon: Daemon, stream: trio.abc.Stream) -> None:
        self.daemon = daemon
        self.stream = stream
        self.bodies: dict[int, bytes] = {}
        self.is_lost = False
        self.sending = trio.Lock()
        self.connection = Connection(
            host_port="127.0.0.1:1", process_name="x", initiates=False, limits=WireLimits()
        )

    async def run(self) -> None:
        try:
            while data := await self.stream.receive_some(65_536):
                if not self.daemon.is_silent:
                    await self._take(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.is_lost = True
            self.daemon.notify()

    async def _take(self, data: bytes | bytearray) -> None:
        for event in self.connection.receive(bytes(data)):
            match event:
                case CallReceived(id=number, head=head, arg3=body):
                    self.bodies[number] = body
                    if head.endpoint == ECHO:
                        self.connection.send_answer(number, Answer(ok=True, arg3=body))
                    else:
                        self.daemon.waiting[body] = partial(self.answer, number)
                case CancelReceived(number):
                    self.daemon.cancelled.append(self.bodies[number])
                case _:
                    pass
        await self.flush()
        self.daemon.notify()

    async def answer(self, number: int) -> None:
        self.connection.send_answer(number, Answer(ok=True, arg3=self.bodies[number]))
        await self.flush()

    async def flush(self) -> None:
        async with self.sending:
            await self.stream.send_all(self.connection.take_outgoing())


class Daemon:
    """Its connections, the calls that wait, and what was in those that were cancelled."""

    def __init__(self, *, is_silent: bool) -> None:
        self.is_silent = is_silent
        self.ends: list[End] = []
        self.waiting: dict[bytes, Callable[[], Any]] = {}
        self.cancelled: list[bytes] = []
        self.changed = trio.Event()

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(20):
            while not condition():
                await self.changed.wait()

    async def serve(self, stream: trio.abc.Stream) -> None:
        end = End(self, stream)
        self.ends.append(end)
        self.notify()
        async with stream:
            await end.run()


@asynccontextmanager
async def a_daemon(
    path: Path | None = None, *, is_silent: bool = False
) -> AsyncIterator[tuple[Daemon, AsyncClient]]:
    daemon = Daemon(is_silent=is_silent)
    async with trio.open_nursery() as nursery:
        if path is None:
            listeners: Any = await trio.open_tcp_listeners(0, host="127.0.0.1")
            address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        else:
            sock = trio.socket.socket(socket.AF_UNIX)
            await sock.bind(str(path))
            sock.listen()
            listeners, address = [trio.SocketListener(sock)], f"unix:{path}"
        nursery.start_soon(trio.serve_listeners, daemon.serve, listeners)
        async with AsyncClient(address, cluster_key="") as client:
            yield daemon, client
        nursery.cancel_scope.cancel()


def call_of(body: bytes, endpoint: str = ECHO, ttl_s: float = 20.0) -> Call:
    return Call("ringpop", endpoint, b"", body, ttl_s=ttl_s)


class Asked:
    """Calls in tasks of their own, with what became of each."""

    def __init__(self, client: AsyncClient, nursery: trio.Nursery) -> None:
        self.client = client
        self.ends: dict[bytes, object] = {}
        self.scopes: dict[bytes, trio.CancelScope] = {}
        self._nursery = nursery

    def ask(self, body: bytes, endpoint: str = WAIT, ttl_s: float = 20.0) -> None:
        self._nursery.start_soon(self._ask, body, endpoint, ttl_s)

    async def _ask(self, body: bytes, endpoint: str, ttl_s: float) -> None:
        with trio.CancelScope() as self.scopes[body]:
            try:
                self.ends[body] = (await self.client.call(call_of(body, endpoint, ttl_s))).arg3
            except CallError as error:
                self.ends[body] = type(error)


def line_of(client: AsyncClient) -> Any:  # noqa: ANN401 - its private parts are looked at
    return client._mine().line


def is_at_rest(client: AsyncClient) -> bool:
    line = line_of(client)
    return not (line._pending or line._woken or line._outcomes or line._is_read)


@pytest.mark.parametrize("is_unix", [True, False])
async def test_calls_at_the_same_time_share_a_connection(tmp_path: Path, *, is_unix: bool) -> None:
    bodies = [b"%d" % number for number in range(100)]
    async with a_daemon(tmp_path / "sock" if is_unix else None) as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            for body in bodies:
                asked.ask(body)
            await daemon.until(lambda: len(daemon.waiting) == 100)
            large = b"x" * 300_000
            assert (await client.call(call_of(large))).arg3 == large
            for body in reversed(bodies):
                await daemon.waiting[body]()
        assert asked.ends == {body: body for body in bodies}
        assert len(daemon.ends) == 1
        assert is_at_rest(client)


@pytest.mark.parametrize("cancelled", [b"a", b"b", b"c"])  # one of them reads for all
async def test_a_call_that_is_cancelled_ends_at_the_daemon_and_leaves_the_others_alone(
    cancelled: bytes,
) -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            for body in (b"a", b"b", b"c"):
                asked.ask(body)
                await daemon.until(partial(daemon.waiting.__contains__, body))
            asked.scopes[cancelled].cancel()
            await daemon.until(lambda: daemon.cancelled)
            for answer in daemon.waiting.values():  # that of the cancelled one comes too late
                await answer()
        assert asked.ends == {body: body for body in (b"a", b"b", b"c") if body != cancelled}
        assert daemon.cancelled == [cancelled]
        assert is_at_rest(client)
        assert (await client.call(call_of(b"d"))).arg3 == b"d"


async def test_when_all_are_cancelled_nothing_is_left() -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            for body in (b"a", b"b", b"c"):
                asked.ask(body)
            await daemon.until(lambda: len(daemon.waiting) == 3)
            nursery.cancel_scope.cancel()
        await daemon.until(lambda: len(daemon.cancelled) == 3)
        assert is_at_rest(client)
        assert client._mine().slots.value == 256


async def test_a_call_that_is_begun_and_closed_ends_at_the_daemon() -> None:
    async with a_daemon() as (daemon, client):
        wanted = await client.begin(call_of(b"a", WAIT))
        other = await client.begin(call_of(b"b", WAIT), more=True)
        await daemon.until(lambda: len(daemon.waiting) == 2)
        await wanted.aclose()
        await wanted.aclose()
        await daemon.until(lambda: daemon.cancelled)
        await daemon.waiting[b"b"]()
        assert (await other.result()).arg3 == b"b"
        assert daemon.cancelled == [b"a"]
        assert is_at_rest(client)


async def test_a_call_cancelled_while_it_connects_does_not_hinder_the_others() -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            asked.ask(b"a", ECHO)
            await daemon.until(lambda: daemon.ends)
            for body in (b"b", b"c"):
                asked.ask(body, ECHO)
            asked.scopes[b"a"].cancel()
        assert {asked.ends.get(body) for body in (b"b", b"c")} == {b"b", b"c"}


@pytest.mark.parametrize("slow", [b"a", b"b"])
async def test_an_answer_that_does_not_come_is_a_time_out_of_its_call(
    slow: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anyio_line, "GRACE_S", 0.0)
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            for body in (b"a", b"b", b"c"):
                asked.ask(body, ttl_s=0.3 if body == slow else 20.0)
                await daemon.until(partial(daemon.waiting.__contains__, body))
            while slow not in asked.ends:
                await trio.sleep(0.01)
            for answer in daemon.waiting.values():
                await answer()
        expected = {body: body for body in (b"a", b"b", b"c")}
        assert asked.ends == expected | {slow: CallTimeout}
        assert len(daemon.ends) == 1
        assert is_at_rest(client)


async def _abort(end: End) -> None:
    await end.stream.aclose()


async def _nonsense(end: End) -> None:
    await end.stream.send_all(bytes(64))


async def _goodbye(end: End) -> None:
    end.connection.send_goodbye("it ends")
    await end.flush()


@pytest.mark.parametrize(
    ("end", "kind"),
    [(_abort, ConnectionLost), (_nonsense, ConnectionLost), (_goodbye, PeerDeclined)],
)
async def test_when_a_connection_ends_its_calls_know_and_the_next_one_begins_another(
    end: Callable[[End], Any], kind: type[CallError]
) -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            for body in (b"a", b"b"):
                asked.ask(body)
            await daemon.until(lambda: len(daemon.waiting) == 2)
            await end(daemon.ends[0])
        assert asked.ends == {b"a": kind, b"b": kind}
        assert (await client.call(call_of(b"c"))).arg3 == b"c"
        assert len(daemon.ends) == 2


async def test_a_daemon_that_was_restarted_is_found_again() -> None:
    async with a_daemon() as (daemon, client):
        assert (await client.call(call_of(b"a"))).arg3 == b"a"
        await daemon.ends[0].stream.aclose()
        while line_of(client).is_open:  # the end of it is on its way
            await trio.lowlevel.checkpoint()
        assert (await client.call(call_of(b"b"))).arg3 == b"b"
        assert len(daemon.ends) == 2


async def test_nobody_who_listens_has_not_run_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    async with AsyncClient(f"127.0.0.1:{port}", cluster_key="") as client:
        for _ in range(2):
            with pytest.raises(ConnectRefused):
                await client.call(call_of(b"a"))
        assert client._mine().slots.value == 256


async def test_what_says_nothing_is_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyio_line, "CONNECT_TIMEOUT_S", 0.1)
    async with a_daemon(is_silent=True) as (daemon, client):
        with pytest.raises(ConnectFailed, match="no answer in time"):
            await client.call(call_of(b"a"))
        with pytest.raises(ConnectFailed, match="no answer in time"):
            await client.call(call_of(b"a", ttl_s=0.01))
        await daemon.until(lambda: all(end.is_lost for end in daemon.ends))


@pytest.mark.parametrize("end", ["answer", "cancellation"])
async def test_a_client_closes_its_connection_after_the_last_call_under_way(end: str) -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            asked.ask(b"a")
            await daemon.until(lambda: daemon.waiting)
            await client.aclose()
            assert (await client.call(call_of(b"b"))).arg3 == b"b"  # over another one
            if end == "answer":
                await daemon.waiting[b"a"]()
            else:
                asked.scopes[b"a"].cancel()
            await daemon.until(lambda: daemon.ends[0].is_lost)
            assert not daemon.ends[1].is_lost
        assert asked.ends == ({b"a": b"a"} if end == "answer" else {})


async def test_a_connection_that_is_closed_while_it_is_made_is_not_left_behind() -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            asked.ask(b"a", ECHO)
            while line_of(client) is None:
                await trio.lowlevel.checkpoint()
            line = line_of(client)
            await client.aclose()
        assert asked.ends == {b"a": ConnectFailed}
        assert line._pending == {}
        await daemon.until(lambda: daemon.ends and all(end.is_lost for end in daemon.ends))


async def test_a_caller_cancelled_when_it_is_next_to_read_passes_the_reading_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_daemon() as (daemon, client):
        async with trio.open_nursery() as nursery:
            asked = Asked(client, nursery)
            for body in (b"a", b"b", b"c"):  # the first one reads
                asked.ask(body)
                await daemon.until(partial(daemon.waiting.__contains__, body))
            line = line_of(client)
            hand_on = line._hand_on

            def hand_on_and_cancel() -> None:
                hand_on()
                asked.scopes[b"b"].cancel()

            monkeypatch.setattr(line, "_hand_on", hand_on_and_cancel)
            await daemon.waiting[b"a"]()
            await daemon.until(lambda: daemon.cancelled)
            await daemon.waiting[b"c"]()
        assert asked.ends == {b"a": b"a", b"c": b"c"}
        assert is_at_rest(client)


async def test_an_answer_that_nobody_wants_any_more_is_not_kept() -> None:
    async with a_daemon() as (daemon, client):
        unwanted = await client.begin(call_of(b"a"))
        other = await client.begin(call_of(b"b", WAIT), more=True)
        await daemon.until(lambda: daemon.waiting)
        await daemon.waiting[b"b"]()
        assert (await other.result()).arg3 == b"b"
        assert line_of(client)._outcomes
        await unwanted.aclose()
        assert daemon.cancelled == []
        assert is_at_rest(client)


async def test_only_the_first_call_of_a_caller_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrent, "CALLS_MAX", 1)
    async with a_daemon() as (daemon, client):
        first = await client.begin(call_of(b"a", WAIT))
        second = await client.begin(call_of(b"b", WAIT), more=True)
        with pytest.raises(TooManyInFlight):
            await client.call(call_of(b"c", ttl_s=0.05))
        await daemon.until(lambda: len(daemon.waiting) == 2)
        for answer in daemon.waiting.values():
            await answer()
        assert [(await each.result()).arg3 for each in (second, first)] == [b"b", b"a"]
        assert (await client.call(call_of(b"d"))).arg3 == b"d"
