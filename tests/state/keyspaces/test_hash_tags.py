"""Keyspaces with hash tags: keys of one tag share a partition, for all who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
import trio

from ringpop_py import (
    Actor,
    AsyncClient,
    AsyncKeyspaceClient,
    Chunk,
    Client,
    JobClient,
    KeyspaceClient,
    Request,
    encode_stage,
    encode_value,
    open_local_keyspaces,
)
from ringpop_py.base.errors import BadOperation, KeyspaceConflict
from ringpop_py.base.values.requests import decode_results
from ringpop_py.edge.web.server import App
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.messages import DESCRIBE, KNOWS_HASH_TAGS
from ringpop_py.state.placement.keys import partition_of
from tests.client.test_keyspace_client import nodes

if TYPE_CHECKING:
    from ringpop_py import AppCall
    from ringpop_py.node.ringpop import Ringpop

TAGS = [f"user:{number}" for number in range(12)]
KEYS = [f"{before}{{{tag}}}/{what}" for tag in TAGS for before in ("", "x") for what in "ab"]


def tag_in(key: str) -> str:
    return key.partition("{")[2].partition("}")[0]


class Notes(Actor[str, int]):
    state = 0

    async def receive(self, message: str) -> int:
        self.state += len(message)
        return self.state


def load(node: Ringpop) -> None:
    with Client(node.address) as client:
        with JobClient(client, "k", "j") as job:
            placing = job.describe().placing
            attempt = job.attempt("t")
            for key in KEYS:
                packed = pa.array([encode_value("msgpack", 1)])
                chunk = Chunk(placing.partition_of(key), pa.array([key]), packed)
                attempt.stage(encode_stage("add", [chunk]))
            attempt.finish()
            job.commit(["t"])
            assert job.apply().rows_count == len(KEYS)
            stray = job.attempt("stray")
            untagged = Chunk(partition_of(KEYS[0], 8), pa.array(KEYS[:1]), packed)
            stray.stage(encode_stage("add", [untagged]))
            with pytest.raises(BadOperation, match="is not of partition"):
                stray.finish()
        with KeyspaceClient(client, "k") as keyspace:
            keyspace.update_many([(key, "add", 1) for key in KEYS])


async def test_members_clients_jobs_and_http_agree_on_the_partition_of_each_key() -> None:
    async with nodes("a", "b", "c", hash_tags=True) as (a, b, c):
        keyspace = await b.open_keyspace("k", partitions=8, hash_tags=True)
        assert [keyspace.partition_of(key) for key in KEYS] == [
            partition_of(tag_in(key), 8) for key in KEYS
        ]

        await trio.to_thread.run_sync(load, a)
        for key in KEYS:
            await keyspace.update(key, "add", 1)
        async with AsyncClient(c.address) as client, AsyncKeyspaceClient(client, "k") as outside:
            for key in KEYS:
                await outside.update(key, "add", 1)
        transport = httpx.ASGITransport(App(c))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            read = [(await http.get(f"/keyspaces/k/keys/{quote(key, '')}")).json() for key in KEYS]

        assert read == [3 + 1] * len(KEYS)
        assert {key: value async for key, value in keyspace.scan()} == dict.fromkeys(KEYS, 4)


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_an_actor_and_a_request_are_where_the_keys_of_their_tag_are(mode: Any) -> None:  # noqa: ANN401
    async with nodes("a", "b", "c", mode=mode, hash_tags=True) as found:
        for node in found:
            keyspace = await node.open_keyspace("k")
            notes = keyspace.actor(Notes)

            @node.handler("/who")
            def who(_call: AppCall, name: str = node.name) -> bytes:
                return name.encode()

        async with (
            AsyncClient(found[0].address) as client,
            AsyncKeyspaceClient(client, "k") as outside,
        ):
            for key in KEYS:
                owner = keyspace.owner_of(f"{{{tag_in(key)}}}")
                assert (await keyspace.proxy(key, Request("/who"))).body == owner.encode()
                assert await outside.actors("Notes").ask(key, "abc") == 3
                assert await notes.ask(key, "d") == 4
                assert (key in notes.in_memory()) == (owner == node.name)


async def test_a_client_that_does_not_know_hash_tags_is_refused() -> None:
    async def describe(name: str, head: bytes) -> Any:  # noqa: ANN401 - whatever comes
        body = encode_value("msgpack", name)
        call = Call(NODE_SERVICE, DESCRIBE, head, body, ttl_s=5.0)
        return decode_results((await client.call(call)).arg3, 1)[0]

    async with nodes("a", hash_tags=True) as (a,), AsyncClient(a.address) as client:
        await a.open_keyspace("plain", partitions=2)

        old, new = await describe("k", b""), await describe("k", KNOWS_HASH_TAGS)
        plain = await describe("plain", b"")

    assert isinstance(old, BadOperation)
    assert "this client does not know" in str(old)
    assert (len(new), new[3]) == (4, True)
    assert len(plain) == 3


async def test_the_changes_of_one_tag_are_one_write() -> None:
    async with nodes("a", "b", hash_tags=True) as (a, _):
        keyspace = await a.open_keyspace("k")
        changes = [("{u}/cart", "put", 1), ("{u}/orders", "no such operation", 1)]

        outcomes = await keyspace.update_many(changes, operation_id="order 7")

        assert [type(outcome) for outcome in outcomes] == [BadOperation] * 2
        assert await keyspace.get("{u}/cart") is None


async def test_hash_tags_are_of_the_keyspace_for_ever() -> None:
    async with nodes("a", hash_tags=True) as (a,):
        with pytest.raises(KeyspaceConflict, match="created with hash_tags True instead of False"):
            await a.open_keyspace("k", partitions=8)
        await a.open_keyspace("plain", partitions=8)
        with pytest.raises(KeyspaceConflict, match="created with hash_tags False instead of True"):
            await a.open_keyspace("plain", partitions=8, hash_tags=True)


async def test_a_keyspace_of_one_process_has_them_as_well() -> None:
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("k", partitions=8, hash_tags=True)

        await keyspace.update_many([(key, "put", 1) for key in KEYS])

        assert await keyspace.get_many(KEYS) == dict.fromkeys(KEYS, 1)
        assert {keyspace.partition_of(key) for key in KEYS} == {partition_of(t, 8) for t in TAGS}
