"""HTTP over calls: a request comes in at one node, and is replayed at the owner's application."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from ringpop_py import Config, HttpReply, HttpRequest, open_ringpop
from ringpop_py.base.errors import ConfigError, MaxRetriesExceeded
from tests.e2e.local_cluster import LocalCluster, free_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class Application(BaseHTTPRequestHandler):
    """Says what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        answer = json.dumps(
            {
                "path": self.path,
                "host": self.headers["host"],
                "headers": {key.lower(): value for key, value in self.headers.items()},
                "body": body.decode(),
            }
        ).encode()
        if self.path == "/large":
            answer = bytes(2 << 20)
        self.send_response(201 if self.path != "/missing" else 404)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Connection", "keep-alive, X-Hop")
        self.send_header("X-Hop", "1")
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def application() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Application)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    with ExitStack() as stack:
        stack.callback(thread.join, 5)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        yield f"http://127.0.0.1:{server.server_port}"


async def test_a_request_is_replayed_at_the_owners_application(
    tmp_path: Path, application: str
) -> None:
    first, ours = free_addresses(2)
    with LocalCluster(
        tmp_path, 1, "--app-url", application, addresses=[first], hosts=[first, ours]
    ):
        async with open_ringpop(Config(listen=ours, hosts=(first,))) as ringpop:
            await ringpop.wait_until(lambda node: len(node.ring) == 2)
            key = next(k for k in map(str, range(999)) if ringpop.lookup(k) == str(first))
            request = HttpRequest(
                "POST",
                "/users/42?x=%20y",
                (
                    ("X-Trace", "7"),
                    ("Host", "evil.example"),
                    ("Connection", "X-Drop"),
                    ("X-Drop", "1"),
                ),
                b"hello",
            )

            reply = await ringpop.handle_or_proxy(key, request)
            missing = await ringpop.handle_or_proxy(key, HttpRequest("POST", "/missing"))
            other = await ringpop.handle_or_proxy(key, HttpRequest("POST", "/", (("x", "é"),)))

            assert isinstance(reply, HttpReply)
            assert isinstance(missing, HttpReply)
            assert isinstance(other, HttpReply)
            # No cookie that the first reply set, and nothing that nobody sent.
            seen_at_all = {"host", "content-length", "x", "ringpop-forwarded"}
            assert json.loads(other.body)["headers"].keys() == seen_at_all
            seen = json.loads(reply.body)
            assert (reply.status, reply.owner, missing.status) == (201, str(first), 404)
            assert (seen["path"], seen["body"]) == ("/users/42?x=%20y", "hello")
            assert seen["host"] == application.removeprefix("http://")
            assert seen["headers"]["x-trace"] == "7"
            assert "x-drop" not in seen["headers"]
            names = [name for name, _ in reply.headers]
            assert "x-hop" not in names
            assert [v for n, v in reply.headers if n == "set-cookie"] == ["a=1", "b=2"]
            with pytest.raises(ConfigError, match="at most"):
                await ringpop.handle_or_proxy(key, HttpRequest("POST", "/", (), bytes(2 << 20)))


async def test_an_application_that_is_down_is_told_and_tried_again(tmp_path: Path) -> None:
    first, ours, nobody = free_addresses(3)
    with LocalCluster(
        tmp_path, 1, f"--app-url=http://{nobody}", addresses=[first], hosts=[first, ours]
    ):
        async with open_ringpop(Config(listen=ours, hosts=(first,))) as ringpop:
            await ringpop.wait_until(lambda node: len(node.ring) == 2)
            key = next(k for k in map(str, range(999)) if ringpop.lookup(k) == str(first))

            with pytest.raises(MaxRetriesExceeded, match="does not listen") as caught:
                await ringpop.handle_or_proxy(
                    key, HttpRequest("GET", "/"), max_retries=1, retry_schedule=[0.1]
                )

            assert len(caught.value.history) == 2
