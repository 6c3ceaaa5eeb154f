"""A bug in what runs one keyspace at one node, in virtual time: what it ends, and what goes on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Address
from ringpop_py.base.errors import OutcomeUnknown, PartitionUnavailable
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.requests import APPLY, ApplyRequest, decode_results
from ringpop_py.edge.admin.keyspaces import READS as STATE_ENDPOINTS
from ringpop_py.member.swim.member import AWAY, FAILED_LABEL, LABEL_VALUE_BYTES_MAX, Member
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.keyspaces.shares import ALL_FAILED, failed_label, has_failed
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.memory_clusters import Cluster, a_cluster, key_at, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


class BuggyStore:
    """One node's way to a store: raises what no store may raise, in the keyspace *buggy*."""

    quick = True
    in_memory = True
    value_bytes_max = None

    def __init__(self, store: MemoryStore) -> None:
        self.buggy = ""
        self._store = store

    def put_if_absent(self, key: str, value: bytes) -> bool:
        self._meet_bug(key)
        return self._store.put_if_absent(key, value)

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def list(self, prefix: str) -> list[str]:
        return self._store.list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def close(self) -> None:
        pass

    def _meet_bug(self, key: str) -> None:
        if self.buggy and f"/{self.buggy}/" in key:
            message = "list index out of range"
            raise IndexError(message)


class Slow(Actor[int, int]):
    state = 0

    async def receive(self, message: int) -> int:
        await trio.sleep(1)
        self.state += message
        return int(self.state)


def buggy_stores() -> tuple[dict[str, Any], BuggyStore]:
    """Stores of three nodes that are one; that of b can have a bug."""
    store = MemoryStore()
    buggy = BuggyStore(store)
    return {"a": store, "b": buggy, "c": store}, buggy


async def two_keyspaces(cluster: Cluster) -> tuple[Ringpop, Ringpop, Keyspace, Keyspace]:
    """The nodes a and b of three, and two keyspaces as a sees them."""
    a, b, _ = await cluster.start("a", "b", "c")
    counts = await a.open_keyspace("counts", partitions=8)
    other = await a.open_keyspace("other", partitions=8)
    for keyspace in (counts, other):
        await serving(keyspace, "a", "b", "c")
        await b.open_keyspace(keyspace.name)
    return a, b, counts, other


async def test_a_bug_in_one_keyspace_ends_neither_the_node_nor_its_other_keyspaces() -> None:
    stores, store = buggy_stores()
    async with a_cluster(stores) as cluster:
        a, b, counts, other = await two_keyspaces(cluster)
        key = key_at(other, "b")

        store.buggy = "counts"
        await counts.put(key_at(counts, "b"), 1)
        await serving(counts, "a", "c")
        await other.put(key, 2)

        assert other.owner_of(key) == "b"
        assert "b" in a.ring
        there = await b.open_keyspace("counts")
        assert await there.get_many([key_at(counts, "a"), key_at(counts, "c")]) == {}


async def test_writers_to_a_share_that_fails_meet_no_error_and_nothing_is_done_twice() -> None:
    stores, store = buggy_stores()
    failures: list[Exception] = []
    counted = 0

    async def write(keyspace: Keyspace) -> None:
        nonlocal counted
        for _ in range(30):
            try:
                await keyspace.update("k", "count")
                counted += 1
            except Exception as error:  # noqa: BLE001 - to be told below
                failures.append(error)
            await trio.sleep(0.1)

    async with a_cluster(stores) as cluster:
        *_, counts, _ = await two_keyspaces(cluster)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(write, counts)
            await trio.sleep(0.5)
            store.buggy = "counts"

        assert failures == []
        assert await counts.get("k") == counted == 90


async def test_a_share_that_has_failed_says_so_wherever_it_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "ringpop")
    stores, store = buggy_stores()
    async with a_cluster(stores) as cluster:
        a, b, counts, _ = await two_keyspaces(cluster)
        key = key_at(counts, "b")
        part = (counts.partition_of(key), (Write("x", 0, (Change(key, "put", 1),)),))
        body = ApplyRequest("counts", counts.generation, (part,)).encode()
        write = Call(NODE_SERVICE, APPLY, b"", body, ttl_s=5)

        store.buggy = "counts"
        (first,) = decode_results((await a.channel.call(b.address, write)).arg3, 1)
        (second,) = decode_results((await a.channel.call(b.address, write)).arg3, 1)
        await a.wait_until(lambda ringpop: has_failed(member(ringpop, "b"), "counts"))
        shown = await STATE_ENDPOINTS["/admin/keyspaces/show"](b, {"name": "counts"})

    text = "this node's share of keyspace 'counts' has failed: IndexError: list index out of range"
    assert isinstance(first, OutcomeUnknown)
    assert (type(second), str(second)) == (PartitionUnavailable, text)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == text
    assert isinstance(shown, dict)
    assert shown["failed"] == ["b"]
    assert shown["here"]["failure"] == text


