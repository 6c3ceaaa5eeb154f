"""``ringpopd --http-in``: the same for applications that know nothing of ringpop_py."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.entry.hosts import Hosts
from tests.e2e.local_cluster import free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.base.address import Address


class Doors(Hosts):
    """Hosts whose daemons take requests in, at `doors`."""

    doors: list[Address]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    hosts = Doors(tmp_path_factory.mktemp("hosts"), 2, "plain")
    hosts.doors = free_addresses(2)
    for node, door in zip(hosts.nodes, hosts.doors, strict=True):
        node.command += ["--http-in", str(door), "--key", "header:X-User"]
        node.command += ["--http-in-body-max", "4MiB"]
    with hosts:
        hosts.wait_converged()
        hosts.start_apps()
        yield hosts
        print(hosts.logs(), hosts.app_logs())  # shown if a test fails


def test_each_door_leads_to_the_application_of_the_owner(hosts: Doors) -> None:
    for owner in range(2):
        for key in hosts.keys_of(owner, 2):
            for door in hosts.doors:
                url = f"http://{door}/carts/any?a=%2F"
                reply = httpx.post(url, content=b"x" * 1000, headers={"X-User": key})
                assert reply.status_code == 200, reply.text
                said = reply.json()
                assert (said["host"], said["query"]) == (hosts[owner].name, "a=%2F")
                assert said["bytes"] == 1000
                assert said["headers"]["x-forwarded-host"] == str(door)
                cookies = reply.headers.get_list("set-cookie")
                assert [each.partition("=")[0] for each in cookies] == ["first", "second", "third"]
                head = httpx.head(url, headers={"X-User": key})
                assert int(head.headers["content-length"]) > 100


def test_a_request_without_a_key_goes_to_the_application_beside_the_door(hosts: Doors) -> None:
    for node, door in zip(hosts.nodes, hosts.doors, strict=True):
        assert httpx.get(f"http://{door}/who").json() == node.name


def test_a_request_that_cannot_be_forwarded_is_refused(hosts: Doors) -> None:
    url = f"http://{hosts.doors[0]}/carts/any"
    for key in (*hosts.keys_of(0, 1), *hosts.keys_of(1, 1)):
        refused = httpx.post(url, content=bytes(5 << 20), headers={"X-User": key})
        assert refused.status_code == 413, refused.text


@pytest.mark.timeout(180)
def test_a_node_that_is_restarted_under_load_fails_no_get(hosts: Doors) -> None:
    [key] = hosts.keys_of(1, 1)
    statuses = []
    with httpx.Client(headers={"X-User": key}, timeout=20) as client:
        url = f"http://{hosts.doors[0]}/carts/any"
        statuses += [client.get(url).status_code for _ in range(50)]
        assert hosts[1].stop() == 0
        statuses += [client.get(url).status_code for _ in range(50)]
        hosts[1].start()
        hosts.wait_converged()
        statuses += [client.get(url).status_code for _ in range(50)]
        wait_until(lambda: client.get(url).json()["host"] == hosts[1].name, 10, "the owner")
    assert statuses == [200] * 150


def test_a_target_may_be_whole_as_clients_write_it_to_proxies(hosts: Doors) -> None:
    door = hosts.doors[0]
    with socket.create_connection(door, timeout=10) as client:
        client.sendall(
            f"GET http://{door}/carts/any?a=1 HTTP/1.1\r\nHost: {door}\r\n"
            "X-User: k\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"query": "a=1"' in answer
