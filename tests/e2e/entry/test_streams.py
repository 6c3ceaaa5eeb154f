"""Long bodies and answers, events, and websockets: through the host that does not own the key."""

from __future__ import annotations

import hashlib
import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import httpx
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from tests.e2e.entry.hosts import Hosts
from tests.e2e.local_cluster import free_addresses, wait_until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from wsproto.events import Event

    from ringpop_py.base.address import Address

MIB = 1 << 20
LONG_S = 20.0


class StreamHosts(Hosts):
    """Two hosts; *entries* are where callers reach the application of each."""

    entries: list[Address]

    def other_for(self, key: str, path: str, scheme: str = "http") -> str:
        """The URL of *path* for *key* at the host that does not own it."""
        owner = self[0].admin("/admin/lookup", {"key": key})["dest"]
        place = [node.name for node in self.nodes].index(owner)
        return f"{scheme}://{self.entries[1 - place]}/{path}"


@pytest.fixture(scope="module", params=["streams", "streams-behind"])
def hosts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamHosts]:
    hosts = StreamHosts(tmp_path_factory.mktemp(request.param), 2, request.param)
    hosts.entries = hosts.apps
    if request.param == "streams":
        hosts.entries = free_addresses(2)
        for node, entry in zip(hosts.nodes, hosts.entries, strict=True):
            node.command += ["--http-in", str(entry), "--key", "path:/*/{key}"]
            node.command += ["--http-in-body-max", "24MiB"]
    with hosts:
        hosts.wait_converged()
        hosts.start_apps()
        yield hosts
        print(hosts.logs(), hosts.app_logs())  # shown if a test fails


@pytest.fixture
def web() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=LONG_S) as client:
        yield client


def test_events_come_as_they_are_sent(hosts: StreamHosts, web: httpx.Client) -> None:
    with web.stream("GET", hosts.other_for("e1", "events/e1?count=200")) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [line.rpartition(" ")[2] for line in lines] == [str(n) for n in range(200)]


def test_an_event_does_not_wait_for_the_next_one(hosts: StreamHosts, web: httpx.Client) -> None:
    """The application would send for ever; its caller reads three, and goes away."""
    with web.stream("GET", hosts.other_for("e2", "events/e2")) as answer:
        lines = answer.iter_lines()
        assert [next(lines), next(lines), next(lines)][2].endswith(" 1")

    def is_gone() -> bool:
        return any("e2" in web.get(f"http://{app}/gone").json() for app in hosts.apps)

    wait_until(is_gone, LONG_S, "the application of the owner learns of it")


@pytest.mark.parametrize("how", ["", "&length"])
def test_a_long_answer_comes_whole(hosts: StreamHosts, web: httpx.Client, how: str) -> None:
    pieces = 20 * 16
    answer = web.get(hosts.other_for("d1", f"download/d1?pieces={pieces}{how}"))
    assert answer.status_code == 200
    assert (
        hashlib.sha256(answer.content).digest()
        == hashlib.sha256(bytes(range(256)) * 256 * pieces).digest()
    )
    assert ("content-length" in answer.headers) == bool(how)
    assert answer.headers["etag"] == '"a"'


