"""Watching in a cluster: each change, in order, through moves, ends and crowds."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import ConfigError, KeyspaceUnknown, WatchPosition
from ringpop_py.base.errors import BadOperation, WatchGap
from ringpop_py.state.watch import recent, server
from ringpop_py.state.watch.messages import Watched
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.watch.watch import AsyncChanges
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time
PARTITIONS = 8


@asynccontextmanager
async def opened(*names: str) -> AsyncIterator[tuple[Cluster, Keyspace, trio.Nursery]]:
    """A keyspace, and a nursery for what goes on beside the test, until its end."""
    async with trio.open_nursery() as nursery, a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in names]
        keyspace = await nodes[0].open_keyspace("k", partitions=PARTITIONS)
        await all_online(keyspace, *names)
        yield cluster, keyspace, nursery
        nursery.cancel_scope.cancel()


async def begun(changes: AsyncChanges, nursery: trio.Nursery) -> list[tuple[str, Value]]:
    """Have *changes* be read into the list that is returned; return once it has begun."""
    found: list[tuple[str, Value]] = []

    async def read() -> None:
        async for change in changes:
            found.append((change.key, change.value))  # noqa: PERF401 - others look at it meanwhile

    nursery.start_soon(read)
    with trio.fail_after(10):
        while changes.position is None or len(changes.position.numbers) < PARTITIONS:
            await trio.sleep(0.01)
    return found


async def test_all_changes_come_in_the_order_of_each_key() -> None:
    async with opened("a", "b", "c") as (_, keyspace, nursery):
        found = await begun(keyspace.watch(), nursery)
        keys = [f"k{n}" for n in range(20)]
        for round_ in range(3):
            for key in keys:
                await keyspace.put(key, round_)
        for key in keys[::2]:
            await keyspace.delete(key)
        with trio.fail_after(5):
            while len(found) < 70:
                await trio.sleep(0.01)
        for number, key in enumerate(keys):
            gone = [] if number % 2 else [None]
            assert [value for there, value in found if there == key] == [0, 1, 2, *gone]


async def test_a_change_comes_as_soon_as_it_is_committed() -> None:
    async with opened("a", "b") as (_, keyspace, nursery):
        for owner in ("a", "b"):
            key = key_at(keyspace, owner)
            found = await begun(keyspace.watch(key[:3]), nursery)
            await trio.sleep(50)  # between and during questions
            began = trio.current_time()
            await keyspace.put(key, owner)
            while (key, owner) not in found:
                await trio.sleep(0.001)
            assert trio.current_time() < began + 0.1


async def test_a_position_goes_on_where_another_watch_has_ended() -> None:
    async with opened("a", "b") as (_, keyspace, _):
        changes = keyspace.watch(idle_s=1)
        assert [change async for change in changes] == []
        for number in range(30):
            await keyspace.put(f"k{number}", number)
        half = keyspace.watch(after=str(changes.position), idle_s=1)
        seen = {}
        async for change in half:
            seen[change.key] = change.value
            if len(seen) == 15:
                break
        assert half.position == WatchPosition.of(str(half.position))
        async for change in keyspace.watch(after=half.position, idle_s=1):
            assert change.key not in seen
            seen[change.key] = change.value
        assert seen == {f"k{number}": number for number in range(30)}


async def test_existing_keys_come_first_and_nothing_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "PAGE_ROWS", 3)
    async with opened("a", "b") as (_, keyspace, nursery):
        expected = {}
        for number in range(100):
            expected[f"k{number}"] = number
            await keyspace.put(f"k{number}", number)
        seen: dict[str, Value] = {}
        counts: dict[str, int] = {}

        async def write() -> None:
            for number in range(0, 100, 3):
                expected[f"k{number}"] = -number
                await keyspace.put(f"k{number}", -number)

        nursery.start_soon(write)
        async for change in keyspace.watch(existing=True, idle_s=5):
            seen[change.key] = change.value
            counts[change.key] = counts.get(change.key, 0) + 1
        assert seen == expected
        assert max(counts.values()) <= 2
        rows = keyspace.watch(key="k7", existing=True, idle_s=1)
        assert [(change.key, change.value) async for change in rows] == [("k7", 7)]


@pytest.mark.parametrize("how", ["stop", "hang"])
async def test_a_watch_follows_partitions_as_they_move(how: str) -> None:
    async with opened("a", "b") as (cluster, keyspace, nursery):
        key = key_at(keyspace, "b")
        found = await begun(keyspace.watch(), nursery)
        for number in range(5):
            await keyspace.put(key, number)
        if how == "stop":
            await cluster.stop("b")
        else:
            cluster.hang("b")
        await all_online(keyspace, "a")
        for number in range(5, 10):
            await keyspace.put(key, number)
        await cluster.start("c")
        await all_online(keyspace, "a", "c")
        await keyspace.put(key, 10)
        with trio.fail_after(60):
            while (key, 10) not in found:
                await trio.sleep(0.01)
        assert [value for there, value in found if there == key] == list(range(11))


async def test_what_is_no_longer_kept_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT_MAX", 10)
    async with opened("a", "b") as (_, keyspace, _):
        changes = keyspace.watch(key="k", idle_s=1)
        assert [change async for change in changes] == []
        for number in range(12):
            await keyspace.put("k", number)
        with pytest.raises(WatchGap, match="existing=True"):
            await anext(keyspace.watch(key="k", after=changes.position))


async def test_each_partition_has_its_turn_in_small_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "ANSWER_BYTES", 1)  # a change for each owner, or a row
    async with opened("a", "b") as (_, keyspace, nursery):
        for number in range(30):
            await keyspace.put(f"k{number}", 0)
        rows = keyspace.watch(existing=True, idle_s=5)
        first = await anext(rows)
        found = await begun(keyspace.watch(), nursery)
        for number in range(30):
            await keyspace.put(f"k{number}", 1)
        seen = {first.key: [first.value]}
        async for change in rows:
            seen.setdefault(change.key, []).append(change.value)
        assert all(values in ([0, 1], [1]) for values in seen.values())
        assert seen.keys() == {f"k{number}" for number in range(30)}
        assert sorted(found) == sorted((key, 1) for key in seen)


async def test_bad_arguments_and_keyspaces_say_why() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("k", partitions=PARTITIONS)
        with pytest.raises(ConfigError, match="exclude each other"):
            keyspace.watch("prefix", key="k")
        with pytest.raises(ConfigError, match="no position"):
            keyspace.watch(after="yesterday")
        with pytest.raises(ConfigError, match="created again"):
            keyspace.watch(after=WatchPosition(7, ()))
        with pytest.raises(ConfigError, match="idle_s"):
            keyspace.watch(idle_s="1")  # type: ignore[arg-type]
        memory = await node.open_keyspace("m", mode="memory", partitions=2)
        with pytest.raises(BadOperation, match="only durable keyspaces"):
            await anext(memory.watch())
        changes = keyspace.watch()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.keyspaces.drop, "k")
            with pytest.raises(KeyspaceUnknown):
                await anext(changes)


async def test_an_ending_node_waits_for_no_watcher() -> None:
    async with opened("a", "b") as (cluster, keyspace, nursery):
        await begun(keyspace.watch(), nursery)
        await trio.sleep(1)
        began = trio.current_time()
        await cluster.stop("b")
        assert trio.current_time() < began + 3


async def test_what_does_not_fit_into_an_answer_comes_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "ANSWER_BYTES", 1_000)
    async with opened("a", "b") as (_, keyspace, nursery):
        for number in range(40):
            await keyspace.put(f"k{number}", "x" * 400)
        there = keyspace.watch(existing=True, idle_s=1)
        expected = {f"k{number}" for number in range(40)}
        assert {change.key async for change in there} == expected
        found = await begun(keyspace.watch(), nursery)
        changes = [(f"k{n % 40}", "put", n) for n in range(400)]
        await keyspace.update_many(changes, operation_id="together")
        with trio.fail_after(5):
            while len(found) < 40:
                await trio.sleep(0.01)
        assert dict(found) == {f"k{n}": n + 360 for n in range(40)}


async def test_changes_of_other_keys_wake_no_watcher_and_leave_it_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "KEPT_MAX", 40)
    looks = list[int]()
    look = recent.RecentChanges.look

    def counted(self: recent.RecentChanges, *about: Any) -> Watched:  # noqa: ANN401
        looks.append(self.newest)
        return look(self, *about)

    async with opened("a", "b") as (_, keyspace, nursery):
        found = await begun(keyspace.watch("quiet"), nursery)
        await trio.sleep(1)
        monkeypatch.setattr(recent.RecentChanges, "look", counted)
        for number in range(2_000):
            await keyspace.put(f"loud-{number}", number)
        assert len(looks) < 1_000
        await keyspace.put("quiet", 1)
        with trio.fail_after(5):
            while found != [("quiet", 1)]:
                await trio.sleep(0.01)


async def test_each_owner_says_how_far_it_is_when_a_question_ends_without_news() -> None:
    async with opened("a", "b") as (_, keyspace, _):
        changes = keyspace.watch("quiet", idle_s=1)
        assert [change async for change in changes] == []
        for owner in ("a", "b"):
            await keyspace.put(key_at(keyspace, owner), 1)
        later = keyspace.watch("quiet", after=changes.position, idle_s=1)
        assert [change async for change in later] == []
        before, after = changes.position, later.position
        assert before is not None
        assert after is not None
        grown = [n - was for (_, was), (_, n) in zip(before.numbers, after.numbers, strict=True)]
        assert sorted(grown)[-3:] == [0, 1, 1]


async def test_a_crowd_is_answered_less_often_and_sees_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CROWD", 2)
    monkeypatch.setattr(server, "GATHER_S", 0.05)
    looks = list[int]()
    look = recent.RecentChanges.look

    def counted(self: recent.RecentChanges, *about: Any) -> Watched:  # noqa: ANN401
        looks.append(self.newest)
        return look(self, *about)

    async with opened("a", "b") as (_, keyspace, nursery):
        found = [await begun(keyspace.watch(), nursery) for _ in range(10)]
        await trio.sleep(1)
        monkeypatch.setattr(recent.RecentChanges, "look", counted)
        for number in range(50):
            await keyspace.put("k", number)
            await trio.sleep(0.01)
        with trio.fail_after(5):
            while any(len(each) < 50 for each in found):
                await trio.sleep(0.01)
        assert all(each == [("k", number) for number in range(50)] for each in found)
        of_others = 2 * PARTITIONS  # a question is of all partitions of an owner
        assert len(looks) < 10 * of_others * 4  # without it, 50 times, and more


def test_a_client_is_sent_no_more_than_fits_and_one_part_in_any_case() -> None:
    row = 1, "k", bytes(server.TOGETHER_BYTES // 2)
    results: dict[int, object] = {n: Watched((row,), 1) for n in range(3)}
    results[3], results[4] = Watched((), 7), WatchGap("gone")
    assert [number for number, _ in server.that_fit(results)] == [0, 3, 4]
    large = {0: Watched((row, row, row), 3), 1: Watched((row,), 1)}
    assert [number for number, _ in server.that_fit(large)] == [0]
