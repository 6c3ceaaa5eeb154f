"""Keyspaces without a cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Request, expiring
from ringpop_py.base.errors import (
    BadOperation,
    ConfigError,
    KeyspaceConflict,
    KeyspaceError,
    KeyspaceUnknown,
)
from ringpop_py.route.proxy.request import Reply
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.keyspaces.local import open_local_keyspaces
from ringpop_py.state.shares.rescale_events import Gained
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.route.proxy.request import AppCall
    from ringpop_py.state.table.aggregations import Absent

pytestmark = pytest.mark.virtual_time


@pytest.fixture(params=["without a store", "with a store"])
def store(request: pytest.FixtureRequest) -> MemoryStore | None:
    return MemoryStore() if request.param == "with a store" else None


async def test_those_of_the_cluster_in_a_store_are_not_opened(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as keyspaces:
        with pytest.raises(ConfigError, match="the cluster's own keyspaces, not '~shuffles'"):
            await keyspaces.open_keyspace("~shuffles", partitions=4)


async def test_a_value_of_a_narrower_type_may_be_put(store: MemoryStore | None) -> None:
    items: list[str] = ["tea"]
    prices: dict[str, int] = {"tea": 3}
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("k", partitions=4)

        await keyspace.put("items", items)  # that mypy accepts it is tested, too
        await keyspace.put("prices", prices)
        await keyspace.update("items", "union", ["milk"])

        assert await keyspace.get("items") == ["milk", "tea"]
        assert await keyspace.get("prices") == prices


async def test_it_does_what_a_keyspace_of_a_cluster_does(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("counts", partitions=8)
        await keyspace.update_many([(f"k{n:02}", "add", n) for n in range(20)])
        await keyspace.delete("k03")

        assert await keyspace.update("k01", "add", 5) == 6
        assert [key async for key, _ in keyspace.scan("k0", end="k05")] == [
            "k00",
            "k01",
            "k02",
            "k04",
        ]
        assert await keyspace.get("k03", "gone") == "gone"
        with pytest.raises(BadOperation):
            await keyspace.update("k01", "append", 1)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_of_no_rows_is_refused(store: MemoryStore | None, limit: int) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("counts", partitions=2)
        await keyspace.put("k", 1)

        with pytest.raises(ConfigError, match="limit is"):
            await keyspace.page_packed(limit=limit)


async def test_of_many_changes_one_may_be_refused(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("mixed", partitions=1)
        await keyspace.put("text", "no number")

        outcomes = await keyspace.update_many(
            [("n", "add", 1), ("text", "add", 1), ("n", "add", 1)], offsets={"topic": 3}
        )

        assert [isinstance(outcome, BadOperation) for outcome in outcomes] == [False, True, False]
        assert await keyspace.get_many(["text", "n"]) == {"text": "no number", "n": 2}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("a", "add", 1), ("b", 5, 1)], "operation is text"),
        ([("a", "add", 1), ("b", ["add"], 1)], "operation is text"),
        ([("a", "add", 1), (5, "add", 1)], "key is text"),
        ([("a", "add", 1), ("b",)], "change is"),
        ([("a", "add", 1), "b"], "change is"),
        (None, "changes is a list"),
        (5, "changes is a list"),
    ],
)
async def test_changes_that_are_none_are_refused_before_any_is_made(
    store: MemoryStore | None,
    changes: Any,  # noqa: ANN401 - what a caller may have given by mistake
    why: str,
) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("counts", partitions=8)

        with pytest.raises(ConfigError, match=why):
            await keyspace.update_many(changes)

        assert await keyspace.get("a") is None


class Overdrawn(KeyspaceError, ValueError, code="overdrawn-in-a-test"):
    """An application's own refusal, which is an error of Python, too."""


async def test_an_applications_own_refusal_arrives_as_it_was_raised(
    store: MemoryStore | None,
) -> None:
    def draw(_current: Value | Absent, _argument: Value) -> Value | Absent:
        raise Overdrawn("no money")

    async with open_local_keyspaces(store) as local:
        local.aggregation("draw", draw)
        keyspace = await local.open_keyspace("accounts", partitions=1)
        await keyspace.update("a", "add", 1)  # the source of writes is known from here on

        (many,) = await keyspace.update_many([("a", "draw", 1)])
        with pytest.raises(Overdrawn):
            await keyspace.update("a", "draw", 1)

        assert isinstance(many, Overdrawn)


