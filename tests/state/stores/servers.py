"""Services that stores are tested against, as processes, and a proxy that spoils what they say."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from ringpop_demo.cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 30.0
SPOILT_HEAD = {"ETag": '"0"'}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server of S3, with nothing in it but the bucket ``bucket``."""
    if find_spec("moto") is None:
        pytest.skip("moto is not installed: it is in the extra dev")
    at = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, str(Path(__file__).with_name("moto_s3.py")), at.partition(":")[2]]
    with running(command, at, "/"):
        httpx.put(f"http://{at}/bucket", trust_env=False).raise_for_status()
        yield f"http://{at}"


@contextlib.contextmanager
def etcd_server(folder: Path, *options: str) -> Iterator[str]:
    """The ``host:port`` of an etcd that is alone and empty."""
    binary = program_named("etcd")
    if binary is None:
        pytest.skip("no etcd on the PATH: bin/test brings it, or apt-get install etcd-server")
    at, peers_at = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [
        *(binary, "--name", "alone", "--data-dir", str(folder), "--log-level", "error"),
        *("--listen-client-urls", f"http://{at}", "--advertise-client-urls", f"http://{at}"),
        *("--listen-peer-urls", f"http://{peers_at}"),
        *("--initial-advertise-peer-urls", f"http://{peers_at}"),
        *("--initial-cluster", f"alone=http://{peers_at}", *options),
    ]
    with running(command, at, "/health"):
        yield at


def program_named(name: str) -> str | None:
    """Where that program is: beside Python, or on the PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


@contextlib.contextmanager
def running(command: list[str], at: str, path: str) -> Iterator[str]:
    """*at*, while *command* runs and answers requests for *path* there."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as started:
        try:
            until_s = time.monotonic() + START_S
            while not answers(f"http://{at}{path}"):
                assert started.poll() is None, f"{command[0]} ended"
                assert time.monotonic() < until_s, f"{command[0]} does not answer"
                time.sleep(0.02)
            yield at
        finally:
            started.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).is_success
    except httpx.HTTPError:
        return False


@dataclass(frozen=True)
class Spoilt:
    """What becomes of one request: a *status* and a *body* as the answer, or 0 for none at all."""

    method: str
    path_end: str
    status: int = 0
    body: str = ""
    is_done: bool = False
    """Whether the service gets the request all the same."""


class Proxy:
    """Stands before a service, and spoils requests as it is told to.

    Attributes:
        at: its ``host:port``.
        seen: the requests, as ``METHOD /path``.
    """

    def __init__(self, target: str) -> None:
        self.seen: list[str] = []
        self.spoilt: list[Spoilt] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                spoilt = proxy.take(self.command, self.path)
                if spoilt is None or spoilt.is_done:
                    status, headers, answer = forward(self, target, body)
                if spoilt is not None:
                    status, headers, answer = spoilt.status, SPOILT_HEAD, spoilt.body.encode()
                if not status:
                    self.close_connection = True
                    return
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.at = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def take(self, method: str, path: str) -> Spoilt | None:
        """Note a request; what it shall suffer, once."""
        path = path.partition("?")[0]
        with self._lock:
            self.seen.append(f"{method} {path}")
            for spoilt in self.spoilt:
                if spoilt.method == method and path.endswith(spoilt.path_end):
                    self.spoilt.remove(spoilt)
                    return spoilt
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def forward(
    handler: BaseHTTPRequestHandler, target: str, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(target, timeout=20)
    try:
        connection.request(handler.command, handler.path, body, dict(handler.headers))
        response = connection.getresponse()
        answer = response.read()
        headers = {
            name: value
            for name, value in response.getheaders()
            if name.lower() not in {"transfer-encoding", "connection", "date", "server"}
        }
    finally:
        connection.close()
    return response.status, headers, answer


@contextlib.contextmanager
def proxy_before(target: str) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
