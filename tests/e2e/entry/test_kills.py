"""A host is killed, or has just started: what the callers of the others see."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from wsproto.events import AcceptConnection, CloseConnection

from tests.e2e.entry.hosts import Hosts
from tests.e2e.entry.test_streams import Websocket
from tests.e2e.local_cluster import free_addresses, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.base.address import Address

KEYS: Final = [f"k{number}" for number in range(24)]
KINDS: Final = ("fastapi", "flask", "django", "django-asgi", "node")
STREAM_S: Final = int(os.environ.get("RINGPOP_STREAM_S", "12"))
"""How long a stream of events goes on: 120 is what is to be shown."""
BURST: Final = 400


class Entries(Hosts):
    """Hosts of *kind*; *entries* are where callers reach the application of each."""

    def __init__(self, folder: Path, count: int, kind: str, *, doors: bool) -> None:
        super().__init__(folder, count, kind)
        self.entries: list[Address] = self.apps
        if doors:
            self.entries = free_addresses(count)
            for node, entry in zip(self.nodes, self.entries, strict=True):
                node.command += ["--http-in", str(entry), "--key", "path:/*/{key}"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_is_killed_fails_no_get_at_the_others(tmp_path: Path, kind: str) -> None:
    if kind == "node" and shutil.which("node") is None:
        pytest.skip("there is no node (apt-get install nodejs)")
    with Entries(tmp_path, 3, kind, doors=kind == "node") as hosts:
        hosts.wait_converged()
        hosts.start_apps()
        third = hosts[2].name
        failed, answered, ends = list[str](), list[str](), threading.Event()

        def ask(place: int) -> None:
            with httpx.Client(timeout=30) as client:
                number = 0
                while not ends.is_set():
                    key = KEYS[number % len(KEYS)]
                    number += 1
                    reply = client.get(f"http://{hosts.entries[place]}/carts/{key}")
                    if reply.is_success:
                        answered.append(reply.json()["host"])
                    else:
                        failed.append(f"{key}: {reply.status_code} {reply.text}")

        with ThreadPoolExecutor() as callers:
            try:
                for place in (0, 0, 1, 1):
                    callers.submit(ask, place)
                wait_until(lambda: third in answered, 20, "an answer of the third host")
                hosts.end_app(2)
                hosts[2].kill()
                wait_until(
                    lambda: hosts[0].statuses().get(third) != "alive", 20, "its end is known"
                )
                answered.clear()
                wait_until(lambda: len(answered) > 4 * len(KEYS), 30, "answers of the others")
                wait_until(lambda: third not in hosts.ring_of(0), 20, "its keys have other owners")
                answered.clear()
                wait_until(lambda: len(answered) > 4 * len(KEYS), 20, "answers without it")
            finally:
                ends.set()
        print(hosts.logs(), hosts.app_logs())  # shown if the test fails
        assert failed == []
        assert third not in answered


@pytest.mark.timeout(STREAM_S + 60)
def test_events_go_on_while_a_host_is_killed_that_they_do_not_pass(tmp_path: Path) -> None:
    with Entries(tmp_path, 3, "streams", doors=True) as hosts:
        hosts.wait_converged()
        hosts.start_apps()
        [key] = hosts.keys_of(1, 1)
        url = f"http://{hosts.entries[0]}/events/{key}?count={50 * STREAM_S}"
        numbers = list[int]()
        with httpx.stream("GET", url, timeout=20) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line:
                    assert line.startswith(f"data: {hosts[1].name} ")
                    numbers.append(int(line.rpartition(" ")[2]))
                    if len(numbers) == 25 * STREAM_S:
                        hosts.end_app(2)
                        hosts[2].kill()
        assert numbers == list(range(50 * STREAM_S))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_websocket_whose_host_goes_away_is_told_to_connect_again(
    tmp_path: Path, how: str
) -> None:
    with Entries(tmp_path, 2, "streams", doors=True) as hosts:
        hosts.wait_converged()
        hosts.start_apps()
        [key] = hosts.keys_of(1, 1)
        url = f"http://{hosts.entries[0]}/ws/{key}"
        with closing(Websocket(url)) as ws:
            assert isinstance(ws.next(), AcceptConnection)
            assert ws.message() == f"{hosts[1].name} {key}"
            if how == "end":
                assert hosts[1].stop() == 0
            else:
                hosts[1].kill()
            end = ws.next()
            assert isinstance(end, CloseConnection), end
            assert end.code == 1012
        wait_until(lambda: hosts.ring_of(0) == {hosts[0].name}, 20, "its keys have another owner")
        with closing(Websocket(url)) as ws:
            assert isinstance(ws.next(), AcceptConnection)
            assert ws.message() == f"{hosts[0].name} {key}"


@pytest.mark.timeout(120)
def test_a_host_that_ends_does_not_wait_for_what_passes_through_it(tmp_path: Path) -> None:
    """Events and websockets of another host have no end: their callers connect elsewhere."""
    with Entries(tmp_path, 2, "streams", doors=True) as hosts:
        hosts.wait_converged()
        hosts.start_apps()
        [key] = hosts.keys_of(1, 1)
        entry = f"http://{hosts.entries[0]}"
        with (
            closing(Websocket(f"{entry}/ws/{key}")) as ws,
            httpx.stream("GET", f"{entry}/events/{key}", timeout=20) as events,
        ):
            assert isinstance(ws.next(), AcceptConnection)
            assert ws.message() == f"{hosts[1].name} {key}"
            lines = events.iter_lines()
            assert next(lines).startswith(f"data: {hosts[1].name}")

            assert hosts[0].stop() == 0

            end = ws.next()
            assert isinstance(end, CloseConnection), end
            assert end.code == 1012
            with pytest.raises(httpx.RemoteProtocolError):  # it is cut, and not ended
                list(lines)
        assert "drain-cut" not in hosts[0].log.read_text()
        assert "cut after" not in hosts[0].log.read_text()


@pytest.mark.timeout(120)
def test_a_burst_right_after_the_start_fails_nowhere(tmp_path: Path) -> None:
    """As soon as each host answers at all, and before the first look of a balancer at `/ready`."""
    with Entries(tmp_path, 3, "streams", doors=True) as hosts:
        hosts.start_apps(settles=False)
        for entry in hosts.entries:
            wait_until(lambda at=entry: _listens(at), 20, "a door that listens")  # type: ignore[misc]

        def ask(number: int) -> str:
            entry = hosts.entries[number % 3]
            reply = client.get(f"http://{entry}/download/k{number}?pieces=1")
            return "" if reply.is_success else f"{number}: {reply.status_code} {reply.text}"

        with httpx.Client(timeout=30) as client, ThreadPoolExecutor(64) as callers:
            failed = [each for each in callers.map(ask, range(BURST)) if each]
        print(hosts.logs(), hosts.app_logs())  # shown if the test fails
        assert failed == []


def _listens(at: Address) -> bool:
    try:
        socket.create_connection(at).close()
    except ConnectionRefusedError:
        return False
    return True
