"""`ringpop_py.state.gossiping`, and what else comes in from peers: hostile, stale or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.errors import BadRequest, BodyError, KeyspaceUnknown, PeerFailed
from ringpop_py.partitions.definition import Definition
from ringpop_py.state import messages
from ringpop_py.wire.calls import Call
from ringpop_py.wire.connection import NODE_SERVICE
from ringpop_py.wire.values import encode_value
from tests.state.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from ringpop_py.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time

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
async def test_what_is_no_message_is_refused_and_harms_nothing(endpoint: str) -> None:
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


async def test_a_table_that_missed_what_was_pushed_finds_it_by_comparison() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        here = await a.open_keyspace("counts", partitions=8)
        await all_online(here, "a", "b")
        there = await b.open_keyspace("counts")
        await all_online(there, "a", "b")
        cluster.isolate("b")
        row = here.table[0]
        here.table.merge([row.claimed("a", row.epoch + 1)])

        cluster.network.heal()
        await trio.sleep(5)

        assert there.table.digest == here.table.digest


async def test_a_keyspace_that_nobody_made_is_not_looked_for_again_and_again() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await a.open_keyspace("counts", partitions=1)
        body = messages.ReadRequest("nothing", 1, ((0, ("k",)),)).encode()
        before = cluster.store.calls.total()

        for _ in range(200):
            await call(b, a, messages.READ, body)

        assert cluster.store.calls.total() - before < 50


async def test_a_new_keyspace_is_known_everywhere_soon() -> None:
    async with a_cluster() as cluster:
        a, b, c = [await cluster.start(name) for name in "abc"]
        with pytest.raises(KeyspaceUnknown):
            b.keyspaces.here("counts")

        keyspace = await a.open_keyspace("counts", partitions=6)
        await all_online(keyspace, "a", "b", "c")

        assert {node.keyspaces.here("counts").host.generation for node in (a, b, c)} == {1}


async def test_calls_for_another_generation_say_that_it_is_unknown() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        body = messages.ReadRequest("counts", 7, ((0, ("k",)),)).encode()

        answer = await b.channel.call(
            a.address, Call(NODE_SERVICE, messages.READ, b"", body, ttl_s=8)
        )

        (result,) = messages.decode_results(answer.arg3, 1)
        assert isinstance(result, KeyspaceUnknown)


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


async def test_tables_that_are_equal_are_not_sent() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        there = await b.open_keyspace("counts")
        await trio.sleep(5)
        sizes = []
        answer = b.keyspaces._gossip.answer

        def measured(body: bytes) -> bytes:
            said = answer(body)
            sizes.append(len(said))
            return said

        b.keyspaces._gossip.answer = measured  # type: ignore[method-assign]
        await trio.sleep(5)

        assert there.table.digest == keyspace.table.digest
        assert 4 <= len(sizes) <= 6
        assert max(sizes) < 50


async def test_a_keyspace_that_a_newer_version_made_hides_no_other() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        label = a.keyspaces.store_id
        newer = Definition(name="newer").as_record() | {"colour": "red"}
        known = Definition(name="known", partitions=2).as_record()
        sheets = [[record, 1, False, [[]], 0] for record in (newer, known)]

        await call(b, a, messages.GOSSIP, [sheets, [], label])

        assert [keyspace.name for keyspace in a.keyspaces.all()] == ["known"]
