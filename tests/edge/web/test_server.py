"""HTTP on real sockets: it begins and ends with the node, whatever callers do."""

from __future__ import annotations

import builtins
import socket
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
import trio.testing

from ringpop_py import Address, Config, ConfigError, open_ringpop
from ringpop_py.edge.web import server
from ringpop_py.edge.web.refusals import HttpRefusal
from ringpop_py.edge.web.server import BODY_S_MAX, HttpServer, in_time
from ringpop_py.state.stores.memory import MemoryStore, StoreFault

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop

ANY_PORT = Address("127.0.0.1", 0)


def url_of(node: Ringpop) -> str:
    assert node.http_address is not None
    return f"http://{node.http_address}"


async def test_a_node_serves_http_while_it_is_there() -> None:
    async with open_ringpop(Config(http=ANY_PORT), store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        async with httpx.AsyncClient(base_url=url_of(node)) as http:
            for number in range(20):  # over one connection
                await http.put(f"/keyspaces/k/keys/a%2F{number}", json=number + 1)
            found = await http.get("/keyspaces/k/keys", params={"prefix": "a/1", "limit": "2"})

    assert [row["key"] for row in found.json()["rows"]] == ["a/1", "a/10"]
    async with httpx.AsyncClient(base_url=url_of(node)) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("/alive")


async def test_head_has_the_headers_of_get_and_no_body_and_so_has_304() -> None:
    async with open_ringpop(Config(http=ANY_PORT), store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        async with httpx.AsyncClient(base_url=url_of(node)) as http:
            await http.put("/keyspaces/k/keys/x", json="value")
            got = await http.get("/keyspaces/k/keys/x")
            head = await http.head("/keyspaces/k/keys/x")
            known = {"If-None-Match": got.headers["etag"]}
            unchanged = await http.get("/keyspaces/k/keys/x", headers=known)
            after = await http.get("/keyspaces/k/keys/x")

    assert (head.status_code, head.content) == (200, b"")
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    for header in ("etag", "content-type", "content-length"):
        assert head.headers[header] == got.headers[header]
    assert after.json() == "value"


async def test_a_port_in_use_is_said_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname())

        with pytest.raises(ConfigError, match=rf"--http {address}.*[Aa]ddress already in use"):
            async with open_ringpop(Config(http=address)):
                pass


async def test_the_http_port_is_given_back_if_the_node_cannot_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        http = Address(*free.getsockname())
        free.close()
        config = Config(listen=Address(*taken.getsockname()), http=http)

        with pytest.raises(ConfigError):
            async with open_ringpop(config):
                pass

        HttpServer(http).close()


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64 + ".x"])
def test_a_host_that_is_none_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match="--http"):
        HttpServer(Address(host, 0))


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:  # noqa: ANN401
        if name.startswith("hypercorn"):
            raise ModuleNotFoundError(name=name)
        return original(name, *rest)

    monkeypatch.delitem(sys.modules, "ringpop_py.edge.web.server")
    monkeypatch.setattr(builtins, "__import__", importing)

    with pytest.raises(ConfigError, match=r"pip install 'ringpop_py\[http\]'"):
        async with open_ringpop(Config(http=ANY_PORT)):
            pass


async def test_requests_under_way_are_answered_when_the_node_ends() -> None:
    answers = []

    async def ask(url: str) -> None:
        async with httpx.AsyncClient(base_url=url) as http:
            answers.append(await http.get("/keyspaces/k/keys/x?timeout_s=0.5"))

    store = MemoryStore()
    async with (
        trio.open_nursery() as nursery,
        open_ringpop(Config(http=ANY_PORT), store=store) as node,
    ):
        await node.open_keyspace("k", partitions=4)
        store.inject(StoreFault.FAILS, verb="list", count=10_000)  # so no partition is served
        nursery.start_soon(ask, url_of(node))
        await trio.sleep(0.1)

    assert [answer.status_code for answer in answers] == [503]


async def test_a_caller_that_says_nothing_does_not_keep_the_node_from_ending() -> None:
    async with open_ringpop(Config(http=ANY_PORT)) as node:
        assert node.http_address is not None
        silent = await trio.open_tcp_stream(*node.http_address)
        await silent.send_all(b"GET /alive HTT")
        begun = trio.current_time()

    assert trio.current_time() - begun < 5
    await silent.aclose()


async def test_nothing_of_a_request_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    async with (
        open_ringpop(Config(http=ANY_PORT)) as node,
        httpx.AsyncClient(base_url=url_of(node)) as http,
    ):
        capfd.readouterr()
        await http.get("/alive")
        out, err = capfd.readouterr()

    assert "/alive" not in out + err


async def test_a_caller_that_reads_nothing_does_not_keep_the_node_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "UNREAD_MS_MAX", 500)
    async with open_ringpop(Config(http=ANY_PORT), store=MemoryStore()) as node:
        keyspace = await node.open_keyspace("k", partitions=4)
        await keyspace.update_many([(f"{n}", "put", b"x" * 100_000) for n in range(200)])
        assert node.http_address is not None
        deaf = await trio.open_tcp_stream(*node.http_address)
        await deaf.send_all(
            b"GET /keyspaces/k/keys HTTP/1.1\r\nHost: x\r\nAccept: application/msgpack\r\n\r\n"
        )
        await trio.sleep(0.5)
        begun = trio.current_time()

    assert trio.current_time() - begun < 5
    await deaf.aclose()


