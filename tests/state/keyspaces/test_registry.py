"""Keyspaces on a cluster in one process, in virtual time, on a store in memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.errors import (
    BadOperation,
    ConfigError,
    KeyspaceConflict,
    KeyspaceUnknown,
    NotEnoughMembers,
    PartitionUnavailable,
    StateDamaged,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.base.values.checksum import wrap_message
from ringpop_py.base.values.operations import OperationId
from ringpop_py.member.swim.memberlist import MemberList
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.journal.records import ORIGIN
from ringpop_py.state.placement.definition import Definition, Mode
from ringpop_py.state.shares.rescale_events import Gained, Lost
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from ringpop_py.testing import MemoryNetwork
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.member.swim.member import Member

pytestmark = pytest.mark.virtual_time


async def test_partitions_move_to_a_new_member_with_their_state() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=16)
        for number in range(100):
            await keyspace.put(f"k{number}", number)

        await cluster.start("b")
        await all_online(keyspace, "a", "b")

        assert keyspace.table.counts() == {"a": 8, "b": 8}
        assert await keyspace.get_many(f"k{n}" for n in range(100)) == {
            f"k{n}": n for n in range(100)
        }


async def test_a_scan_is_ordered_over_all_partitions() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("words", partitions=8)
        await b.open_keyspace("words")
        await keyspace.update_many([(f"{n:04}", "put", n) for n in range(2_500)])

        found = [row async for row in keyspace.scan(start="0100", end="2400")]

        assert found == [(f"{n:04}", n) for n in range(100, 2_400)]


async def test_the_state_is_there_after_all_nodes_were_gone() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("kept", partitions=4)
        await keyspace.put("k", 1)

    async with a_cluster(store) as cluster:
        keyspace = await (await cluster.start("b")).open_keyspace("kept")

        assert await keyspace.get("k") == 1


async def test_a_node_is_told_which_partitions_it_gains_and_loses() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await keyspace.update_many([("k", "add", 1)], offsets={"topic": 42})
        events = keyspace.rescale_events()
        gained = [await anext(events) for _ in range(4)]
        await cluster.start("b")
        lost = [await anext(events) for _ in range(2)]

        assert [type(event) for event in lost] == [Lost, Lost]
        offsets = {e.partition: e.offsets for e in gained if isinstance(e, Gained)}
        assert offsets[keyspace.partition_of("k")] == {"topic": 42}


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_below_the_minimum_of_members_requests_are_refused_at_once_with_who_is_there(
    mode: Mode,
) -> None:
    async with a_cluster() as cluster:
        a, _ = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("four", partitions=4, min_cluster_size=4, mode=mode)
        await trio.sleep(5)
        began = trio.current_time()

        with pytest.raises(NotEnoughMembers) as caught:
            await keyspace.put("k", 1)
        with pytest.raises(NotEnoughMembers):
            await keyspace.get("k")

        assert trio.current_time() - began < 0.1
        text = str(caught.value)
        assert "2 of the 4 members that the keyspace waits for (min_cluster_size)" in text
        assert "are here: a, b. Start 2 more" in text


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_a_caller_can_wait_for_the_minimum_of_members(mode: Mode) -> None:
    async with trio.open_nursery() as nursery, a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("two", partitions=4, min_cluster_size=2, mode=mode)
        with pytest.raises(NotEnoughMembers):
            await keyspace.put("k", 0)

        assigned = trio.Event()

        async def wait() -> None:
            await keyspace.wait_assigned()
            assigned.set()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not assigned.is_set()
        await cluster.start("b")
        await assigned.wait()
        await keyspace.put("k", 1)
        assert await keyspace.get("k") == 1


async def test_a_caller_that_waits_for_a_keyspace_is_told_when_it_is_dropped() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("two", partitions=4, min_cluster_size=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.keyspaces.drop, "two")

            with pytest.raises(KeyspaceUnknown, match="'two' was dropped"):
                await keyspace.wait_assigned()


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_an_assigned_keyspace_is_served_by_fewer_members_even_after_a_restart(
    mode: Mode,
) -> None:
    async with a_cluster() as cluster:
        a, *_ = [await cluster.start(name) for name in "abc"]
        keyspace = await a.open_keyspace("three", partitions=4, min_cluster_size=3, mode=mode)
        await keyspace.wait_assigned()
        await keyspace.put("k", 1)
        await cluster.stop("c")
        await cluster.stop("b")

        again = await (await cluster.start("b")).open_keyspace("three")

        assert await again.get("k") == 1


class Forgetful(MemoryStore):
    """Cannot list all partitions, for so many times."""

    failures_left = 0

    def list(self, prefix: str) -> list[str]:
        if prefix.endswith("/p/") and self.failures_left:
            self.failures_left -= 1
            raise StoreUnavailable("not now")
        return super().list(prefix)


@pytest.mark.parametrize("strategy", ["balanced", "average"])
async def test_a_keyspace_assigned_in_the_store_is_served_by_the_only_member_left(
    strategy: str,
) -> None:
    store = Forgetful()
    async with a_cluster(store) as cluster:
        a, *_ = [await cluster.start(name) for name in "abc"]
        keyspace = await a.open_keyspace(
            "three", partitions=4, min_cluster_size=3, strategy=strategy
        )
        await keyspace.wait_assigned()
        await keyspace.put("k", 1)
        for name in "cba":  # so nobody is left who remembers
            await cluster.stop(name)
        store.failures_left = 3

        again = await (await cluster.start("b")).open_keyspace("three")
        with trio.fail_after(60):
            await again.wait_assigned()

        assert await again.get("k") == 1
        assert strategy == "average" or store.failures_left == 0  # its record says so, too


async def test_a_keyspace_that_was_restored_is_not_assigned_by_that() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("three", partitions=4, min_cluster_size=3)
        keys = KeyspaceKeys("default", "three", 1)
        cluster.store.put_if_absent(keys.partition(0).checkpoint(ORIGIN), b"")
        await cluster.stop("a")

        again = await (await cluster.start("a")).open_keyspace("three")

        with pytest.raises(NotEnoughMembers):
            await again.get("k")
        assert not keyspace.table.assigned


async def test_a_keyspace_cannot_be_opened_as_another_one() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await a.open_keyspace("counts", partitions=4)

        with pytest.raises(KeyspaceConflict, match="partitions 4 instead of 8"):
            await a.open_keyspace("counts", partitions=8)


async def test_a_dropped_keyspace_is_no_longer_served_and_can_be_created_anew() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        old = await a.open_keyspace("counts", partitions=4)
        await old.put("k", 1)
        await b.keyspaces.drop("counts")
        with pytest.raises(KeyspaceUnknown):
            await b.open_keyspace("counts")

        new = await b.open_keyspace("counts", partitions=8)

        assert await new.get("k") is None


async def test_a_node_without_a_store_says_what_it_lacks() -> None:
    network = MemoryNetwork()
    config = Config(name="a", listen=Address("10.0.0.1", 3000))
    async with open_ringpop(config, network=network) as node:
        with pytest.raises(ConfigError, match="--store"):
            await node.open_keyspace("counts", partitions=4)


async def test_partitions_may_live_in_a_database_on_disk(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="the extra rocks is not installed")
    store = MemoryStore()
    config = Config(
        name="a", listen=Address("10.0.0.1", 3000), entries_folder=str(tmp_path / "entries")
    )
    async with open_ringpop(config, network=MemoryNetwork(), store=store) as node:
        keyspace = await node.open_keyspace("large", partitions=4)
        await keyspace.update_many([(f"{n:03}", "put", n) for n in range(100)])

        assert [row async for row in keyspace.scan()] == [(f"{n:03}", n) for n in range(100)]
        assert list((tmp_path / "entries").glob("entries-*"))
    assert not list((tmp_path / "entries").glob("entries-*"))


async def test_a_start_that_fails_leaves_the_folder_of_entries_free(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="the extra rocks is not installed")
    network, store = MemoryNetwork(), MemoryStore()
    taken = Config(listen=Address("10.0.0.1", 1))
    config = Config(listen=taken.listen, entries_folder=str(tmp_path))
    async with open_ringpop(taken, network=network):
        with pytest.raises(ConfigError, match="in use"):
            async with open_ringpop(config, network=network, store=store):
                pass

    async with open_ringpop(config, network=network, store=store) as node:
        assert node.ready


async def test_entries_on_disk_without_what_they_need_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    monkeypatch.delitem(sys.modules, "ringpop_py.state.stores.rocks", raising=False)
    config = Config(entries_folder=str(tmp_path))

    with pytest.raises(ConfigError, match=r"pip install 'ringpop_py\[rocks\]'"):
        async with open_ringpop(config, network=MemoryNetwork(), store=MemoryStore()):
            pass


@pytest.mark.parametrize("key", ["x" * 1_025, "\ud800", ""], ids=["long", "half a pair", "empty"])
async def test_an_impossible_key_is_refused_immediately_wherever_its_owner_is(key: str) -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start("a"), await cluster.start("b")]
        keyspaces = [await node.open_keyspace("one", partitions=1) for node in nodes]
        await keyspaces[0].put("x", 1)
        begun = trio.current_time()

        for keyspace in keyspaces:
            with pytest.raises(BadOperation):
                await keyspace.put(key, 1)

        assert trio.current_time() - begun < 1


@pytest.mark.parametrize("steps_count", range(8))
async def test_a_node_that_is_cancelled_in_the_midst_of_commits_ends(steps_count: int) -> None:
    async with trio.open_nursery() as nursery, a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=8)

        async def count(index: int) -> None:
            while True:
                await keyspace.update(f"key-{index}", "add", 1)

        for index in range(8):
            nursery.start_soon(count, index)
        await keyspace.put("other", 1)
        for _ in range(steps_count):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_keyspaces_that_have_ended_can_be_closed_and_serve_nobody() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await keyspace.put("other", 1)
        keyspaces = a.keyspaces
        nursery = keyspaces._tasks._nursery
        assert nursery is not None
        nursery.cancel_scope.cancel()
        while nursery.child_tasks:
            await trio.sleep(0.01)

        with trio.fail_after(5):
            await keyspaces.shares.close()
        ended_at = trio.current_time()
        for call in (
            lambda: keyspace.put("other", 2),
            lambda: keyspace.get("other"),
            lambda: a.open_keyspace("counts"),
        ):
            with pytest.raises(PartitionUnavailable, match="this node has ended: the block of"):
                await call()
        assert trio.current_time() == ended_at  # not at the deadline


async def test_a_full_store_is_said_at_once_and_not_after_the_deadline() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        began_at = trio.current_time()

        for owner in ("a", "b"):
            cluster.store.inject(StoreFault.FULL)
            with pytest.raises(StoreFull):
                await keyspace.put(key_at(keyspace, owner), 1)

        assert trio.current_time() - began_at < 1


NAMES = ["../x", "a~", "..", "%", "a/b", "\u540d" * 22, "x" * 100, " ", "'\\", "%2F"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_keyspace_may_have_an_odd_name(name: str) -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace(name, partitions=1)
        await keyspace.put("k", 1)

    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        assert [found.name for found in node.keyspaces.all()] == [name]
        assert await (await node.open_keyspace(name)).get("k") == 1


NO_NAMES = ["x" * 101, "", "\n", "\x00", "\u540d" * 23]


@pytest.mark.parametrize("name", NO_NAMES)
async def test_an_impossible_name_is_the_name_of_no_keyspace(name: str) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")

        with pytest.raises(ConfigError):
            await node.open_keyspace(name, partitions=1)
        with pytest.raises(KeyspaceUnknown):
            await node.open_keyspace(name)
        with pytest.raises(KeyspaceUnknown):
            await node.keyspaces.drop(name)


@pytest.mark.parametrize("change", [{"strategy": "newest"}, {"colour": "red"}])
async def test_a_keyspace_of_a_newer_version_leaves_the_others_alone(
    change: dict[str, str],
) -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        await (await node.open_keyspace("b", partitions=2)).put("k", 1)
        await node.open_keyspace("y", partitions=2)
    record = Definition(name="x").as_record() | change
    key = KeyspaceKeys("default", "x", 1).definition
    store.put_if_absent(key, wrap_message(record, key))

    async with a_cluster(store) as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("b")
        await all_online(keyspace, "a", "b")

        assert [found.name for found in a.keyspaces.all()] == ["b", "y"]
        assert [found.name for found in b.keyspaces.all()] == ["b", "y"]
        assert await keyspace.get("k") == 1
        with pytest.raises((StateDamaged, KeyspaceUnknown)):
            await a.open_keyspace("x")


async def test_keyspaces_are_found_once_the_store_answers_though_nobody_asks() -> None:
    store = MemoryStore()
    async with a_cluster(store) as cluster:
        await (await cluster.start("a")).open_keyspace("counts", partitions=2)

    async with a_cluster(store) as cluster:
        store.inject(StoreFault.FAILS, verb="list", count=3)
        node = await cluster.start("a")
        await trio.sleep(10)

        assert [found.name for found in node.keyspaces.all()] == ["counts"]


async def test_requests_for_what_was_dropped_say_so_at_once() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        there = await b.open_keyspace("counts")
        keys = [key_at(keyspace, "a"), key_at(keyspace, "b")]

        await a.keyspaces.drop("counts")
        await trio.sleep(1)

        dropped_at = trio.current_time()
        for each in (keyspace, there):
            for key in keys:
                with pytest.raises(KeyspaceUnknown):
                    await each.put(key, 1)
                with pytest.raises(KeyspaceUnknown):
                    await each.get(key)
        assert trio.current_time() - dropped_at < 1


@pytest.mark.parametrize("mode", ["durable", "memory"])
@pytest.mark.parametrize(
    "options",
    [{"offsets": {1: 2}}, {"operation_id": OperationId(["s"], 1)}],  # type: ignore[arg-type]
)
async def test_a_write_of_wrong_types_ends_nothing_but_itself(
    options: dict[str, Any], mode: Mode
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1, mode=mode)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keyspace.put, "other", 1)
            outcomes = await keyspace.update_many([("k", "add", 1)], **options)

        assert [type(outcome) for outcome in outcomes] == [BadOperation]
        assert await keyspace.get_many(["k", "other"]) == {"other": 1}


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_a_request_does_not_look_through_the_member_list(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_count = 0
    iterate = MemberList.__iter__

    def counted(members: MemberList) -> Iterator[Member]:
        nonlocal looked_count
        looked_count += 1
        return iterate(members)

    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        here = await a.open_keyspace("counts", mode=mode, partitions=8)
        there = await b.open_keyspace("counts")
        await all_online(here, "a", "b")
        await all_online(there, "a", "b")
        keys = [key_at(here, "a"), key_at(here, "b")]
        monkeypatch.setattr(MemberList, "__iter__", counted)

        began_at = trio.current_time()
        for _ in range(100):
            for key in keys:
                await here.put(key, 1)
                assert await here.get(key) == 1

        assert (
            trio.current_time() - began_at < 1
        )  # else who should own what was looked at meanwhile
        assert looked_count < 20
