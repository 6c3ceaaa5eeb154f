"""An application that ends beside a daemon that lives: other hosts answer in its place."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

import httpx
import pytest

from ringpop_py.member.swim.member import AWAY_LABEL
from tests.e2e.commands import ctl
from tests.e2e.entry.hosts import Hosts
from tests.e2e.local_cluster import free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.base.address import Address

KEYS: Final = [f"k{number}" for number in range(24)]


class Doors(Hosts):
    """Hosts that take requests in at `doors`, and serve HTTP at `pages`."""

    doors: list[Address]
    pages: list[Address]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    hosts = Doors(tmp_path_factory.mktemp("hosts"), 3, "plain")
    hosts.doors, hosts.pages = free_addresses(3), free_addresses(3)
    for node, door, page in zip(hosts.nodes, hosts.doors, hosts.pages, strict=True):
        node.command += ["--http-in", str(door), "--key", "header:X-User", "--http", str(page)]
    with hosts:
        hosts.wait_converged()
        hosts.start_apps()
        yield hosts
        print(hosts.logs(), hosts.app_logs())  # shown if a test fails


class Traffic:
    """GETs for all keys, at the doors of all hosts, from a thread of its own."""

    def __init__(self, hosts: Doors) -> None:
        self.rounds = 0
        self.failed: list[str] = []
        self.hosts: set[str] = set()
        self._urls = [f"http://{door}/carts/any" for door in hosts.doors]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=20) as client:
            while not self._ends.is_set():
                found = set()
                for number, key in enumerate(KEYS):
                    reply = client.get(
                        self._urls[(number + self.rounds) % 3], headers={"X-User": key}
                    )
                    if reply.status_code == 200:
                        found.add(reply.json()["host"])
                    else:
                        self.failed.append(f"{key}: {reply.status_code} {reply.text}")
                self.hosts = found
                self.rounds += 1

    def wait_rounds(self, count: int) -> None:
        """Return after so many whole rounds from now."""
        last = self.rounds + count + 1
        wait_until(lambda: self.rounds >= last, 60, f"{count} rounds of requests")


@pytest.mark.timeout(180)
def test_others_answer_while_an_application_is_away_and_it_comes_back(hosts: Doors) -> None:
    third, page = hosts[2].name, f"http://{hosts.pages[2]}"
    without_key = f"http://{hosts.doors[2]}/who"
    with Traffic(hosts) as traffic:
        traffic.wait_rounds(1)
        assert third in traffic.hosts
        assert httpx.get(f"{page}/ready").status_code == 200

        hosts.end_app(2)
        assert httpx.get(without_key, timeout=20).json() != third  # also in the first second
        wait_until(lambda: AWAY_LABEL in _labels(hosts, 0, third), 10, "the label")
        traffic.wait_rounds(1)

        assert third not in traffic.hosts
        assert httpx.get(without_key, timeout=20).json() != third
        ready = httpx.get(f"{page}/ready")
        assert ready.status_code == 503
        assert "the application of this node is away: " in ready.text
        assert "ringpop_application_away 1.0" in httpx.get(f"{page}/metrics").text
        said = ctl(hosts, "check")
        assert f"the application beside {third} is away: " in said.stdout
        log = hosts[2].log.read_text()
        assert (
            log.count(f"the application at http://{hosts.apps[2]} is away") == 2
        )  # or at its start

        hosts.start_app(2)
        waited = ctl(hosts, "wait", "--for", "applications")
        assert waited.returncode == 0, waited.stderr
        wait_until(lambda: third in traffic.hosts, 10, "the owner")
    assert httpx.get(f"{page}/ready").status_code == 200
    assert httpx.get(without_key).json() == third
    assert "is away" not in ctl(hosts, "check").stdout
    assert hosts[2].log.read_text().count("answers again") == 2
    assert traffic.failed == []


def _labels(hosts: Doors, place: int, name: str) -> dict[str, str]:
    rows = hosts[place].admin("/admin/members")["members"]
    return next(row["labels"] for row in rows if row["name"] == name)
