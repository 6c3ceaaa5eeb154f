"""An admin changes how many members a keyspace waits for, while the cluster runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from ringpop_py.base.errors import KeyspaceConflict, NotEnoughMembers
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.backups.epochs import checkpoint_now
from ringpop_py.state.stores.folder import FolderStore
from ringpop_py.state.stores.memory import MemoryStore
from tests.logged import events_in
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace


async def ask(node: Ringpop, path: str, **body: object) -> Any:  # noqa: ANN401 - plain values
    packed = encode_value("msgpack", {"name": "three", **body})
    call = Call(NODE_SERVICE, f"/admin/keyspaces/{path}", b"", packed, ttl_s=10.0)
    return decode_value("msgpack", (await node.channel.call(node.address, call)).arg3)


async def set_to(node: Ringpop, count: object) -> Any:  # noqa: ANN401 - plain values
    return await ask(node, "set", min_cluster_size=count)


async def three(node: Ringpop, *, strategy: str = "balanced", count: int = 3) -> Keyspace:
    """The keyspace as the code of the application opens it."""
    return await node.open_keyspace(
        "three", partitions=4, min_cluster_size=count, strategy=strategy
    )


async def known_at(node: Ringpop, count: int) -> None:
    """Return when *node* goes by that number, with which it was not told itself."""
    with trio.fail_after(60):
        while (await node.open_keyspace("three")).definition.min_cluster_size != count:
            await trio.sleep(0.05)


@pytest.mark.virtual_time
@pytest.mark.parametrize("strategy", ["balanced", "average"])
async def test_a_keyspace_that_waits_for_absent_members_is_served_once_an_admin_says_so(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ringpop")
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await three(a, strategy=strategy)
        with pytest.raises(NotEnoughMembers, match="or lower it: ringpopctl keyspace set"):
            await keyspace.put("k", 1)

        answer = await set_to(a, 1)

        with trio.fail_after(60):
            await keyspace.wait_assigned()
        await keyspace.put("k", 1)
        assert answer == {
            "source": "a",
            "name": "three",
            "min_cluster_size": 1,
            "before": 3,
            "revision": 1,
        }
        (told,) = [event.fields for event in events_in(caplog, "change-asked")]
        assert told["endpoint"] == "/admin/keyspaces/set"
        shown = await ask(a, "show")
        assert (shown["definition"]["min_cluster_size"], shown["revision"]) == (1, 1)


@pytest.mark.virtual_time
async def test_the_only_one_left_serves_what_it_restores() -> None:
    async with a_cluster() as cluster:
        a, *_ = [await cluster.start(name) for name in "abc"]
        keyspace = await three(a)
        await keyspace.wait_assigned()
        await keyspace.put("k", 1)
        await checkpoint_now(a.keyspaces.durable_host("three"))
        for name in "cba":
            await cluster.stop(name)
        b = await cluster.start("b")
        await ask(b, "restore")
        with pytest.raises(NotEnoughMembers):
            await (await three(b)).get("k")

        await set_to(b, 1)
        await ask(b, "restore")  # what an admin has set holds in the next generation, too

        restored = await three(b)
        with trio.fail_after(60):
            await restored.wait_assigned()
        assert await restored.get("k") == 1
        assert (await ask(b, "show"))["generation"] == 3
        await ask(b, "bring-back", generation=1)  # whose own definition has the number in code
        with trio.fail_after(60):
            await (await three(b)).wait_assigned()


@pytest.mark.virtual_time
async def test_running_members_newcomers_and_those_without_a_store_learn_it() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        there = await three(b)
        await known_at(a, 3)
        bare = await cluster.start("bare", has_store=False)

        answer = await set_to(bare, 2)  # a member with the store answers in its place

        assert (answer["min_cluster_size"], answer["before"]) == (2, 3)
        await known_at(a, 2)
        await known_at(b, 2)
        with trio.fail_after(60):
            await all_online(there, "a", "b")
            while bare.keyspaces.known()["three"].definition.revision != 1:
                await trio.sleep(0.05)
        newcomer = await cluster.start("c")
        assert (await newcomer.open_keyspace("three")).definition.min_cluster_size == 2
        assert (await ask(a, "set", min_cluster_size=1))["before"] == 2
        await known_at(newcomer, 1)
        await known_at(b, 1)
        with trio.fail_after(60):
            while len({node.keyspaces.gossip.digest for node in (a, b, newcomer)}) > 1:
                await trio.sleep(0.05)


@pytest.mark.virtual_time
async def test_the_value_in_code_does_not_conflict_with_that_of_an_admin() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await three(a)
        with pytest.raises(KeyspaceConflict):
            await three(a, count=2)
        await set_to(a, 1)

        for count in (3, 2, 1):
            assert (await three(a, count=count)).definition.min_cluster_size == 1
        with pytest.raises(KeyspaceConflict, match="partitions 4 instead of 5"):
            await a.open_keyspace("three", partitions=5, min_cluster_size=3)


@pytest.mark.virtual_time
async def test_admins_at_two_nodes_at_once_leave_one_value_and_each_is_told_what_it_replaced() -> (
    None
):
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "ab"]
        await three(nodes[0])
        await known_at(nodes[1], 3)
        answers: list[Any] = []

        async def change(node: Ringpop, count: int) -> None:
            answers.append(await set_to(node, count))

        async with trio.open_nursery() as nursery:
            for count, node in enumerate([*nodes, *nodes], start=4):
                nursery.start_soon(change, node, count)

        answers.sort(key=lambda answer: answer["revision"])
        assert [answer["revision"] for answer in answers] == [1, 2, 3, 4]
        values = [3, *(answer["min_cluster_size"] for answer in answers)]
        assert [answer["before"] for answer in answers] == values[:-1]
        for node in nodes:
            await known_at(node, values[-1])


@pytest.mark.parametrize("kind", ["memory", "folder"])
async def test_it_survives_a_restart_of_all(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else cast("MemoryStore", FolderStore(tmp_path))
    async with a_cluster(store) as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await three(a)
        await set_to(b, 1)

    async with a_cluster(store) as cluster:
        c = await cluster.start("c")
        keyspace = await three(c)

        with trio.fail_after(20):
            await keyspace.wait_assigned()
        await keyspace.put("k", 1)
        assert await keyspace.get("k") == 1
        assert keyspace.definition.min_cluster_size == 1


@pytest.mark.virtual_time
async def test_after_a_drop_the_value_in_code_holds_again() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await three(a)
        await set_to(a, 1)
        await ask(a, "drop")
        gone = await set_to(a, 2)

        assert (await three(a)).definition.min_cluster_size == 3
        assert gone["message"] == "no keyspace 'three' in cluster 'default'"


@pytest.mark.virtual_time
async def test_a_wrong_minimum_of_members_is_refused() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await three(a)
        await a.open_keyspace("carts", mode="memory", min_cluster_size=3)

        wrong = [(await set_to(a, count))["message"] for count in (0, "1", None, True)]
        unknown = await ask(a, "set", name="four", min_cluster_size=1)
        in_memory = await ask(a, "set", name="carts", min_cluster_size=1)
        same = await set_to(a, 3)

        assert all("min_cluster_size is a whole number from 1 to " in text for text in wrong)
        assert "no keyspace 'four' in cluster 'default'" in unknown["message"]
        assert "drop it, and create it with another min_cluster_size" in in_memory["message"]
        assert (same["min_cluster_size"], same["before"], same["revision"]) == (3, 3, 0)
