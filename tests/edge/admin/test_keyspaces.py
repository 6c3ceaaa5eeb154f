"""`state_admin.endpoints`: what nodes tell of keyspaces, in virtual time, on a store in memory."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop


class BreakableStore(MemoryStore):
    """Refuses to write journals and claims while it is broken."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def put_if_absent(self, key: str, value: bytes) -> bool:
        if self.broken and ("/p/" in key or "/j/" in key):
            raise StoreUnavailable("the disk is on fire")
        return super().put_if_absent(key, value)


class Cluster:
    def __init__(self, stack: AsyncExitStack) -> None:
        self.network = MemoryNetwork()
        self.store = BreakableStore()
        self._stack = stack
        self._hosts: list[Address] = []

    async def start(self, name: str, *, has_store: bool = True) -> Ringpop:
        address = Address("10.0.0.1", 3000 + len(self._hosts))
        self._hosts.append(address)
        config = Config(name=name, listen=address, hosts=tuple(self._hosts))
        store = self.store if has_store else None
        node = open_ringpop(config, network=self.network, store=store)
        return await self._stack.enter_async_context(node)


@asynccontextmanager
async def a_cluster() -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(stack)


@pytest.fixture(autouse=True)
def _virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock


async def ask(node: Ringpop, path: str, **body: object) -> Any:  # noqa: ANN401 - plain values
    call = Call(NODE_SERVICE, path, b"", encode_value("msgpack", body), ttl_s=10.0)
    answer = await node.channel.call(node.address, call)
    return decode_value("msgpack", answer.arg3)


async def settled(node: Ringpop, name: str) -> Any:  # noqa: ANN401 - plain values
    """Return what `show` says once all partitions are where they should be."""
    while True:
        shown = await ask(node, "/admin/keyspaces/show", name=name)
        if shown["settled"] == shown["partitions"]:
            return shown
        await trio.sleep(0.05)


async def test_a_keyspace_is_made_at_one_node_and_shown_by_another() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        made = await ask(a, "/admin/keyspaces/create", name="counts", partitions=8)
        again = await ask(b, "/admin/keyspaces/create", name="counts", partitions=8)

        shown = await settled(b, "counts")

        assert (made["created"], again["created"]) == (True, False)
        assert shown["members"] == [
            {"name": "a", "partitions": 4, "desired": 4},
            {"name": "b", "partitions": 4, "desired": 4},
        ]
        assert shown["statuses"]["online"] == 8
        assert shown["busiest_over_mean"] == 1.0
        assert shown["here"]["name"] == "b"
        assert shown["here"]["partitions"] == 4
        assert shown["definition"]["partitions"] == 8


async def test_one_that_is_defined_otherwise_is_refused() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await ask(a, "/admin/keyspaces/create", name="counts", partitions=8)

        refused = await ask(a, "/admin/keyspaces/create", name="counts", partitions=9)
        unknown = await ask(a, "/admin/keyspaces/create", name="counts", colour="red")

        assert "created with partitions 8 instead of 9" in refused["message"]
        assert "unknown: colour" in unknown["message"]


async def test_a_key_is_looked_up_and_counted_in_its_partition() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await keyspace.put("k", 1)

        found = await ask(a, "/admin/keyspaces/lookup", name="counts", key="k")
        table = await ask(a, "/admin/keyspaces/table", name="counts")

        assert found["partition"] == keyspace.partition_of("k")
        assert (found["owner"], found["epoch"], found["status"]) == ("a", 1, "online")
        assert [row["keys"] for row in table["rows"]] == [
            int(number == found["partition"]) for number in range(4)
        ]


async def test_a_table_says_whether_keys_are_placed_by_their_hash_tags() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await ask(a, "/admin/keyspaces/create", name="plain", partitions=64)
        await ask(a, "/admin/keyspaces/create", name="tagged", partitions=64, hash_tags=True)

        tables = [await ask(a, "/admin/keyspaces/table", name=n) for n in ("plain", "tagged")]
        found = [
            await ask(a, "/admin/keyspaces/lookup", name="tagged", key=key)
            for key in ("{user:42}/cart", "{user:42}/orders", "user:42")
        ]

        assert [table.get("hash_tags") for table in tables] == [None, True]
        assert len({each["partition"] for each in found}) == 1


