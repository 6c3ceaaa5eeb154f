"""The replay of forwarded HTTP requests, against an application that writes down what arrives."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import ApplicationError, BadRequest, PeerBusy
from ringpop_py.net.http.replay import HttpReplayer
from ringpop_py.route.proxy.request import HttpRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class _Listening:
    """An application: *targets* has what stood in the request lines, *go* lets it answer."""

    def __init__(self) -> None:
        self.targets: list[bytes] = []
        self.go = trio.Event()
        self.port = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        while head := await stream.receive_some():
            self.targets.append(head.split(b" ")[1])
            await self.go.wait()
            await stream.send_all(OK)


@asynccontextmanager
async def _an_application() -> AsyncIterator[_Listening]:
    found = _Listening()
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        found.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, found.serve, [listener])
        yield found
        nursery.cancel_scope.cancel()


PATHS = [
    *("/", "/a?b=c", "/a/../b", "/a//b", "/a/./b", "/%2e%2e", "/a%2Fb", "/a?u=/../..", "/a;b=c"),
    *("/a#b", "/{x}|y", "/a%zz"),
]


@pytest.mark.parametrize("prefix", ["", "/", "/base", "/base/"])
async def test_a_path_arrives_byte_for_byte_below_the_prefix(prefix: str) -> None:
    async with _an_application() as application:
        application.go.set()
        replayer = HttpReplayer(f"http://127.0.0.1:{application.port}{prefix}", 100, 10)
        sent = [path for path in PATHS if path != "/%2e%2e" or prefix in ("", "/")]

        for path in sent:
            assert (await replayer.replay(HttpRequest("GET", path)))[2] == b"ok"
        await replayer.aclose()

    assert application.targets == [(prefix.rstrip("/") + path).encode() for path in sent]


async def test_characters_outside_ascii_are_sent_percent_encoded() -> None:
    async with _an_application() as application:
        application.go.set()
        replayer = HttpReplayer(f"http://127.0.0.1:{application.port}", 100, 10)
        await replayer.replay(HttpRequest("GET", "/\u00e9"))
        with pytest.raises(BadRequest, match="is not Unicode"):
            await replayer.replay(HttpRequest("GET", "/\ud800"))
        await replayer.aclose()

    assert application.targets == [b"/%C3%A9"]


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret", "/a/../../secret", "/..", "/%2e%2e/secret", "/.%2E/secret"),
        *("/..%2fsecret", "/..\\secret", "/./../secret", "//../secret"[1:], "/a/..//../secret"),
    ],
)
async def test_a_path_that_leaves_the_prefix_is_refused(path: str) -> None:
    replayer = HttpReplayer("http://127.0.0.1:1/base", 100, 10)

    with pytest.raises(BadRequest, match="leaves '/base'"):
        await replayer.replay(HttpRequest("GET", path))


async def test_a_request_beyond_the_limit_is_declined_at_once_and_others_do_not_wait() -> None:
    async with _an_application() as application:
        replayer = HttpReplayer(f"http://127.0.0.1:{application.port}", 100, 110)
        done: list[int] = []

        async def replay() -> None:
            done.append((await replayer.replay(HttpRequest("GET", "/slow")))[0])

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(110):
                    nursery.start_soon(replay)
                while len(application.targets) < 110:  # none waits for a connection of the pool
                    await trio.sleep(0.01)
                with pytest.raises(PeerBusy, match="110 requests under way"):
                    await replayer.replay(HttpRequest("GET", "/quick"))
                application.go.set()

            assert done == [200] * 110
            assert (await replayer.replay(HttpRequest("GET", "/after")))[2] == b"ok"
        await replayer.aclose()


async def test_a_response_that_is_too_large_is_final_because_the_application_has_run() -> None:
    async with _an_application() as application:
        application.go.set()
        replayer = HttpReplayer(f"http://127.0.0.1:{application.port}", 1, 10)
        try:
            with pytest.raises(ApplicationError, match="larger than 1 bytes") as refused:
                await replayer.replay(HttpRequest("GET", "/"))
        finally:
            await replayer.aclose()
    assert (refused.value.took_effect, refused.value.passes) == ("unknown", False)
