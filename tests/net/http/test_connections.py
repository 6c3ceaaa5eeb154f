"""Connections to an application: which are kept, and what follows when one ends."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import ApplicationError, BadRequest, PeerBusy, PeerFailed
from ringpop_py.net.http import connections
from ringpop_py.net.http.connections import AppAddress, HttpConnections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
END = b""
"""In place of an answer: the application closes the connection."""
MOST = 1 << 20


class _Application:
    """It gives *answers*, one a request, and then `OK`.

    Attributes:
        came: what was asked, with the number of the connection.
        left: is set when the other end has closed a connection.
    """

    def __init__(self, *answers: bytes) -> None:
        self.came: list[tuple[int, bytes]] = []
        self.streams: list[trio.SocketStream] = []
        self.asked, self.left = trio.Event(), trio.Event()
        self.url = ""
        self._answers = [*answers]

    async def serve(self, stream: trio.SocketStream) -> None:
        number = len(self.streams)
        self.streams.append(stream)
        with suppress(trio.BrokenResourceError):  # what was left unread resets the connection
            while request := await stream.receive_some():
                self.came.append((number, request))
                self.asked.set()
                answer = self._answers.pop(0) if self._answers else OK
                if not answer:
                    return
                await stream.send_all(answer)
        self.left.set()


@asynccontextmanager
async def connected(
    *answers: bytes, idle_max: int = 9
) -> AsyncIterator[tuple[_Application, HttpConnections]]:
    application = _Application(*answers)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, application.serve, [listener])
        ours = HttpConnections(AppAddress(url), idle_max)
        yield application, ours
        await ours.aclose()
        nursery.cancel_scope.cancel()


async def ask(ours: HttpConnections, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
    exchange = await ours.begin(method, b"/x", [(b"a", b"b")], body)
    try:
        await exchange.gather(MOST, or_begin=False)
    finally:
        exchange.close()
    return exchange.answer.status, exchange.answer.take()


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with connected() as (application, ours):
        assert [await ask(ours) for _ in range(3)] == [(200, b"ok")] * 3

    assert [number for number, _ in application.came] == [0, 0, 0]


async def test_a_request_is_written_as_it_came() -> None:
    async with connected() as (application, ours):
        await ask(ours)
        await ask(ours, "POST")
        await ask(ours, "PUT", b"body")

    [(_, authority)] = ours._place.headers
    host = b"host: " + authority
    assert [request for _, request in application.came] == [
        b"GET /x HTTP/1.1\r\n" + host + b"\r\na: b\r\n\r\n",
        b"POST /x HTTP/1.1\r\n" + host + b"\r\na: b\r\ncontent-length: 0\r\n\r\n",
        b"PUT /x HTTP/1.1\r\n" + host + b"\r\na: b\r\ncontent-length: 4\r\n\r\nbody",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
        OK + b"x",
    ],
    ids=["it says so", "another answer", "some bytes"],
)
async def test_after_some_answers_a_connection_takes_no_request(answer: bytes) -> None:
    async with connected(answer) as (application, ours):
        assert [await ask(ours), await ask(ours)] == [(200, b"ok")] * 2

    assert [number for number, _ in application.came] == [0, 1]


@pytest.mark.parametrize("last", [END, b"x"], ids=["its end", "what nobody asked for"])
async def test_bytes_on_an_idle_connection_are_seen_before_the_next_request(last: bytes) -> None:
    async with connected() as (application, ours):
        await ask(ours)
        if last:
            await application.streams[0].socket.send(last)
        else:
            application.streams[0].socket.shutdown(trio.socket.SHUT_WR)
        assert await ask(ours, "POST") == (200, b"ok")

    assert [number for number, _ in application.came] == [0, 1]


async def test_a_connection_that_ends_without_an_answer_may_have_run_the_request() -> None:
    async with connected(OK, END) as (application, ours):
        await ask(ours)
        with pytest.raises(PeerFailed) as failed:
            await ask(ours)
        assert await ask(ours) == (200, b"ok")

    assert failed.value.took_effect == "unknown"
    assert [number for number, _ in application.came] == [0, 0, 1]  # it was sent once


async def test_an_answer_is_read_though_the_request_was_not() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some(10)
        await stream.send_all(b"HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n")
        await stream.send_eof()
        while await stream.receive_some():
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        ours = HttpConnections(
            AppAddress(f"http://127.0.0.1:{listener.socket.getsockname()[1]}"), 9
        )
        assert (await ask(ours, "POST", bytes(MOST)))[0] == 413
        await ours.aclose()
        nursery.cancel_scope.cancel()


async def test_a_request_that_cannot_be_sent_whole_has_the_answer_that_came_before() -> None:
    """The application has closed: sending fails, and what it said is there to be read."""
    async with connected() as (application, ours):
        await ask(ours)
        ((_, stream),) = ours._idle

        async def broken(_: object) -> None:
            await application.streams[0].socket.send(OK)
            raise trio.BrokenResourceError

        stream.send_all = broken  # type: ignore[assignment, method-assign]
        assert await ask(ours, "POST", b"body") == (200, b"ok")
        assert await ask(ours) == (200, b"ok")

    assert [number for number, _ in application.came] == [0, 1]


@pytest.mark.parametrize(
    "answer",
    [
        b"content-length: 1048577\r\n\r\n",
        b"\r\n" + bytes(MOST + 1),
        b"transfer-encoding: chunked\r\n\r\n100001\r\n" + bytes(MOST + 1),
    ],
    ids=["by its head", "until the end", "in chunks"],
)
async def test_an_answer_in_one_piece_has_a_limit(answer: bytes) -> None:
    async with connected(b"HTTP/1.1 200 OK\r\n" + answer) as (_, ours):
        with pytest.raises(ApplicationError, match="larger than 1048576 bytes"):
            await ask(ours)


async def test_idle_connections_are_closed_in_time_and_beyond_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with connected(idle_max=1) as (application, ours):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask, ours)
        await application.left.wait()  # one of the two was not kept
        monkeypatch.setattr(connections, "IDLE_S", 0.0)
        await ask(ours)
        await ask(ours)

    numbers = [number for number, _ in application.came]
    assert len(numbers) == 4
    assert numbers[2] in numbers[:2]
    assert numbers[3] == 2


async def test_a_caller_that_goes_away_ends_its_connection() -> None:
    async with connected(b"HTTP/1.1 200 OK\r\n") as (application, ours):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, ours)
            await application.asked.wait()
            nursery.cancel_scope.cancel()
        await application.left.wait()
        assert await ask(ours) == (200, b"ok")


async def test_an_application_without_tls_is_told_from_one_that_does_not_listen() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"this is not TLS")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        with pytest.raises(PeerBusy, match=r"no TLS that is trusted here: .*WRONG_VERSION_NUMBER"):
            await ask(HttpConnections(AppAddress(f"https://127.0.0.1:{port}"), 1))
        nursery.cancel_scope.cancel()


async def test_nobody_who_listens_was_asked_nothing() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    ours = HttpConnections(AppAddress(f"http://127.0.0.1:{port}"), 9)

    with pytest.raises(
        PeerBusy, match=rf"does not listen at 127\.0\.0\.1:{port}: Connection refused$"
    ):
        await ask(ours)
    await ours.aclose()


@pytest.mark.parametrize(
    "header", [(b"a b", b"c"), (b"", b"c"), (b"a", b"c\r\nd: e"), (b"a", b"c\0")], ids=repr
)
async def test_a_header_that_would_be_another_one_is_not_sent(header: tuple[bytes, bytes]) -> None:
    async with connected() as (application, ours):
        with pytest.raises(BadRequest, match="cannot be sent as HTTP"):
            await ours.begin("GET", b"/", [header], b"")

    assert application.came == []


async def test_a_connection_that_is_used_while_all_are_closed_is_not_kept() -> None:
    async with connected(b"HTTP/1.1 200 OK\r\n") as (application, ours):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, ours)
            await application.asked.wait()
            await ours.aclose()
            await application.streams[0].socket.send(b"content-length: 0\r\n\r\n")
        await application.left.wait()


@pytest.mark.parametrize(
    ("authority", "host"),
    [("Shop:80", b"shop"), ("shop", b"shop"), ("[::1]:8000", b"[::1]:8000")],
)
def test_the_host_of_a_request_is_that_of_the_url(authority: str, host: bytes) -> None:
    ours = HttpConnections(AppAddress(f"http://{authority}/path"), 9)

    assert b"\r\nhost: " + host + b"\r\n" in ours._head("GET", b"/", [], b"", None)
