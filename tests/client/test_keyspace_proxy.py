"""Requests that clients send to the member that has the state of their key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py import (
    AppCall,
    AsyncClient,
    ConfigError,
    HttpRequest,
    Reply,
    Request,
    RingpopError,
)
from ringpop_py.base.errors import PeerDeclined
from tests.client.loops import FACES, Step, by
from tests.client.test_keyspace_client import nodes
from tests.state.keyspaces.clusters import key_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.node.ringpop import Ringpop


def serve_who(members: Sequence[Ringpop]) -> None:
    for node in members:

        @node.handler("/who")
        def who(call: AppCall, name: str = node.name) -> bytes:
            return b"%s %s" % (name.encode(), call.body)


@pytest.mark.parametrize("face", FACES)
async def test_a_request_comes_to_the_member_that_serves_the_partition(face: str) -> None:
    async with nodes("a", "b", "c") as (a, b, c):
        serve_who((a, b, c))
        keyspace = await a.open_keyspace("k", partitions=8)
        keys = [key_at(keyspace, name) for name in "abc"]
        steps: list[Step] = [("proxy", (key, Request("/who", b"x")), {}) for key in keys]
        steps += [
            ("proxy", (keys[0], Request("/who")), {"failover": 2}),
            # The application beside "b" answers itself; nobody has one at the other nodes.
            ("handle_or_proxy", (keys[1], HttpRequest("GET", "/")), {}),
            ("handle_or_proxy", (keys[2], HttpRequest("GET", "/")), {"max_retries": 0}),
        ]

        found = await by(face, b.address, steps)

        assert found[:3] == [Reply(b"%s x" % n.encode(), n) for n in "abc"]
        assert isinstance(found[3], ConfigError)
        assert found[4] is None
        assert isinstance(found[5], RingpopError)
        assert a.lookup(keys[0]) in "abc"  # whatever the ring says


async def test_a_daemon_without_the_keyspace_says_so() -> None:
    async with nodes("a") as (a,), AsyncClient(a.address) as client:
        for request in (Request("/who"), HttpRequest("GET", "/")):
            with pytest.raises(PeerDeclined, match="has no part in keyspace 'other'"):
                await client.proxy("x", request, keyspace="other")