async def test_why_nothing_is_assigned_is_said() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")

        await ask(a, "/admin/keyspaces/create", name="three", partitions=4, min_cluster_size=3)
        await trio.sleep(2)
        shown = await ask(a, "/admin/keyspaces/show", name="three")

        assert "1 of the 3 members" in shown["waits_for"]
        assert shown["statuses"]["unassigned"] == 4


async def test_a_dropped_keyspace_is_listed_as_such_and_its_data_named() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await ask(a, "/admin/keyspaces/create", name="counts", partitions=4)

        dropped = await ask(b, "/admin/keyspaces/drop", name="counts")
        listed = await ask(b, "/admin/keyspaces")
        shown = await ask(b, "/admin/keyspaces/show", name="counts")

        assert dropped["kept_under"] == "default/keyspaces/counts/000001/"
        assert (listed["keyspaces"], listed["dropped"]) == (
            [],
            [{"name": "counts", "generation": 1}],
        )
        assert shown["message"] == "no keyspace 'counts' in cluster 'default'"


async def test_a_node_without_a_store_has_another_answer() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b", has_store=False)

        made = await ask(b, "/admin/keyspaces/create", name="counts", partitions=4)
        listed = await ask(b, "/admin/keyspaces")
        refused = await ask(b, "/admin/keyspaces/show", name="nope")

        assert made["source"] == a.name
        assert [keyspace["name"] for keyspace in listed["keyspaces"]] == ["counts"]
        assert refused["message"] == "no keyspace 'nope' in cluster 'default'"


async def test_without_any_store_what_to_do_is_said() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a", has_store=False)

        refused = await ask(a, "/admin/keyspaces/create", name="counts")

        assert "give it one with --store" in refused["message"]


async def test_trouble_with_the_store_is_told_with_its_partitions() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await ask(a, "/admin/keyspaces/create", name="counts", partitions=4)
        await settled(a, "counts")
        keyspace = await a.open_keyspace("counts")
        cluster.store.broken = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keyspace.put, "k", 1)
            await trio.sleep(0.5)

            here = (await ask(a, "/admin/keyspaces/show", name="counts"))["here"]
            cluster.store.broken = False

        # They share a journal.
        assert here["troubles"] == [
            {"partition": number, "text": "the disk is on fire"} for number in range(4)
        ]


async def test_trouble_of_partitions_on_their_way_here_is_told_too() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        cluster.store.broken = True
        await ask(a, "/admin/keyspaces/create", name="counts", partitions=4)
        await trio.sleep(0.5)

        shown = await ask(a, "/admin/keyspaces/show", name="counts")
        cluster.store.broken = False

        assert shown["here"]["troubles_count"] == 4
        assert shown["served"] == 0
        await settled(a, "counts")


async def test_a_manual_keyspace_is_rebalanced_when_asked_and_back() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        manual = {"name": "counts", "partitions": 4, "automatic": False}
        await ask(a, "/admin/keyspaces/create", **manual)
        await settled(a, "counts")
        b = await cluster.start("b")
        await trio.sleep(3)

        planned = await ask(b, "/admin/keyspaces/rebalance", name="counts", dry_run=True)
        done = await ask(b, "/admin/keyspaces/rebalance", name="counts", max_moves=1)
        after = await settled(b, "counts")
        await settled(a, "counts")
        undone = await ask(b, "/admin/keyspaces/rebalance", name="counts", to_version=1)

        assert planned["moves"] == [
            {"partition": row["partition"], "from": "a", "to": "b"} for row in planned["moves"]
        ]
        assert (len(planned["moves"]), planned["assignment_version"]) == (2, 1)
        assert (len(done["moves"]), done["left"], done["assignment_version"]) == (1, 1, 2)
        assert [member["partitions"] for member in after["members"]] == [3, 1]
        assert [(move["from"], move["to"]) for move in undone["moves"]] == [("b", "a")]