async def test_values_are_the_callers_own(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("lists", partitions=8)
        given: list[Value] = [1]
        await keyspace.put("k", given)
        given.append(2)

        assert await keyspace.get("k") == [1]


class Counter(Actor[int, int]):
    state = 0

    async def receive(self, message: int) -> int:
        self.state += message
        return int(self.state)


async def test_it_has_actors(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:
        counters = (await local.open_keyspace("counts", partitions=8)).actor(Counter)
        await counters.ask("k", 5)

        assert await counters.ask("k", 2) == 7


async def test_requests_are_handled_here(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:

        @local.handler("/echo")
        def echo(call: AppCall) -> bytes:
            return call.body

        keyspace = await local.open_keyspace("counts", partitions=8)

        assert await keyspace.handle_or_proxy("k", Request("/echo")) is None
        assert await keyspace.proxy("k", Request("/echo", b"x")) == Reply(b"x", "local")


async def test_all_partitions_are_gained(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("counts", partitions=8)
        await keyspace.update_many([("k", "add", 1)], offsets={"topic": 7})
        events = keyspace.rescale_events()

        gained = [await anext(events) for _ in range(8)]

        assert {event.partition for event in gained} == set(range(8))
        offsets = {e.partition: e.offsets for e in gained if isinstance(e, Gained)}
        assert offsets[keyspace.partition_of("k")].get("topic", 7) == 7


async def test_it_is_opened_as_it_was_created(store: MemoryStore | None) -> None:
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("counts", partitions=8)

        assert await local.open_keyspace("counts") is keyspace
        with pytest.raises(KeyspaceConflict, match="partitions 8 instead of 4"):
            await local.open_keyspace("counts", partitions=4)
        with pytest.raises(KeyspaceUnknown, match="no keyspace 'others'"):
            await local.open_keyspace("others")


async def test_a_stored_value_is_there_for_the_next_process_and_for_a_cluster() -> None:
    store = MemoryStore()
    async with open_local_keyspaces(store) as local:
        await (await local.open_keyspace("counts", partitions=8)).put("k", 1)
    async with open_local_keyspaces(store) as local:
        assert await (await local.open_keyspace("counts")).get("k") == 1

    async with a_cluster(store) as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("counts")

        assert await keyspace.get("k") == 1


async def test_a_keyspace_in_memory_takes_no_store() -> None:
    async with open_local_keyspaces(MemoryStore()) as local:
        with pytest.raises(ConfigError, match="with a store, keyspaces are durable"):
            await local.open_keyspace("counts", mode="memory")


WATCHED = """
import sys, trio
from ringpop_py.state.keyspaces.local import open_local_keyspaces

def hook(event, arguments):
    if event in ("socket.bind", "socket.connect", "socket.getaddrinfo"):
        print(event, arguments)

async def main():
    sys.addaudithook(hook)
    async with open_local_keyspaces() as local:
        keyspace = await local.open_keyspace("counts", partitions=4)
        await keyspace.update("k", "add", 1)
        assert await keyspace.get("k") == 1

trio.run(main)
distributed = ("node", "daemon", "transport", "swim", "ring", "discovery")
print(*(f"ringpop_py.{name}" for name in distributed if f"ringpop_py.{name}" in sys.modules))
"""


async def test_no_socket_is_opened_and_nothing_distributed_is_so_much_as_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, check=True)  # noqa: ASYNC221

    assert done.stdout.split() == []


async def test_keys_expire_here_as_on_a_cluster(
    store: MemoryStore | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + trio.current_time())
    async with open_local_keyspaces(store) as local:
        keyspace = await local.open_keyspace("k", partitions=2)
        await keyspace.put("x", 1, expires_in=0.01)
        await keyspace.update_many([("y", *expiring("add", 1, expires_in=0.01)), ("z", "add", 1)])
        assert await keyspace.get_many(["x", "y"]) == {"x": 1, "y": 1}
        while await keyspace.get_many(["x", "y"]):
            await trio.sleep(0.01)
        assert await keyspace.get("z") == 1
        assert await keyspace.update("y", "add", 1) == 1