async def test_a_share_in_memory_hands_over_what_it_has_when_it_fails() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")
        keyspace = await a.open_keyspace("sessions", mode="memory", partitions=8)
        await serving(keyspace, "a", "b")
        values = {f"k{number}": number for number in range(50)}
        await keyspace.update_many([(key, "put", value) for key, value in values.items()])

        async def bug() -> None:
            await trio.lowlevel.checkpoint()
            raise IndexError

        b.keyspaces.here("sessions").spawn(bug)
        await serving(keyspace, "a")

        assert dict([row async for row in keyspace.scan()]) == values


async def test_a_message_at_an_actor_of_a_share_that_fails_takes_effect_once_elsewhere() -> None:
    stores, store = buggy_stores()
    async with a_cluster(stores) as cluster, trio.open_nursery() as nursery:
        _, b, counts, _ = await two_keyspaces(cluster)
        here = counts.actor(Slow)
        for node in (b, cluster.nodes["c"]):
            (await node.open_keyspace("counts")).actor(Slow)
        key = next(k for n in range(100) if here.owner_of(k := f"k{n}") == "b")
        answers: list[int] = []

        async def ask() -> None:
            answers.append(await here.ask(key, 7))

        nursery.start_soon(ask)
        await trio.sleep(0.5)
        store.buggy = "counts"
        await serving(counts, "a", "c")
        await trio.sleep(3)

        assert answers == [7]
        assert await here.state_of(key) == 7


async def test_an_applications_labels_leave_the_failure_told() -> None:
    stores, store = buggy_stores()
    async with a_cluster(stores) as cluster:
        a, b, counts, _ = await two_keyspaces(cluster)
        store.buggy = "counts"
        await counts.put(key_at(counts, "b"), 1)

        b.set_labels((("zone", "x"),))
        await a.wait_until(lambda ringpop: ("zone", "x") in member(ringpop, "b").labels)

        assert has_failed(member(a, "b"), "counts")


def member(ringpop: Ringpop, name: str) -> Member:
    return next(member for member in ringpop.members if member.name == name)


@pytest.mark.parametrize(
    ("failed", "asked", "expected"),
    [
        (["counts"], "counts", True),
        (["counts"], "count", False),
        (["a,b", "c"], "a,b", True),
        (["a,b", "c"], "a", False),
        ([], "counts", False),
        (["x" * 99, "y" * 99], "z", True),  # no room to say more than that some have
    ],
)
def test_the_label_says_which_shares_have_failed(
    failed: list[str],
    asked: str,
    expected: bool,  # noqa: FBT001 - a parameter
) -> None:
    value = failed_label(failed)
    labels = () if value is None else ((FAILED_LABEL, value),)

    assert has_failed(Member("b", *Address("b", 1), 1, labels=labels), asked) is expected
    assert value is None or len(value) <= LABEL_VALUE_BYTES_MAX
    assert value != ALL_FAILED or len(failed) > 1


async def test_a_node_whose_web_application_is_away_keeps_its_partitions() -> None:
    async with a_cluster(buggy_stores()[0]) as cluster:
        a, b, _ = await cluster.start("a", "b", "c")
        durable = await a.open_keyspace("durable", partitions=8)
        memory = await a.open_keyspace("memory", partitions=8, mode="memory")
        for keyspace in (durable, memory):
            await serving(keyspace, "a", "b", "c")
        before = [keyspace.table.owners() for keyspace in (durable, memory)]

        b.labels.set_own(*AWAY)
        await a.wait_until(lambda a: "b" not in a.ring)
        await trio.sleep(30)

        assert [keyspace.table.owners() for keyspace in (durable, memory)] == before
        await durable.put(key_at(durable, "b"), 1)
