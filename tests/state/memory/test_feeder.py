"""Copies of keyspaces in memory mode, on whole clusters in virtual time."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceError,
    OperationIdReused,
    OutcomeUnknown,
    PartitionUnavailable,
)
from ringpop_py.base.logs import LogEvent
from ringpop_py.base.values.operations import OperationId
from ringpop_py.edge.admin.answers import summary_of
from ringpop_py.state.copies.kept import ASTRAY_US
from tests.state.keyspaces.memory_clusters import Cluster, a_cluster, key_at, serving

if TYPE_CHECKING:
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.memory.driver import MemoryDriver
    from ringpop_py.state.placement.definition import Settings

pytestmark = pytest.mark.virtual_time
KILLS: Final = int(os.environ.get("RINGPOP_KILLS", "20"))
"""On demand more: ``RINGPOP_KILLS=200 pytest -k killed_member``."""


async def opened(
    cluster: Cluster,
    *names: str,
    copies: int = 2,
    copies_min: int = 1,
    merge: str = "last_writer_wins",
) -> list[Keyspace]:
    """The same keyspace at nodes of these names, once it has all its copies."""
    nodes = await cluster.start(*names)
    found = [
        await node.open_keyspace(
            "state", mode="memory", partitions=16, copies=copies, copies_min=copies_min, merge=merge
        )
        for node in nodes
    ]
    for keyspace in found:
        await serving(keyspace, *names)
    await copied(cluster, *names, copies=min(copies, len(names)))
    return found


def driver_of(cluster: Cluster, name: str) -> MemoryDriver:
    driver: MemoryDriver = cluster.nodes[name].keyspaces.here("state").host.driver  # type: ignore[assignment]
    return driver


async def copied(cluster: Cluster, *names: str, copies: int = 2) -> None:
    """Return when these nodes have that many copies of each partition, and no others."""
    while True:
        drivers = [driver_of(cluster, name) for name in names]
        wanted = driver_of(cluster, names[0]).steward.assignments.definition.copies
        missing = sum(driver.feeder.missing_count > 0 for driver in drivers)
        held = Counter(number for driver in drivers for number in driver.partitions)
        if bool(missing) == (copies < wanted) and set(held.values()) == {copies}:
            return
        await trio.sleep(0.05)


class Writers:
    """Tasks that put new keys, and count up others, through *keyspace*.

    Attributes:
        acknowledged: the values that were acknowledged.
        begun: how often each counter was tried.
    """

    def __init__(self, keyspace: Keyspace, count: int = 4) -> None:
        self.acknowledged: dict[str, int] = {}
        self.begun = Counter[str]()
        self._keyspace = keyspace
        self._count = count
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Write until `stop`."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for number in range(self._count):
                    nursery.start_soon(self._write, number)

    def stop(self) -> None:
        """Begin no more writes."""
        self._scope.cancel()

    async def _write(self, number: int) -> None:
        turn = 0
        while True:
            turn += 1
            with suppress(KeyspaceError):
                await self._keyspace.put(f"{number}/{turn}", turn)
                self.acknowledged[f"{number}/{turn}"] = turn
            counter = f"count/{number}/{turn % 8}"
            self.begun[counter] += 1
            with suppress(KeyspaceError):
                await self._keyspace.update(counter, "add", 1)
                self.acknowledged[counter] = self.acknowledged.get(counter, 0) + 1
            await trio.sleep(0.01)

    async def wait_for(self, count: int) -> None:
        """Return when so many writes were acknowledged."""
        while sum(1 for _ in self.acknowledged) < count:
            await trio.sleep(0.005)

    async def check(self, keyspace: Keyspace) -> None:
        """Check that all that was acknowledged is there."""
        found = await keyspace.get_many(self.acknowledged)
        lost = {
            key: (value, found.get(key))
            for key, value in self.acknowledged.items()
            if not value <= (found.get(key) or 0) <= self.begun.get(key, value)  # type: ignore[operator]
        }
        assert not lost


@pytest.mark.parametrize("acknowledged", range(1, 1 + 5 * KILLS, 5))
async def test_a_killed_member_loses_nothing_that_was_acknowledged(acknowledged: int) -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        here, *_ = await opened(cluster, "a", "b", "c")
        writers = Writers(here)
        nursery.start_soon(writers.run)
        await writers.wait_for(acknowledged)

        cluster.crash("bc"[acknowledged % 2])

        await serving(here, "a", "cb"[acknowledged % 2])
        await writers.wait_for(acknowledged + 100)
        writers.stop()
        await writers.check(here)


@pytest.mark.parametrize("after_s", [None, 0.0, 0.005, 0.02, 0.1, 0.3])
async def test_a_second_one_that_is_killed_while_the_first_is_replaced(
    after_s: float | None,
) -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        here, *_ = await opened(cluster, "a", "b", "c", "d", copies=3)
        writers = Writers(here)
        nursery.start_soon(writers.run)
        await writers.wait_for(100)

        cluster.crash("b")
        while after_s is not None and "b" in here.table.counts():
            await trio.sleep(0.001)
        await trio.sleep(after_s or 0)
        cluster.crash("c")

        await serving(here, "a", "d")
        writers.stop()
        await writers.check(here)


async def test_an_owner_that_hangs_is_replaced_and_what_it_had_when_it_goes_on_is_merged() -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        here, *_ = await opened(cluster, "a", "b", "c")
        writers = Writers(here)
        nursery.start_soon(writers.run)
        await writers.wait_for(100)
        address = cluster.nodes["b"].address

        cluster.network.hang(address)
        await serving(here, "a", "c")
        await writers.wait_for(300)
        writers.stop()
        await writers.check(here)
        cluster.network.resume(address)
        await cluster.heal()
        await serving(here, "a", "b", "c")
        await copied(cluster, *"abc")
        await writers.check(here)


async def test_a_backup_that_hangs_is_waited_for_a_moment_only_and_catches_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        here, *_ = await opened(cluster, "a", "b")
        keys = [f"k{n}" for n in range(100) if here.owner_of(f"k{n}") == "a"]
        address = cluster.nodes["b"].address
        cluster.network.hang(address)
        began_at = trio.current_time()
        await here.put(keys[0], 0)
        assert trio.current_time() - began_at < 1.5
        began_at = trio.current_time()
        await here.put(keys[0], 1)
        assert trio.current_time() - began_at < 0.1
        assert driver_of(cluster, "a").feeder.missing_count == 1

        for key in keys:
            await here.put(key, 2)
        cluster.network.resume(address)
        await cluster.heal()
        await copied(cluster, "a", "b")
        cluster.crash("a")
        (there,) = [await cluster.nodes["b"].open_keyspace("state")]
        await serving(there, "b")

        assert await there.get_many(keys) == dict.fromkeys(keys, 2)
    events = [record.msg for record in caplog.records if isinstance(record.msg, LogEvent)]
    told = [event.fields["members"] for event in events if event.name == "copies-missing"]
    assert told.count(["b"]) == 1


async def test_after_a_cut_both_sides_are_merged_and_there_are_as_many_copies_as_before() -> None:
    async with a_cluster() as cluster:
        here, _, there, _ = await opened(cluster, "a", "b", "c", "d", merge="union")
        keys = [key_at(here, name) for name in "abcd"]
        for key in keys:
            await here.put(key, ["before"])
        cluster.cut("ab", "cd")
        await serving(here, "a", "b")
        await serving(there, "c", "d")
        for key in keys:
            found = [await keyspace.get(key) for keyspace in (here, there)]
            assert ["before"] in found  # both, if each side had one of the copies
            await here.put(key, ["before", "here"])
            await there.put(key, ["before", "there"])

        await cluster.heal()
        await serving(here, *"abcd")
        await copied(cluster, *"abcd")
        cluster.crash("d")
        await serving(here, *"abc")

        for keyspace in (here, there):
            merged = await keyspace.get_many(keys)
            assert merged == {key: ["before", "here", "there"] for key in keys}


async def test_members_join_leave_and_restart_under_writes_and_then_one_is_killed() -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        here, *_ = await opened(cluster, "a", "b", "c")
        writers = Writers(here)
        nursery.start_soon(writers.run)
        await writers.wait_for(50)

        await cluster.start("d")
        await serving(here, *"abcd")
        await cluster.shut_down("c")
        await serving(here, *"abd")
        for name in "bd":  # a rolling restart
            await cluster.shut_down(name)
            await cluster.start(name)
            await serving(here, *"abd")
        await copied(cluster, *"abd")
        await writers.check(here)
        cluster.crash("d")
        await serving(here, *"ab")

        writers.stop()
        await writers.check(here)


@pytest.mark.parametrize("name", ["b", "c"])
async def test_a_member_that_is_killed_and_started_again_soon_gets_its_copies_back(
    name: str,
) -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        here, *_ = await opened(cluster, "a", "b", "c")
        writers = Writers(here)
        nursery.start_soon(writers.run)
        await writers.wait_for(100)

        cluster.crash(name)
        await trio.sleep(0.01)
        (again,) = await cluster.start(name)
        await again.open_keyspace("state")
        await serving(here, *"abc")
        await copied(cluster, *"abc")
        writers.stop()
        await writers.check(here)

        cluster.crash("cb"["bc".index(name)])
        await serving(here, "a", name)
        await writers.check(here)


async def test_deletes_expiries_and_ids_of_writes_are_in_the_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + trio.current_time())
    async with a_cluster() as cluster:
        here, *_ = await opened(cluster, "a", "b", "c")
        keys = [f"k{n}" for n in range(200) if here.owner_of(f"k{n}") == "b"]
        gone, expired, expires, counted = keys[:4]
        once = OperationId("here", 1)
        await here.put(gone, 1)
        await here.put(expired, 1, expires_in=1)
        await here.put(expires, 1, expires_in=20)
        await here.update(counted, "add", 1, operation_id=once)
        await here.delete(gone)
        await trio.sleep(3)

        cluster.crash("b")
        await serving(here, "a", "c")
        await here.update(counted, "add", 1, operation_id=once)
        with pytest.raises(OperationIdReused):
            await here.update(counted, "add", 2, operation_id=once)

        assert await here.get_many(keys[:4]) == {expires: 1, counted: 1}
        await trio.sleep(20)
        assert await here.get(expires) is None


async def test_with_fewer_members_than_copies_it_is_served_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        here, _ = await opened(cluster, "a", "b", copies=3)

        await here.put("k", 1)
        await trio.sleep(5)

        assert sum(driver_of(cluster, n).feeder.missing_count for n in "ab") == 16
    events = [record.msg for record in caplog.records if isinstance(record.msg, LogEvent)]
    told = [event.fields["text"] for event in events if event.name == "copies-missing"]
    assert told.count("there are 2 members for copies=3, so partitions have 2") == 2


async def test_with_fewer_copies_than_copies_min_nothing_is_written() -> None:
    async with a_cluster() as cluster:
        (here,) = await cluster.start("a")
        keyspace = await here.open_keyspace(
            "state", mode="memory", partitions=4, copies=2, copies_min=2
        )
        await serving(keyspace, "a")
        with pytest.raises(PartitionUnavailable, match="copies_min is 2"):
            await keyspace.put("k", 1)
        assert await keyspace.get("k") is None

        await cluster.start("b")
        await serving(keyspace, "a", "b")
        await copied(cluster, "a", "b")
        mine = key_at(keyspace, "a")
        await keyspace.put(mine, 1)
        cluster.network.hang(cluster.nodes["b"].address)
        with pytest.raises(OutcomeUnknown, match="copies_min is 2"):
            await keyspace.put(mine, 2)
        with pytest.raises(PartitionUnavailable, match="copies_min is 2"):
            await keyspace.put(mine, 3)


async def test_a_copy_that_nobody_asked_for_is_handed_over_before_it_is_replaced() -> None:
    async with a_cluster() as cluster:
        here, _, _ = await opened(cluster, "a", "b", "c")
        keys = [key for n in range(200) if here.owner_of(key := f"k{n}") == "b"]
        await here.update_many([(key, "put", 1) for key in keys])
        cluster.network.hang(cluster.nodes["c"].address)  # it has copies of b's
        cluster.crash("b")
        await serving(here, "a")

        cluster.network.resume(cluster.nodes["c"].address)
        await serving(here, "a", "c")
        await trio.sleep(2 * ASTRAY_US / 1e6)

        backed = await here.get_many(keys)
        assert backed == dict.fromkeys(keys, 1)
        await copied(cluster, "a", "c")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"copies": 4, "mode": "memory"}, "copies"),
        ({"copies": 0, "mode": "memory"}, "copies"),
        ({"copies": 2, "copies_min": 3, "mode": "memory"}, "copies_min is at most copies"),
        ({"copies": 2}, "copies is a setting of memory mode"),
    ],
)
async def test_copies_that_cannot_be_are_refused(settings: Settings, what: str) -> None:
    async with a_cluster() as cluster:
        (node,) = await cluster.start("a")

        with pytest.raises(ConfigError, match=what):
            await node.open_keyspace("state", **settings)


async def test_what_is_missing_is_in_the_summary_of_the_keyspace() -> None:
    async with a_cluster() as cluster:
        await opened(cluster, "a", "b", copies=3)

        summaries = [summary_of(cluster.nodes[name], "state") for name in "ab"]

        assert [summary["copies_missing"] for summary in summaries] == [8, 8]
