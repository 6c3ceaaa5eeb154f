"""Applications of four frameworks: each request is answered by the host that owns its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.entry.hosts import FRAMEWORKS, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=FRAMEWORKS)
def hosts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp(request.param), 2, request.param) as hosts:
        hosts.wait_converged()
        hosts.start_apps()
        yield hosts
        print(hosts.logs(), hosts.app_logs())  # shown if a test fails


@pytest.mark.timeout(180)
def test_each_host_answers_with_what_the_owner_says(hosts: Hosts) -> None:
    for owner in range(2):
        for key in hosts.keys_of(owner, 2):
            for asked in range(2):
                url = f"http://{hosts.apps[asked]}/carts/{key}?a=1&b=%2F"
                reply = httpx.post(url, content=b"x" * 1000, headers={"Traceparent": "00-1-2-01"})
                assert reply.status_code == 200, reply.text
                said = reply.json()
                assert said["host"] == hosts[owner].name
                assert (said["method"], said["key"], said["query"]) == ("POST", key, "a=1&b=%2F")
                assert said["bytes"] == 1000
                assert said["headers"]["traceparent"] == "00-1-2-01"
                cookies = reply.headers.get_list("set-cookie")
                assert [each.partition("=")[0] for each in cookies] == ["first", "second", "third"]
                assert len(reply.headers.get_list("date")) < 2
                if asked != owner:
                    assert said["headers"]["x-forwarded-for"] == "127.0.0.1"
                    assert said["headers"]["x-forwarded-proto"] == "http"
                    assert said["headers"]["x-forwarded-host"] == str(hosts.apps[asked])
                assert "ringpop-forwarded" not in said["headers"]
                # As if it had come to the owner.
                assert said["headers"]["host"] == str(hosts.apps[asked])


def test_a_head_has_the_length_of_what_a_get_brings(hosts: Hosts) -> None:
    [key] = hosts.keys_of(1, 1)
    here, elsewhere = (httpx.head(f"http://{hosts.apps[place]}/carts/{key}") for place in (1, 0))
    assert (here.content, elsewhere.content) == (b"", b"")
    # What the application says; Django says nothing. The headers that it tells about differ.
    assert ("content-length" in elsewhere.headers) == ("content-length" in here.headers)
    assert int(elsewhere.headers.get("content-length", 200)) > 100


def test_a_request_without_a_key_is_answered_here(hosts: Hosts) -> None:
    for node, app in zip(hosts.nodes, hosts.apps, strict=True):
        assert httpx.get(f"http://{app}/who").json() == node.name
