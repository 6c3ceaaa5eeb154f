"""What nodes count of the operations that they serve: each of them once, where it ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest

from ringpop_py import KeyspaceUnknown, Request
from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import (
    ApplicationError,
    ConditionFailed,
    OutcomeUnknown,
    PartitionUnavailable,
    Refused,
    RingpopError,
)
from ringpop_py.base.metering import KINDS
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.rows.pages import ColumnsOf, ColumnsRequest
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py import Keyspace
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall, ManyCall
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time
Counts = dict[str, tuple[int, int, int]]


def counts(node: Ringpop) -> Counts:
    """How many operations were done, refused, and failed at *node*, of each kind with any."""
    tallies = node.proxying.operations.by_kind()
    found = {kind: (t.done, t.refused, t.failed) for kind, t in tallies.items()}
    return {kind: ended for kind, ended in found.items() if any(ended)}


async def two(
    cluster: Cluster, mode: Literal["durable", "memory"] = "durable"
) -> tuple[Ringpop, Ringpop, Keyspace]:
    """Two nodes with a keyspace, as the first one has it."""
    state = StateConfig(timeout_s=3)
    a, b = [await cluster.start(name, state=state) for name in ("a", "b")]
    keyspace = await a.open_keyspace("k", partitions=8, mode=mode)
    await b.open_keyspace("k")
    await all_online(keyspace, "a", "b")
    return a, b, keyspace


class Purse(Actor[int, int]):
    """Takes what is paid in; refuses 0, and has a bug with what is less."""

    state = 0

    async def receive(self, message: int) -> int:
        if message == 0:
            raise ApplicationError("nothing", "to pay")
        if message < 0:
            raise ZeroDivisionError
        self.state += message
        return int(self.state)


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_reads_and_writes_count_at_the_owner(mode: Literal["durable", "memory"]) -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster, mode)
        here, there = key_at(keyspace, "a"), key_at(keyspace, "b")
        assert (counts(a), counts(b)) == ({}, {})

        for _ in range(3):
            await keyspace.put(here, 1)
            await keyspace.get(here)
        for _ in range(2):
            await keyspace.put(there, 1)
            await keyspace.get(there)
        await keyspace.get(there, stale=True)
        for key in (here, there):
            with pytest.raises(ConditionFailed):
                await keyspace.put(key, 2, if_absent=True)

        assert counts(a) == {"read": (3, 0, 0), "write": (3, 1, 0)}
        assert counts(b) == {"read": (3, 0, 0), "write": (2, 1, 0)}


async def test_of_many_each_key_counts_and_each_write() -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster)
        keys = [f"k{number}" for number in range(100)]
        at_a = sum(keyspace.owner_of(key) == "a" for key in keys)
        await keyspace.update_many([(key, "put", 1) for key in keys])
        refused = await keyspace.update_many([(key, "put_if_absent", 2) for key in keys])
        assert all(isinstance(each, ConditionFailed) for each in refused)
        assert len(await keyspace.get_many(keys)) == 100

        assert counts(a) == {"read": (at_a, 0, 0), "write": (at_a, at_a, 0)}
        at_b = 100 - at_a
        assert counts(b) == {"read": (at_b, 0, 0), "write": (at_b, at_b, 0)}


async def columns(keyspace: Keyspace, request: ColumnsRequest) -> None:
    numbers = [number for number, _ in request.parts]
    await keyspace.results_of(partial(ColumnsOf, request), numbers)


async def test_a_scan_counts_once_a_member() -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster)
        await keyspace.put("x", 1)
        before = [counts(node).get("write") for node in (a, b)]
        assert [key async for key, _ in keyspace.scan()] == ["x"]
        parts = tuple((number, "") for number in range(8))
        await columns(keyspace, ColumnsRequest("k", keyspace.generation, parts))
        owned = tuple(
            (number, ("y", "z")) for number in range(8) if keyspace.destination(number) == "b"
        )
        await columns(keyspace, ColumnsRequest("k", keyspace.generation, owned))

        assert counts(a).pop("scan") == counts(b).pop("scan") == (2, 0, 0)
        assert counts(b).pop("read") == (2 * len(owned), 0, 0)
        assert [counts(node).get("write") for node in (a, b)] == before


async def test_a_message_counts_once_and_what_its_actor_reads_and_writes_does_not() -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster)
        at = {name: key_at(keyspace, name, "Purse/k").removeprefix("Purse/") for name in ("a", "b")}
        purses = keyspace.actor(Purse)
        (await b.open_keyspace("k")).actor(Purse)
        assert [await purses.ask(at[name], 5) for name in ("a", "b", "b")] == [5, 5, 10]
        for message in (0, -1):
            with pytest.raises(ApplicationError):
                await purses.ask(at["b"], message)

        assert counts(a) == {"message": (1, 0, 0)}
        assert counts(b) == {"message": (2, 1, 1)}


async def test_a_handler_counts_where_it_runs() -> None:
    async with a_cluster() as cluster:
        a, b, _ = await two(cluster)

        async def answer(call: AppCall) -> bytes:
            if call.body == b"refuse":
                raise ApplicationError("Refused", "no")
            if call.body == b"bug":
                raise ZeroDivisionError
            return call.body

        for node in (a, b):
            node.handler("/answer")(answer)
            node.handler("/plain")(lambda call: call.body)

            @node.many_handler("/many")
            def many(call: ManyCall) -> list[bytes]:
                return list(call.bodies)

        names = [f"k{number}" for number in range(100)]
        key = {name: next(k for k in names if a.lookup(k) == name) for name in ("a", "b")}
        for name in ("a", "b"):
            for endpoint in ("/answer", "/plain"):
                await a.proxy(key[name], Request(endpoint, b"x"))
            for body in (b"refuse", b"bug"):
                with pytest.raises(ApplicationError):
                    await a.proxy(key[name], Request("/answer", body))
        assert counts(a) == counts(b) == {"handler": (2, 1, 1)}

        # This node's own key, which its caller handles.
        assert await a.handle_or_proxy(key["a"], Request("/answer")) is None
        assert counts(a) == {"handler": (3, 1, 1)}

        # Nobody serves it: whoever has asked counts it.
        with pytest.raises(Refused, match="no handler"):
            await a.proxy(key["b"], Request("/unknown"))
        assert counts(a) == {"handler": (3, 2, 1)}

        at_a = sum(a.lookup(each) == "a" for each in names)
        await a.proxy_many("/many", names, [b"x"] * 100)
        await a.proxy_many("/plain", names, [b"x"] * 100)
        assert counts(a) == {"handler": (3 + 2 * at_a, 2, 1)}
        assert counts(b) == {"handler": (2 + 2 * (100 - at_a), 1, 1)}


async def test_what_no_owner_answers_fails_at_the_member_that_gives_it_up() -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster)
        there = key_at(keyspace, "b")
        ring_key = next(key for key in map(str, range(100)) if a.lookup(key) == "b")
        cluster.hang("b")
        with pytest.raises(PartitionUnavailable):
            await keyspace.get(there, timeout_s=0.2)
        with pytest.raises(OutcomeUnknown):
            await keyspace.put(there, 1, timeout_s=0.2)
        many = await keyspace.update_many([(there, "add", 1)] * 3, timeout_s=0.2)
        assert [type(each) for each in many] == [OutcomeUnknown] * 3
        with pytest.raises(RingpopError):
            await a.handle_or_proxy(ring_key, Request("/x"), deadline_s=0.2)

        assert counts(a) == {"handler": (0, 0, 1), "read": (0, 0, 1), "write": (0, 0, 4)}
        assert counts(b) == {}
        cluster.resume("b")


async def test_what_a_copy_answers_is_done_by_the_member_that_reads_it() -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster)
        there = key_at(keyspace, "b")
        await keyspace.put(there, 1)
        cluster.hang("b")
        assert await keyspace.get(there, stale=True) == 1

        assert counts(a) == {"read": (1, 0, 0)}
        assert counts(b) == {"write": (1, 0, 0)}
        cluster.resume("b")


async def test_a_request_for_a_keyspace_that_is_gone_is_refused() -> None:
    async with a_cluster() as cluster:
        a, _, keyspace = await two(cluster)
        await a.keyspaces.drop("k")
        with pytest.raises(KeyspaceUnknown):
            await keyspace.put("x", 1)

        assert counts(a) == {"write": (0, 1, 0)}


async def test_one_of_sixteen_is_timed() -> None:
    async with a_cluster() as cluster:
        a, b, keyspace = await two(cluster)
        here, there = key_at(keyspace, "a"), key_at(keyspace, "b")
        for _ in range(32):
            await keyspace.get(here)
            await keyspace.put(here, 1)
            await keyspace.get(there)
        assert sum(a.proxying.operations.read.seconds.counts) == 2
        assert sum(a.proxying.operations.write.seconds.counts) == 2
        assert sum(b.proxying.operations.read.seconds.counts) == 2
        assert sum(b.proxying.operations.write.seconds.counts) == 0
        assert {*KINDS} == b.proxying.operations.by_kind().keys()
