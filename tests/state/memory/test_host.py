"""Keyspaces in memory mode, on whole clusters in virtual time."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
)
from ringpop_py.base.logs import LogEvent
from ringpop_py.base.values.operations import Change
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.memory import versioned
from ringpop_py.state.memory.host import COLLECT_S, MemoryHost
from tests.state.keyspaces.memory_clusters import Cluster, a_cluster, key_at, serving

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.actors.actors import Actors
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.placement.definition import Settings


pytestmark = pytest.mark.virtual_time


async def opened(cluster: Cluster, *names: str, merge: str = "last_writer_wins") -> list[Keyspace]:
    """The same keyspace at nodes of these names, which serve it all."""
    nodes = await cluster.start(*names)
    found = [
        await node.open_keyspace("state", mode="memory", partitions=16, merge=merge)
        for node in nodes
    ]
    for keyspace in found:
        await serving(keyspace, *names)
    return found


async def test_members_that_drain_leave_and_shut_down_lose_nothing_under_writes() -> None:
    async with a_cluster() as cluster:
        here, *_ = await opened(cluster, "a", "b", "c", "d")
        written = dict.fromkeys((f"k{n}" for n in range(64)), 0)
        async with trio.open_nursery() as writers:
            for key in written:
                writers.start_soon(write_on, here, key, written)

            cluster.nodes["b"].drain()
            cluster.nodes["c"].leave()
            await serving(here, "a", "d")
            await cluster.shut_down("d")
            await serving(here, "a")
            await trio.sleep(1)
            writers.cancel_scope.cancel()

        found = await here.get_many(written)
        assert all(found[key] in (count, count + 1) for key, count in written.items())


async def write_on(keyspace: Keyspace, key: str, written: dict[str, int]) -> None:
    """Add one to *key*, again and again, and count what was acknowledged."""
    while True:
        await keyspace.update(key, "add", 1)
        written[key] += 1
        await trio.sleep(0.02)


async def test_large_partitions_move_in_parts() -> None:
    async with a_cluster() as cluster:
        (here,) = await opened(cluster, "a")
        large = {f"k{n}": bytes([n]) * 400_000 for n in range(60)}
        for key, value in large.items():
            await here.put(key, value)

        await cluster.start("b")
        await serving(here, "a", "b")

        assert {key: await here.get(key) for key in large} == large


async def test_content_that_cannot_be_sent_keeps_back_its_own_partition_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        (here,) = await opened(cluster, "a")
        partitions = cluster.nodes["a"].keyspaces.here("state").host.driver.partitions
        for number in range(8):  # an id that is no text, as a defect might leave one
            partitions[number].state.take_in([("\ud800", (0, 0, b""))], [], {})
        await cluster.start("b")

        with trio.fail_after(30):
            while not here.table.counts()["b"] or here.table.moving[-1].partition >= 8:
                await trio.sleep(0.1)
        await trio.sleep(1)
        stay = [row.partition for row in here.table.moving]

    events = [record.msg for record in caplog.records if isinstance(record.msg, LogEvent)]
    kept = [event.fields["partition"] for event in events if event.name == "partition-not-sent"]
    assert Counter(kept) == Counter(stay)


class Slow(Actor[Any, None]):
    """It works for as long as the message says, in seconds."""

    async def receive(self, message: Any) -> None:  # noqa: ANN401 - as in the base class
        await trio.sleep(message)


async def test_an_actor_at_work_costs_no_partition_where_there_is_little_time_to_end() -> None:
    async with a_cluster(drain_timeout_s=2.0) as cluster, trio.open_nursery() as nursery:
        here, there = await opened(cluster, "a", "b")
        actors = here.actor(Slow)
        there.actor(Slow)
        actor = next(key for key in map(str, count()) if actors.owner_of(key) == "a")
        number = actors.partition_of(actor)
        key = next(key for key in map(str, count()) if here.partition_of(key) == number)
        await here.put(key, "kept")
        nursery.start_soon(ask_in_vain, actors, actor)
        await trio.sleep(0.1)

        await cluster.nodes["a"].end()
        await serving(there, "b")

        assert await there.get(key) == "kept"
        nursery.cancel_scope.cancel()


async def ask_in_vain(actors: Actors[Any, None], key: str) -> None:
    with suppress(KeyspaceError):
        await actors.ask(key, 60, timeout_s=100)


async def test_a_crash_loses_what_the_member_held_and_nothing_else() -> None:
    async with a_cluster() as cluster:
        here, _, _ = await opened(cluster, "a", "b", "c")
        await here.update_many([(f"k{n}", "put", n) for n in range(100)])
        held = {n for n in range(100) if here.owner_of(f"k{n}") == "b"}

        cluster.crash("b")
        await serving(here, "a", "c")

        found = await here.get_many(f"k{n}" for n in range(100))
        assert held
        assert found == {f"k{n}": n for n in range(100) if n not in held}


async def test_a_node_that_has_not_heard_of_a_keyspace_asks_before_it_creates_one() -> None:
    async with a_cluster() as cluster:
        (here,) = await opened(cluster, "a")
        await here.put("k", 1)
        (late,) = await cluster.start("b")

        found = await late.open_keyspace("state")

        assert await found.get("k") == 1


async def test_two_who_create_the_same_keyspace_at_once_have_created_one() -> None:
    async with a_cluster() as cluster:
        found: dict[str, Keyspace] = {}

        async def create(name: str) -> None:
            node = cluster.nodes[name]
            found[name] = await node.open_keyspace("state", mode="memory", partitions=16)
            await found[name].put(f"from {name}", name)

        await cluster.start("a", "b", "c")

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(create, name)

        names = [f"from {name}" for name in "abc"]
        assert await found["a"].get_many(names) == dict(zip(names, "abc", strict=True))


async def test_of_two_that_were_created_on_two_sides_of_a_cut_one_stays() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a", "b")
        cluster.cut("a", "b")
        await trio.sleep(20)
        await a.open_keyspace("state", mode="memory", partitions=8)
        await b.open_keyspace("state", mode="memory", partitions=16)

        await cluster.heal()
        await trio.sleep(3)

        kept = [(await node.open_keyspace("state")).partitions for node in (a, b)]
        assert kept in ([8, 8], [16, 16])


async def test_a_dropped_keyspace_is_no_longer_served_and_can_be_created_anew() -> None:
    async with a_cluster() as cluster:
        old, _ = await opened(cluster, "a", "b")
        await old.put("k", 1)
        a, b = cluster.nodes["a"], cluster.nodes["b"]
        await b.keyspaces.drop("state")
        await trio.sleep(0.1)
        with pytest.raises(KeyspaceUnknown):
            await a.open_keyspace("state")

        new = await a.open_keyspace("state", mode="memory", partitions=8)

        assert await new.get("k") is None


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"mode": "memory", "strategy": "average"}, "average"),
        ({"mode": "memory", "automatic": False}, "automatic=False"),
        ({"mode": "memory", "merge": "sum"}, "no merge rule is called 'sum'"),
    ],
)
async def test_settings_that_memory_mode_lacks_are_refused(settings: Settings, what: str) -> None:
    async with a_cluster() as cluster:
        (node,) = await cluster.start("a")

        with pytest.raises(ConfigError, match=what):
            await node.open_keyspace("state", **settings)


# Cuts.


@pytest.mark.parametrize(
    ("merge", "ours", "theirs", "kept"),
    [
        ("last_writer_wins", 9, 3, 3),
        ("union", [1, 3], [2, 3], [1, 2, 3]),
    ],
)
async def test_both_sides_of_a_cut_serve_and_become_one_by_the_rule(
    merge: str, ours: Value, theirs: Value, kept: Value
) -> None:
    async with a_cluster() as cluster:
        here, _, there, _ = await opened(cluster, "a", "b", "c", "d", merge=merge)
        keys = [key_at(here, name) for name in "abcd"]
        cluster.cut("ab", "cd")
        await serving(here, "a", "b")
        await serving(there, "c", "d")
        for key in keys:
            await here.put(key, ours)
            await here.put(f"{key} here", 1)
        await trio.sleep(1)
        for key in keys:
            await there.put(key, theirs)
            await there.put(f"{key} there", 2)

        await cluster.heal()
        await all_agree(cluster)

        for keyspace in (here, there):
            assert await keyspace.get_many(keys) == dict.fromkeys(keys, kept)
            assert await keyspace.get_many(f"{key} here" for key in keys)
            found = await keyspace.get_many([f"{k} {side}" for k in keys for side in SIDES])
            assert len(found) == 8


SIDES = ("here", "there")


async def all_agree(cluster: Cluster) -> None:
    """Return when the views and tables of all nodes are the same, and nothing moves."""
    while True:
        await trio.sleep(0.5)
        shares = [node.keyspaces.here("state").host for node in cluster.nodes.values()]
        views = {tuple(row.desired for row in share.table) for share in shares}
        tables = {share.table.digest for share in shares}
        moves = any(share.table.moving or share.driver.steward.coming for share in shares)
        leftovers = any(
            set(share.driver.partitions) != set(share.table.owned_by(name))
            for name, share in zip(cluster.nodes, shares, strict=True)
        )
        if len(views) == len(tables) == 1 and not moves and not leftovers:
            return


async def test_a_function_of_the_application_merges_what_two_sides_wrote() -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b")
        for node in nodes:
            node.keyspaces.merge_rules.register("both", sorted_together)
        here, there = [
            await node.open_keyspace("state", mode="memory", partitions=4, merge="both")
            for node in nodes
        ]
        cluster.cut("a", "b")
        await serving(here, "a")
        await serving(there, "b")
        await here.put("k", "x")
        await there.put("k", "y")

        await cluster.heal()
        await all_agree(cluster)

        assert await here.get("k") == await there.get("k") == "x y"


def sorted_together(older: Value, newer: Value) -> Value:
    return " ".join(sorted({*str(older).split(), *str(newer).split()}))


async def test_deletes_that_are_forgotten_early_are_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versioned, "TOMBSTONES_MAX", 20)
    async with a_cluster() as cluster:
        (node,) = await cluster.start("a")
        keyspace = await node.open_keyspace("state", mode="memory", partitions=1)
        await serving(keyspace, "a")
        write = tuple(Change(f"k{n}", "delete") for n in range(20))

        await keyspace.update_many(write)
        await keyspace.update_many([("one", "delete", None), ("more", "delete", None)])
        await trio.sleep(3 * COLLECT_S)

    events = [record.msg for record in caplog.records if isinstance(record.msg, LogEvent)]
    told = [event.fields["count"] for event in events if event.name == "deletes-forgotten"]
    assert told == [2]


async def test_a_bug_in_what_tidies_costs_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def failing(_host: MemoryHost) -> None:
        nonlocal calls
        calls += 1
        await trio.lowlevel.checkpoint()
        message = "a bug"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(MemoryHost, "_collect", failing)
    async with a_cluster() as cluster:
        [keyspace] = await opened(cluster, "a")
        await keyspace.put("k", "v")

        await trio.sleep(4 * COLLECT_S)

        assert calls > 1
        assert await keyspace.get("k") == "v"