async def test_a_rebalance_that_makes_no_sense_is_refused() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await ask(a, "/admin/keyspaces/create", name="counts", partitions=4)
        await settled(a, "counts")

        automatic = await ask(a, "/admin/keyspaces/rebalance", name="counts")
        undo = await ask(a, "/admin/keyspaces/rebalance", name="counts", to_version=1)
        number = await ask(a, "/admin/keyspaces/rebalance", name="counts", max_moves=-1)

        assert "move automatically" in automatic["note"]
        assert "move automatically" in undo["message"]
        assert "max_moves is a whole number from 0" in number["message"]


async def test_checkpoints_of_the_whole_are_made_and_listed() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b", has_store=False)
        keyspace = await a.open_keyspace("counts", partitions=4)
        await keyspace.update_many([(f"k{n}", "put", n) for n in range(20)])

        none = await ask(b, "/admin/keyspaces/checkpoints", name="counts")
        made = await ask(b, "/admin/keyspaces/checkpoint", name="counts")
        await ask(a, "/admin/keyspaces/checkpoint", name="counts", keep=1)
        listed = await ask(a, "/admin/keyspaces/checkpoints", name="counts")
        refused = await ask(a, "/admin/keyspaces/checkpoint", name="counts", keep=0)

        assert none["checkpoints"] == []
        assert (made["name"], made["keys"], made["made_by"]) == ("epoch-1", 20, "a")
        assert [checkpoint["name"] for checkpoint in listed["checkpoints"]] == ["epoch-2"]
        assert "keep is a whole number above 0" in refused["message"]


async def test_a_keyspace_is_restored_and_a_drop_undone() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await keyspace.put("k", "old")
        await ask(a, "/admin/keyspaces/checkpoint", name="counts")
        await keyspace.put("k", "new")

        other = await ask(a, "/admin/keyspaces/restore", name="counts", into="copy")
        await ask(a, "/admin/keyspaces/drop", name="counts")
        back = await ask(a, "/admin/keyspaces/bring-back", name="counts")
        undropped = await (await a.open_keyspace("counts")).get("k")
        await ask(a, "/admin/keyspaces/restore", name="counts", number=1)
        restored = await (await a.open_keyspace("counts")).get("k")
        unknown = await ask(a, "/admin/keyspaces/restore", name="counts", number=9)

        assert (other["name"], other["generation"]) == ("copy", 1)
        assert back["origin"] == "brought back from generation 1 of 'counts'"
        assert (undropped, restored) == ("new", "old")
        assert await (await a.open_keyspace("copy")).get("k") == "old"
        assert "epoch-9" in unknown["message"]


async def test_one_in_memory_mode_is_shown_where_nobody_has_a_store() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a", has_store=False)
        b = await cluster.start("b", has_store=False)

        made = await ask(a, "/admin/keyspaces/create", name="carts", mode="memory", partitions=4)
        shown = await settled(b, "carts")
        rebalanced = await ask(b, "/admin/keyspaces/rebalance", name="carts")
        dropped = await ask(b, "/admin/keyspaces/drop", name="carts")

        assert (made["created"], made["mode"]) == (True, "memory")
        assert [member["partitions"] for member in shown["members"]] == [2, 2]
        sound = {"gaining": 0, "failure": None}
        assert shown["here"] == {"name": "b", "partitions": 2, "keys": 0, **sound}
        assert "needs a durable keyspace" in rebalanced["message"]
        assert dropped["kept_under"] is None


async def test_a_node_without_a_store_lists_what_it_serves_and_what_others_do() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b", has_store=False)
        await ask(a, "/admin/keyspaces/create", name="counts", partitions=4)
        await ask(a, "/admin/keyspaces/create", name="carts", mode="memory", partitions=4)
        await settled(b, "carts")

        listed = await ask(b, "/admin/keyspaces")

        assert [(k["name"], k["source"]) for k in listed["keyspaces"]] == [
            ("carts", "b"),
            ("counts", "a"),
        ]