@pytest.mark.parametrize("size", [0, MIB, MIB + 1, 20 * MIB])
@pytest.mark.parametrize("with_length", [True, False])
def test_a_long_body_comes_whole(
    hosts: StreamHosts, web: httpx.Client, size: int, *, with_length: bool
) -> None:
    body = b"0123456789abcdef" * (size // 16) + b"x" * (size % 16)
    content = body if with_length else (body[at : at + 50_000] for at in range(0, size, 50_000))
    answer = web.post(hosts.other_for("u1", "upload/u1"), content=content)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert (said["bytes"], said["sha256"]) == (size, hashlib.sha256(body).hexdigest())
    if with_length:
        assert said["length"] == str(size)


@pytest.mark.parametrize("with_length", [True, False])
def test_a_body_has_a_limit_whichever_host_answers(
    hosts: StreamHosts, web: httpx.Client, *, with_length: bool
) -> None:
    for entry in hosts.entries:
        content = bytes(25 * MIB) if with_length else (bytes(MIB) for _ in range(25))
        answer = web.post(f"http://{entry}/upload/l1", content=content)
        assert answer.status_code == 413, answer.text


def test_both_ways_flow_at_the_same_time(hosts: StreamHosts) -> None:
    """More than all buffers between hold: nobody waits for the end of the other way."""
    url = httpx.URL(hosts.other_for("b1", "echo/b1"))
    part, count = bytes(64 * 1024), 64 * 4
    with socket.create_connection((url.host, url.port or 0), timeout=LONG_S) as caller:
        caller.sendall(
            f"POST {url.path} HTTP/1.1\r\nHost: any\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        reader = caller.makefile("rb")
        # The beginning is sent on once it is longer than what is read before.
        for _ in range(17):
            caller.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        assert reader.readline().startswith(b"HTTP/1.1 200")
        while reader.readline() != b"\r\n":
            pass
        came = 0
        for _ in range(count):
            caller.sendall(b"%x\r\n%b\r\n" % (len(part), part))
            size = int(reader.readline(), 16)
            came += len(reader.read(size))
            reader.readline()
        caller.sendall(b"0\r\n\r\n")
        while size := int(reader.readline(), 16):
            came += len(reader.read(size))
            reader.readline()
    assert came == (count + 17) * len(part)


def test_an_application_may_answer_before_it_has_read_all(
    hosts: StreamHosts, web: httpx.Client
) -> None:
    answer = web.post(hosts.other_for("a1", "early/a1"), content=bytes(8 * MIB))
    assert answer.status_code == 422


def test_a_caller_that_goes_away_ends_the_request_at_the_owner(
    hosts: StreamHosts, web: httpx.Client
) -> None:
    url = httpx.URL(hosts.other_for("g1", "upload/g1"))
    with socket.create_connection((url.host, url.port or 0), timeout=LONG_S) as caller:
        head = f"POST {url.path} HTTP/1.1\r\nHost: any\r\nContent-Length: {4 * MIB}\r\n\r\n"
        caller.sendall(head.encode() + bytes(2 * MIB))

    def is_gone() -> bool:
        return any("g1" in web.get(f"http://{app}/gone").json() for app in hosts.apps)

    wait_until(is_gone, LONG_S, "the application of the owner learns of it")


def test_the_application_sees_its_caller_and_no_proof_of_the_daemon(
    hosts: StreamHosts, web: httpx.Client
) -> None:
    url = hosts.other_for("p1", "asked/p1")
    for method, body in (("GET", b""), ("POST", b"x"), ("POST", bytes(2 * MIB)), ("TRACE", b"")):
        said = web.request(method, url, content=body, headers={"Host": "shop.example"}).json()
        assert "ringpop-forwarded" not in said["headers"]
        if method != "TRACE" or hosts.entries != hosts.apps:
            assert said["url"] == "http://shop.example/asked/p1"
            assert said["client"] == "127.0.0.1"


# Websockets.


class Websocket:
    """A caller with a websocket at *url*, or by TLS at the *public* name there."""

    def __init__(
        self, url: str, *protocols: str, public: tuple[str, ssl.SSLContext] | None = None
    ) -> None:
        at = httpx.URL(url)
        host = f"{at.host}:{at.port}"
        self._socket = socket.create_connection((at.host, at.port or 0), timeout=LONG_S)
        if public is not None:
            host, context = public
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._connection = WSConnection(ConnectionType.CLIENT)
        target = at.raw_path.decode()
        self.send(Request(host, target, subprotocols=list(protocols)))
        self._events: list[Event] = []

    def send(self, event: Event) -> None:
        self._socket.sendall(self._connection.send(event))

    def next(self) -> Event:
        while not self._events:
            data = self._socket.recv(65536)
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                if isinstance(event, Ping):
                    self.send(event.response())
                else:
                    self._events.append(event)
        return self._events.pop(0)

    def message(self) -> str | bytes:
        parts = []
        while True:
            event = self.next()
            assert isinstance(event, Message), event
            parts.append(event.data)
            if event.message_finished:
                return parts[0][:0].join(parts)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._socket.close()


def test_a_websocket_is_opened_at_the_owner(hosts: StreamHosts) -> None:
    owner = hosts[0].admin("/admin/lookup", {"key": "w1"})["dest"]
    with closing(Websocket(hosts.other_for("w1", "ws/w1"), "one", "two")) as ws:
        accepted = ws.next()
        assert isinstance(accepted, AcceptConnection), accepted
        assert accepted.subprotocol == "two"
        assert ws.message() == f"{owner} w1"
        for text in ("a", "b" * 200_000, ""):
            ws.send(TextMessage(text))
            assert ws.message() == text
        ws.send(BytesMessage(b"\0\xff" * 1000))
        assert ws.message() == b"\0\xff" * 1000
        ws.send(TextMessage("bye"))
        end = ws.next()
        assert isinstance(end, CloseConnection)
        assert (end.code, end.reason) == (4000, "as you said")


def test_the_application_sees_the_host_of_a_websocket_and_no_proof_of_the_daemon(
    hosts: StreamHosts,
) -> None:
    url = hosts.other_for("w4", "ws/w4?asked")
    with closing(Websocket(url)) as ws:
        ws.next()
        ws.message()
        said = json.loads(ws.message())
    assert said["url"] == url.replace("http:", "ws:")
    assert "ringpop-forwarded" not in said["headers"]


def test_the_application_refuses_a_websocket_itself(hosts: StreamHosts) -> None:
    owner = hosts[0].admin("/admin/lookup", {"key": "w2"})["dest"]
    with closing(Websocket(hosts.other_for("w2", "ws/w2?refused"))) as ws:
        refused = ws.next()
        assert isinstance(refused, RejectConnection)
        assert refused.status_code == 403
        data = ws.next()
        assert isinstance(data, RejectData)
        assert json.loads(data.data) == {"host": owner}


def test_the_end_of_a_websocket_reaches_the_owner(hosts: StreamHosts, web: httpx.Client) -> None:
    with closing(Websocket(hosts.other_for("w3", "ws/w3"))) as ws:
        ws.next()
        ws.message()
        ws.send(CloseConnection(4321, "enough"))
        # hypercorn, the server of the door, does not tell the caller's code.
        said = "w3 1001" if hosts.entries != hosts.apps else "w3 4321"

        def is_told() -> bool:
            return any(said in web.get(f"http://{app}/gone").json() for app in hosts.apps)

        wait_until(is_told, LONG_S, "the application learns of it")
