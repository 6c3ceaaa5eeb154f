"""Probes of the application: what counts as an answer, what others see, and when they are made."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from ringpop_py import Address
from ringpop_py.base.config.settings import Config, ProxyConfig
from ringpop_py.base.errors import ConfigError, PeerBusy
from ringpop_py.edge.daemon import open_ringpop
from ringpop_py.member.swim.member import AWAY
from ringpop_py.node.probes import probe
from ringpop_py.route.proxy.request import HttpRequest
from tests.e2e.local_cluster import free_addresses
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANY = Address("127.0.0.1", 0)


@asynccontextmanager
async def application(answer: bytes, at: Address = ANY) -> AsyncIterator[str]:
    """An application that says *answer* to each request; its URL."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                more = await stream.receive_some()
                if not more:
                    return
                head += more
            path = head.split()[1]
            found = b"404 Not Found" if path != b"/app/health" else answer
            await stream.send_all(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % found)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(at.port, host=at.host)
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield "http://{}:{}/app".format(*listeners[0].socket.getsockname())
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "health", "trouble"),
    [
        (b"503 No", None, ""),  # it listens, which is all that is asked
        (b"204 No Content", "/health", ""),
        (b"302 Found", "/health", ""),
        (b"503 No", "/health", "/health answers 503"),
        (b"200 OK", "/other", "/other answers 404"),
        (b"nonsense", "/health", "the application"),
    ],
)
async def test_what_counts_as_an_answer(answer: bytes, health: str | None, trouble: str) -> None:
    async with application(answer) as url:
        found = await probe(url, health)

    assert found.startswith(trouble)
    assert bool(found) == bool(trouble)


@pytest.mark.parametrize("health", [None, "/health"])
async def test_what_does_not_listen_fails(health: str | None) -> None:
    [address] = free_addresses(1)

    assert "does not listen" in await probe(f"http://{address}", health)


async def test_a_page_that_hangs_fails_in_time() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")  # the kernel accepts
    host, port = listeners[0].socket.getsockname()

    found = await probe(f"http://{host}:{port}", "/health")

    await listeners[0].aclose()
    assert found == "it did not answer within 1 s"


async def test_a_node_joins_with_its_application_away_and_says_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    [at] = free_addresses(1)
    async with open_ringpop(Config(listen=ANY, app_url=f"http://{at}", http=ANY)) as node:
        was_away = node.node.local.away
        page = f"http://{node.http_address}"
        async with httpx.AsyncClient() as http, application(b"200 OK", at):
            before = await http.get(f"{page}/ready")
            with trio.fail_after(20):
                await node.wait_until(lambda node: not node.node.local.away)
            after = await http.get(f"{page}/ready")

    assert was_away
    assert [before.status_code, after.status_code] == [503, 200]
    assert "does not listen" in before.text
    assert len(events_in(caplog, "application-away")) == 1
    assert len(events_in(caplog, "application-back")) == 1


async def test_requests_that_are_refused_shut_the_door_as_probes_do() -> None:
    proxy = ProxyConfig(max_retries=0)
    async with (
        application(b"200 OK") as url,
        open_ringpop(Config(listen=ANY, app_url=url, proxy=proxy)) as node,
    ):
        assert not node.node.local.away
        door = node.readiness.door
        assert door is not None

        [nobody] = free_addresses(1)
        node.application._http._place.port = nobody.port  # type: ignore[union-attr]
        with pytest.raises(PeerBusy):
            await node.application.replay(HttpRequest("GET", "/x"))

        assert door.in_doubt
        with trio.fail_after(20):  # by the probe that follows immediately, and which is answered
            while door.in_doubt:
                await trio.sleep(0.01)
        assert door.is_open


async def test_the_ringpop_dialect_has_no_such_label() -> None:
    [at] = free_addresses(1)
    config = Config(listen=ANY, app_url=f"http://{at}", dialect="ringpop")
    async with open_ringpop(config) as node:
        assert AWAY not in node.node.local.labels
        assert node.readiness.application_trouble


async def test_a_page_to_ask_needs_an_application() -> None:
    with pytest.raises(ConfigError, match="--app-health needs --app-url URL"):
        async with open_ringpop(Config(listen=ANY, app_health="/health")):
            pass


@pytest.mark.parametrize("path", ["health", "//other/health", "/a b", "", 1])
def test_a_page_to_ask_is_a_path(path: object) -> None:
    with pytest.raises(ConfigError, match="app_health is a path that begins with one /"):
        Config(app_health=path)  # type: ignore[arg-type]
