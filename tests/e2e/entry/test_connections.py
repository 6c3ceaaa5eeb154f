"""Callers that go away, and websockets; with FastAPI."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.entry.hosts import Hosts
from tests.e2e.local_cluster import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HANDSHAKE = (
    "GET /ws/{key} HTTP/1.1\r\nHost: any\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def hosts(folder: Path) -> Iterator[Hosts]:
    with Hosts(folder, 2, "fastapi") as hosts:
        hosts.wait_converged()
        hosts.start_apps()
        yield hosts
        print(hosts.logs(), hosts.app_logs())  # shown if a test fails


@pytest.mark.parametrize("owner", [0, 1], ids=["here", "elsewhere"])
def test_a_caller_that_goes_away_ends_the_request_at_its_owner(
    hosts: Hosts, folder: Path, owner: int
) -> None:
    [key] = hosts.keys_of(owner, 1)
    with socket.create_connection(hosts.apps[0]) as caller:
        caller.sendall(f"GET /slow/{key} HTTP/1.1\r\nHost: any\r\n\r\n".encode())
        began = folder / f"began-{key}"
        # It is there a moment before its text is.
        wait_until(
            lambda: began.exists() and bool(began.read_text()), 10, "the request at its owner"
        )
        assert began.read_text() == hosts[owner].name
    wait_until((folder / f"gone-{key}").exists, 10, "its end there")


def test_a_websocket_is_served_where_its_key_is_and_else_refused_with_a_reason(
    hosts: Hosts,
) -> None:
    [here], [elsewhere] = hosts.keys_of(0, 1), hosts.keys_of(1, 1)
    assert handshake(hosts, here).startswith(b"HTTP/1.1 101 ")
    refused = handshake(hosts, elsewhere)
    assert refused.startswith(b"HTTP/1.1 421 ")
    assert b"websockets are not forwarded" in refused


def handshake(hosts: Hosts, key: str) -> bytes:
    with socket.create_connection(hosts.apps[0], timeout=10) as caller:
        caller.sendall(HANDSHAKE.format(key=key).encode())
        said = b""
        while b"\r\n\r\n" not in said or (b" 421 " in said and not said.endswith(b"}\n")):
            more = caller.recv(4096)
            if not more:
                break
            said += more
        return said


def test_an_owner_that_does_not_answer_in_time_is_a_time_out(hosts: Hosts) -> None:
    key = hosts.keys_of(1, 2)[1]
    reply = httpx.get(f"http://{hosts.apps[0]}/slow/{key}", timeout=30)
    assert reply.status_code == 504
    assert reply.json()["status"] == 504