async def test_a_node_that_drains_closes_a_connection_with_its_next_answer() -> None:
    async with open_ringpop(Config(http=ANY_PORT)) as node:
        assert node.http_address is not None
        stream = await trio.open_tcp_stream(*node.http_address)
        await stream.send_all(b"GET /alive HTTP/1.1\r\nhost: node\r\n\r\n")
        kept = await stream.receive_some()
        node.drain()
        await node.wait_until(lambda ringpop: ringpop.node.local.draining)

        await stream.send_all(b"GET /alive HTTP/1.1\r\nhost: node\r\n\r\n")
        answer = b""
        with trio.fail_after(5):
            async for data in stream:
                answer += data

    assert b"200" in kept
    assert b"200" in answer
    assert b"connection: close" in answer
    await stream.aclose()


async def exchange(node: Ringpop, request: bytes) -> bytes:
    """What the node's HTTP port answers to *request*, until it closes or says nothing for long."""
    assert node.http_address is not None
    answer = b""
    async with await trio.open_tcp_stream(*node.http_address) as stream:
        await stream.send_all(request)
        with trio.move_on_after(1):
            async for data in stream:
                answer += data
    return answer


async def test_names_that_are_permitted_are_served_and_no_others() -> None:
    async with open_ringpop(Config(http=ANY_PORT, http_hosts=("Node.example",))) as node:
        answers = [
            await exchange(
                node, b"GET /health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host
            )
            for host in (b"node.example:80", b"evil.example", b"")
        ]
        old = await exchange(node, b"GET /health HTTP/1.0\r\n\r\n")

    assert [answer.split()[1] for answer in (*answers, old)] == [b"200", b"421", b"200", b"200"]


async def test_an_offer_of_an_upgrade_to_http_2_is_passed_over() -> None:
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__"
    )
    async with open_ringpop(Config(http=ANY_PORT)) as node:
        answer = await exchange(node, b"GET /alive HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200")


async def test_http_2_without_tls_serves_nothing() -> None:
    request_ = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)
    # HEADERS of stream 1 or 3, from the static table: GET, http, /, and a host.
    headers = b"\x82\x86\x84\x41\x09localhost"
    async with open_ringpop(Config(http=ANY_PORT)) as node:
        frame = len(headers).to_bytes(3, "big") + b"\x01\x05" + (3).to_bytes(4, "big") + headers
        answer = await exchange(node, request_ + frame)

    assert b'"HttpVersion"' in answer
    assert b"HTTP/1.1 200" not in answer


async def test_requests_that_are_never_finished_keep_nobody_from_asking_whether_it_is_alive() -> (
    None
):
    async with open_ringpop(Config(http=ANY_PORT)) as node:
        assert node.http_address is not None
        async with AsyncExitStack() as stack:
            for number in range(900):
                stream = await trio.open_tcp_stream(*node.http_address)
                await stack.enter_async_context(stream)
                half = b"GET /alive HTTP/1.1\r\nHost: x\r\nX: "
                if number % 2:
                    half = (
                        b"PUT /keyspaces/k/keys/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
                    )
                await stream.send_all(half)
            async with httpx.AsyncClient(base_url=url_of(node), timeout=5) as http:
                answers = [await http.get(path) for path in ("/alive", "/ready")]

    assert [answer.status_code for answer in answers] == [200, 200]


async def test_a_connection_that_fails_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_connection: object) -> None:
        await trio.lowlevel.checkpoint()
        monkeypatch.undo()
        raise trio.BusyResourceError("another task is currently sending data")

    async with open_ringpop(Config(http=ANY_PORT)) as node:
        async with httpx.AsyncClient(base_url=url_of(node)) as kept:
            await kept.get("/alive")
            monkeypatch.setattr("hypercorn.trio.tcp_server.TCPServer._read_data", fails)
            failed = await exchange(node, b"GET /alive HTTP/1.1\r\nHost: x\r\n\r\n")
            alive = [await kept.get("/alive")]
        async with httpx.AsyncClient(base_url=url_of(node)) as other:
            alive.append(await other.get("/alive"))

    assert failed == b""
    assert [answer.status_code for answer in alive] == [200, 200]


async def test_a_body_has_its_time_as_a_whole_and_not_for_each_piece(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    pause_s = BODY_S_MAX / 4

    async def piece() -> dict[str, Any]:
        await trio.sleep(pause_s)
        return {"type": "http.request", "body": b"x", "more_body": True}

    receive, began = in_time(piece), trio.current_time()
    for _ in range(3):
        await receive()
    with pytest.raises(HttpRefusal, match="the body did not arrive within 30 s"):  # noqa: PT012
        while True:
            await receive()

    assert trio.current_time() - began == pytest.approx(BODY_S_MAX)


async def test_a_client_that_has_sent_its_body_may_wait_for_the_reply_for_any_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    messages: list[dict[str, Any]] = [{"type": "http.request"}, {"type": "http.disconnect"}]

    async def next_one() -> dict[str, Any]:
        message = messages.pop(0)
        if message["type"] == "http.disconnect":
            await trio.sleep(10 * BODY_S_MAX)
        return message

    receive = in_time(next_one)
    await receive()

    assert await receive() == {"type": "http.disconnect"}
