"""Keyspaces are loaded when a node first needs them, and then are as if they always had been."""

from __future__ import annotations

import pytest
import trio

from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.errors import BadRequest, KeyspaceUnknown, PartitionUnavailable
from ringpop_py.base.values.packed import decode_value
from ringpop_py.member.swim.messages import Ping
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.net.wire.codec import codec_for, endpoint_of
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.memory_clusters import a_cluster, serving

pytestmark = pytest.mark.virtual_time


def call_of(endpoint: str, body: bytes = b"") -> Call:
    return Call(NODE_SERVICE, endpoint, b"", body, ttl_s=5.0)


async def test_members_without_keyspaces_load_none() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")

        await trio.sleep(30)
        await cluster.shut_down("b")

        assert not a.keyspaces_on_demand.loaded
        assert not b.keyspaces_on_demand.loaded


async def test_a_member_loads_keyspaces_when_another_tells_of_one() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")

        keyspace = await a.open_keyspace("carts", mode="memory", partitions=8)
        await serving(keyspace, "a", "b")

        assert b.keyspaces_on_demand.loaded


async def test_a_member_loads_keyspaces_when_a_ping_shows_that_others_know_some() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")
        local = a.node.local
        cluster_name, points = a.config.cluster, a.config.ring_points
        ping = Ping(cluster_name, points, a.name, *local.address, local.incarnation, None, digest=1)
        body = codec_for(NATIVE).encode_request(ping)

        await a.channel.call(b.address, call_of(endpoint_of(ping), body))
        await b.wait_until(lambda node: node.keyspaces_on_demand.loaded)


async def test_a_keyspace_learnt_before_keyspaces_run_is_served_when_they_do() -> None:
    async with a_cluster() as cluster:
        (a,) = await cluster.start("a")

        definition = Definition(name="carts", mode="memory", partitions=8)
        a.keyspaces.learn_keyspace(definition, 1, dropped=False)

        await serving(await a.open_keyspace("carts"), "a")


async def test_an_operator_who_asks_for_keyspaces_is_answered_by_a_node_that_had_none() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")

        answer = await a.channel.call(b.address, call_of("/admin/keyspaces"))

        assert decode_value("msgpack", answer.arg3)["keyspaces"] == []
        assert b.keyspaces_on_demand.loaded


async def test_an_endpoint_that_does_not_exist_loads_nothing() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")

        with pytest.raises(BadRequest, match="no endpoint /keyspac of ringpop"):
            await a.channel.call(b.address, call_of("/keyspac"))

        assert not b.keyspaces_on_demand.loaded


async def test_an_application_that_asks_for_a_keyspace_loads_them() -> None:
    async with a_cluster() as cluster:
        (a,) = await cluster.start("a")

        with pytest.raises(KeyspaceUnknown):
            await a.open_keyspace("carts")

        assert a.keyspaces_on_demand.loaded


async def test_a_node_that_has_ended_loads_no_keyspaces() -> None:
    async with a_cluster() as cluster:
        (a,) = await cluster.start("a")
        await cluster.shut_down("a")

        with pytest.raises(PartitionUnavailable, match="this node has ended"):
            await a.open_keyspace("carts", mode="memory", partitions=8)


async def test_a_node_with_a_store_has_loaded_them_when_it_has_started() -> None:
    async with a_cluster({"a": MemoryStore()}) as cluster:
        (a,) = await cluster.start("a")

        assert a.keyspaces_on_demand.loaded
