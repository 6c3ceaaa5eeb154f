"""Gossip of keyspaces between nodes, and what else comes in from peers: hostile, stale or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import pytest
import trio

from ringpop_py.base.errors import BadRequest, BodyError, PeerFailed
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import encode
from ringpop_py.base.values.packed import encode_value
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time

SETTLED_S: Final = 30.0
"""Until news have been told as often as they are to be, and nodes rest."""
ENDPOINTS = (
    messages.APPLY,
    messages.READ,
    messages.SCAN,
    messages.RELEASE,
    messages.GOSSIP,
)
HOSTILE: list[object] = [
    None,
    7,
    [],
    {},
    "text",
    [[], [], []],
    [[[{"name": "counts"}, 1, False, [["a"], [0]]]], []],
    [[[{"name": "counts", "partitions": 4}, 1, False, [[], [99, 0, 0, 0, 1, 2, 0, 0]]]], []],
    [[], [["counts", 1, False, 0, ["no number"]]]],
    [[], [["counts", 1, False, 0, [1]]]],
    ["counts", 1, [[99, [["s", 0, [["k", "put", 1]], None]]]]],
    ["counts", 1, [[0, [["s", -1, [["k", "put", 1]], None]]]]],
    ["counts", 1, [[0, [["s", 0, [["k", "put"]], None]]]]],
    ["counts", 1, [[0, ["k"]]], "no boolean"],
    ["counts", 1, [0, 0], "", None, None, -1, False],
    ["counts", 1, 99, 1, "a"],
    ["counts", 1, 0, 1 << 70, "a"],
]


async def call(node: Ringpop, peer: Ringpop, endpoint: str, value: object) -> None:
    body = value if isinstance(value, bytes) else encode_value("msgpack", value)
    await node.channel.call(peer.address, Call(NODE_SERVICE, endpoint, b"", body, ttl_s=8))


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_malformed_message_is_refused_and_harms_nothing(endpoint: str) -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        before = list(keyspace.table)
        refused = 0

        for value in [b"\xc1", b"\x93", *HOSTILE]:
            if not isinstance(value, bytes):
                try:
                    encode_value("msgpack", value)
                except OverflowError:
                    continue
            try:
                await call(b, a, endpoint, value)
            except (BadRequest, PeerFailed, BodyError):
                refused += 1

        assert refused > 5
        assert list(keyspace.table) == before
        await keyspace.put("k", 1)
        assert await keyspace.get("k") == 1


async def test_a_keyspace_that_nobody_made_is_not_looked_for_again_and_again() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await a.open_keyspace("counts", partitions=1)
        body = encode(messages.ReadRequest("nothing", 1, ((0, ("k",)),)))
        before = cluster.store.calls.total()

        for _ in range(200):
            await call(b, a, messages.READ, body)

        assert cluster.store.calls.total() - before < 50


async def test_a_release_that_nobody_should_ask_for_is_not_granted() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        ours = keyspace.table.owned_by("a")[0]
        epoch = keyspace.table[ours].epoch

        for believed in (epoch, epoch - 1):
            await call(b, a, messages.RELEASE, ["counts", 1, ours, believed, "b"])

        assert keyspace.table[ours].owner == "a"
        assert keyspace.table[ours].epoch == epoch


async def calls_but_pings(*nodes: Ringpop, during_s: float) -> int:
    """How many calls these nodes make in that time that are not pings."""

    def count() -> int:
        calls = sum(node.channel.calls_sent for node in nodes)
        return calls - sum(node.node.counts.pings_sent for node in nodes)

    before = count()
    await trio.sleep(during_s)
    return count() - before


def digests_of(*nodes: Ringpop) -> set[int]:
    return {node.keyspaces.gossip.digest for node in nodes}


async def test_an_idle_cluster_that_knows_no_keyspace_sends_nothing_but_pings() -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "abc"]
        await trio.sleep(SETTLED_S)

        assert await calls_but_pings(*nodes, during_s=60) == 0
        assert digests_of(*nodes) == {0}


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_keyspaces_cost_an_idle_cluster_no_message(
    mode: Literal["durable", "memory"],
) -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "abc"]
        for keyspace_name in ("counts", "seen"):
            keyspace = await nodes[0].open_keyspace(keyspace_name, mode=mode, partitions=8)
            await all_online(keyspace, "a", "b", "c")
        await trio.sleep(SETTLED_S)

        assert await calls_but_pings(*nodes, during_s=60) == 0
        assert len(digests_of(*nodes) - {0}) == 1


async def test_a_push_that_is_lost_is_made_up_for_at_the_quiet_pace_of_probes() -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "abcde"]
        here = await nodes[0].open_keyspace("counts", partitions=8)
        await all_online(here, *"abcde")
        await trio.sleep(SETTLED_S)
        assert len(digests_of(*nodes)) == 1
        row = here.table[0]

        here.table.merge([row.claimed("a", row.epoch + 1)])  # which is told to nobody
        assert len(digests_of(*nodes)) == 2
        with trio.fail_after(10 * nodes[0].config.gossip.quiet_period_s):
            while len(digests_of(*nodes)) > 1:
                await trio.sleep(0.01)


async def test_a_newcomer_without_a_store_knows_all_keyspaces_when_it_is_ready() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        for number in range(3):
            await a.open_keyspace(f"m{number}", mode="memory", partitions=8)
            await b.open_keyspace(f"d{number}", partitions=8)
        dropped = await a.open_keyspace("dropped", mode="memory", partitions=8)
        await a.keyspaces.drop(dropped.name)
        await trio.sleep(SETTLED_S)

        newcomer = await cluster.start("c", has_store=False)
        await trio.sleep(0.5)

        names = [keyspace.name for keyspace in newcomer.keyspaces.all()]
        assert names == ["m0", "m1", "m2"]
        assert newcomer.keyspaces.known().keys() == a.keyspaces.known().keys()
        assert newcomer.keyspaces.elsewhere("d0") is not None


async def test_where_pings_carry_no_digest_nodes_compare_at_the_quiet_pace() -> None:
    async with a_cluster(dialect="ringpop") as cluster:
        nodes = [await cluster.start(name) for name in "abc"]
        await trio.sleep(SETTLED_S)
        assert await calls_but_pings(*nodes, during_s=60) == 0

        here = await nodes[0].open_keyspace("counts", mode="memory", partitions=8)
        await all_online(here, *(node.name for node in nodes))
        await trio.sleep(SETTLED_S)
        assert len(digests_of(*nodes)) == 1
        row = here.table[0]
        here.table.merge([row.claimed(row.owner, row.epoch + 1)])  # which is told to nobody
        assert len(digests_of(*nodes)) == 2

        quiet_s = nodes[0].config.gossip.quiet_period_s
        await trio.sleep(5 * quiet_s)

        assert len(digests_of(*nodes)) == 1
        calls = await calls_but_pings(*nodes, during_s=10 * quiet_s)
        assert 9 * len(nodes) <= calls <= 11 * len(nodes)
