"""The settings of requests that come in at a node."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from ringpop_py import open_ringpop
from ringpop_py.base import arguments
from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import Config, EntryConfig, ProxyConfig
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.door import app
from ringpop_py.edge.entry.keys import rule_of
from ringpop_py.net.http.message import MARK
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.proxy.entry import FOLLOW_ENDPOINT, Follow, RingReply
from tests.logged import events_in
from tests.net.security.sites import a_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop

    Came = list[bytes]

DOOR = Address("127.0.0.1", 0)
APP = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Config(http_in_key="query:x"), "--key needs --http-in HOST:PORT"),
        (Config(http_in=DOOR, http_in_key="query:x"), "--http-in needs --app-url URL"),
        (Config(http_in=DOOR, app_url=APP), "--http-in needs --key: header:NAME"),
        (Config(http_in=DOOR, app_url=APP, http_in_key="x"), "key 'x' is none of"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(config: Config, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rule_of(config)
    assert told in str(refused.value)


def test_a_node_at_which_nothing_comes_in_needs_no_key() -> None:
    assert rule_of(Config()) is None


@asynccontextmanager
async def door(
    *,
    app_listens: bool = True,
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[Ringpop, Came]]:
    """A node with a door, and what its application gets: an answer ends each connection."""
    came: Came = []

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                more = await stream.receive_some()
                if not more:
                    return
                head += more
            came.append(head)
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\nRingpop-Forwarded: shown\r\n"
                b"Content-Length: 2\r\nConnection: close\r\n\r\nok"
            )

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        if app_listens:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
        else:
            await listeners[0].aclose()
        config = Config(
            listen=DOOR,
            http_in=DOOR,
            app_url=f"http://127.0.0.1:{port}",
            http_in_key="header:x-k",
            **settings,
        )
        async with open_ringpop(config) as node:
            yield node, came
        nursery.cancel_scope.cancel()


def door_of(node: Ringpop) -> Address:
    """Where requests come in."""
    assert node.http_in_address is not None
    return node.http_in_address


async def answer_to(address: Address, data: bytes) -> bytes:
    """Send *data*; return all that comes until the connection ends."""
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(data)
        with trio.fail_after(20):
            return b"".join([some async for some in stream])


TWO_LENGTHS = (
    b"POST / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nContent-Length: 6\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\nx-k: 1\r\n\r\n"
)


async def test_a_body_with_two_lengths_ends_the_connection() -> None:
    async with door() as (node, came):
        answer = await answer_to(door_of(node), TWO_LENGTHS)

        entry = node.proxying.operations.entry
        assert (entry.done, entry.refused, entry.failed) == (0, 1, 0)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert came == []


async def test_bodies_of_all_requests_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODIES_BYTES_MAX", 200_000)
    head = (
        b"POST / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    )
    async with door() as (node, _), AsyncExitStack() as opened:
        address = door_of(node)
        for _ in range(4):
            stream = await opened.enter_async_context(await trio.open_tcp_stream(*address))
            await stream.send_all(head % 100_000 + bytes(49_000))  # and no more
        answer = b""
        with trio.fail_after(20):
            while b" 503 " not in answer:  # until the others are read
                answer = await answer_to(address, head % 20_000 + bytes(20_000))
        assert b"retry-after: 1" in answer.lower()
        assert b"connection: close" in answer.lower()
        get = b"GET / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nConnection: close\r\n\r\n"
        assert (await answer_to(address, get)).startswith(b"HTTP/1.1 200 ")  # it has no body
        await opened.aclose()
        with trio.fail_after(20):
            while not answer.startswith(b"HTTP/1.1 200 "):
                answer = await answer_to(address, head % 20_000 + bytes(20_000))


async def test_an_application_without_a_middleware_does_not_see_the_mark() -> None:
    get = b"GET / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nConnection: close\r\n\r\n"
    async with door() as (node, came):
        await answer_to(door_of(node), get)
        assert MARK.encode() not in came[-1].lower()

        client = Client(str(node.address))
        call = Call(NODE_SERVICE, FOLLOW_ENDPOINT, b"", encode(Follow()), ttl_s=5)
        told = decode(RingReply, (await trio.to_thread.run_sync(client.call, call)).arg3)
        answer = await answer_to(door_of(node), get)
        assert f"{MARK}: {told.mark}".encode() in came[-1].lower()
        assert MARK.encode() not in answer.lower()  # although the application shows it

        await answer_to(door_of(node), get.replace(b"GET", b"TRACE"))
        assert came[-1].startswith(b"TRACE ")
        assert MARK.encode() not in came[-1].lower()
        entry = node.proxying.operations.entry
        assert (entry.done, entry.refused, entry.failed) == (3, 0, 0)
        assert sum(entry.seconds.counts) == 1


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (b"Host: Shop.example:8443", b"Shop.example:8443"),
        (b"Host: [2001:db8::9]", b"[2001:db8::9]"),
        (b"Host: upstream\r\nX-Forwarded-Host: evil, shop.example", b"shop.example"),
        (b"Host: a\r\nX-Forwarded-Host: a b", None),
        (b"X-Other: 1", None),
    ],
)
async def test_the_application_sees_the_host_that_the_caller_has_named(
    said: bytes, seen: bytes | None
) -> None:
    async with door() as (node, came):
        # Only in HTTP/1.0 may there be no host.
        await answer_to(door_of(node), b"GET / HTTP/1.0\r\n" + said + b"\r\nx-k: 1\r\n\r\n")
        own = str(node.config.app_url).partition("//")[2].encode()

    [request] = came
    hosts = [line for line in request.split(b"\r\n") if line.lower().startswith(b"host:")]
    assert hosts == [b"host: " + (seen or own)]


@pytest.mark.parametrize("is_believed", [True, False])
async def test_a_proxy_is_believed_if_it_is_in_a_trusted_network(*, is_believed: bool) -> None:
    entry = EntryConfig(trusted=("127.0.0.0/8",) if is_believed else ("10.0.0.0/8",))
    get = (
        b"GET / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nConnection: close\r\n"
        b"X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-User: ann\r\n\r\n"
    )
    async with door(entry=entry) as (node, came):
        await answer_to(door_of(node), get)

    [request] = (data.lower() for data in came)
    assert (b"203.0.113.9" in request) is (b"ann" in request) is is_believed
    assert b"x-forwarded-for: " + (b"203.0.113.9, " if is_believed else b"") + b"127." in request


async def test_a_key_that_is_too_long_is_a_mistake_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arguments, "ROUTED_KEY_CHARACTERS_MAX", 10)
    get = b"GET / HTTP/1.1\r\nHost: a\r\nx-k: 12345678901\r\nConnection: close\r\n\r\n"
    async with door() as (node, came):
        answer = await answer_to(door_of(node), get)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"a key has at most 10 characters, not 11" in answer
    assert came == []


async def test_a_refusal_names_no_member_and_the_log_says_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with door(app_listens=False, proxy=ProxyConfig(max_retries=0)) as (node, _):
        answers = [await answer_to(door_of(node), post) for _ in range(3)]
        name = node.name

    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert name.encode() not in answer
        assert b"127.0.0.1" not in answer
    [event] = events_in(caplog, "request-not-forwarded")
    assert "does not listen" in str(event)


@pytest.mark.parametrize("has_keys", [False, True])
async def test_with_a_certificate_requests_come_in_with_tls_or_without(
    tmp_path: Path, *, has_keys: bool
) -> None:
    site, key = a_site(), tmp_path / "cluster.key"
    certificate, private_key = site.write(tmp_path)
    write_keys(key, (new_key(),), replace=False)
    settings: Any = {"http_cert": certificate, "http_key": private_key}
    if has_keys:  # which are not for the public
        settings["cluster_key"] = str(key)
    context = ssl.create_default_context(cadata=site.certificate.decode())
    async with door(**settings) as (node, came), httpx.AsyncClient(verify=context) as http:
        for scheme in ("https", "http"):
            answer = await http.get(f"{scheme}://{door_of(node)}/x", headers={"x-k": "1"})
            assert answer.text == "ok"
            assert f"x-forwarded-proto: {scheme}\r\n".encode() in came.pop().lower()


GET = b"GET / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nConnection: close\r\n\r\n"
LONG = b"POST / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
SOCKET = (
    b"GET / HTTP/1.1\r\nHost: a\r\nx-k: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def test_open_streams_keep_no_answer_out_that_fits_into_one_message() -> None:
    size = 2 << 20
    proxy = ProxyConfig(streams_max=1, max_retries=0)
    async with door(proxy=proxy) as (node, came):
        other: Any = SimpleNamespace(close=lambda: None)
        node.application.streams.add(other, may_be_cut=True)
        short = await answer_to(door_of(node), GET)
        beginning = bytes((1 << 20) + 1)  # more than is read before it is asked for
        long = await answer_to(door_of(node), LONG % size + beginning)

    assert short.startswith(b"HTTP/1.1 200 ")
    assert long.startswith(b"HTTP/1.1 503 ")
    assert [head.split()[0] for head in came] == [b"GET"]


async def test_requests_and_websockets_have_a_limit_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door() as (node, came):
        monkeypatch.setattr(app, "REQUESTS_MAX", 0)
        answers = [await answer_to(door_of(node), data) for data in (GET, SOCKET)]

    assert [answer.split()[1] for answer in answers] == [b"503", b"503"]
    assert b"requests are open" in answers[0]
    assert b"websockets are open" in answers[1]
    assert came == []
