"""Watching by programs that are no members, of either kind, through daemons that end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import (
    AsyncClient,
    AsyncKeyspaceClient,
    BadOperation,
    Client,
    Config,
    ConfigError,
    KeyspaceClient,
    KeyspaceUnknown,
    WatchGap,
    open_ringpop,
)
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.watch import recent
from tests.client.loops import BACKENDS, run_on
from tests.state.keyspaces.clusters import all_online

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.node.ringpop import Ringpop

ROUNDS = 5


@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_asynchronous_client_watches(backend: str) -> None:
    async with open_ringpop(Config(store="memory:"), store=MemoryStore()) as node:
        keyspace = await node.open_keyspace("k", partitions=8)
        await keyspace.put("user/0", 0)

        async def watch() -> list[object]:
            async with AsyncClient(node.address) as through:
                client = AsyncKeyspaceClient(through, "k")
                found: list[object] = []
                async for change in client.watch("user/", existing=True):
                    found.append(change.value)
                    if len(found) == ROUNDS:
                        break
                    await client.put("other", 1)
                    await client.put(f"user/{len(found)}", len(found))
                return found

        assert await run_on(backend, watch) == list(range(ROUNDS))


def changes_through(
    peers: list[Ringpop], after: str | None
) -> tuple[list[tuple[Value, bool]], str]:
    with Client(peers[0].address) as through, KeyspaceClient(through, "k") as client:
        changes = client.watch(key="k", after=after, idle_s=1)
        found = [(change.value, change.deleted) for change in changes]
        return found, str(changes.position)


async def test_a_synchronous_client_goes_on_through_another_daemon() -> None:
    store = MemoryStore()
    async with open_ringpop(Config(store="memory:", name="a"), store=store) as a:
        hosts = (a.address,)
        async with open_ringpop(Config(store="memory:", name="b", hosts=hosts), store=store) as b:
            keyspace = await a.open_keyspace("k", partitions=4)
            await keyspace.wait_assigned()
            _, position = await trio.to_thread.run_sync(changes_through, [b], None)
        for number in range(3):
            await keyspace.put("k", number)
        await keyspace.delete("k")
        found, position = await trio.to_thread.run_sync(changes_through, [a], position)
        assert found == [(0, False), (1, False), (2, False), (None, True)]
        assert (await trio.to_thread.run_sync(changes_through, [a], position))[0] == []


async def test_clients_get_the_errors_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT_MAX", 2)
    async with open_ringpop(Config(store="memory:"), store=MemoryStore()) as node:
        keyspace = await node.open_keyspace("k", partitions=4)
        await node.open_keyspace("m", partitions=4, mode="memory")
        _, position = await trio.to_thread.run_sync(changes_through, [node], None)
        for number in range(3):
            await keyspace.put("k", number)
        with pytest.raises(WatchGap):
            await trio.to_thread.run_sync(changes_through, [node], position)
        async with AsyncClient(node.address) as through:
            with pytest.raises(BadOperation, match="only durable"):
                await anext(AsyncKeyspaceClient(through, "m").watch())
            with pytest.raises(KeyspaceUnknown):
                await anext(AsyncKeyspaceClient(through, "unknown").watch())
            with pytest.raises(ConfigError, match="no position"):
                await anext(AsyncKeyspaceClient(through, "k").watch(after="x"))


async def test_what_is_larger_than_a_message_comes_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "KEPT_BYTES", 1 << 24)
    large, store = "x" * 300_000, MemoryStore()
    async with open_ringpop(Config(store="memory:", name="a"), store=store) as a:
        config = Config(store="memory:", name="b", hosts=(a.address,))
        async with open_ringpop(config, store=store), AsyncClient(a.address) as through:
            keyspace = await a.open_keyspace("k", partitions=4)
            await keyspace.wait_assigned()
            client = AsyncKeyspaceClient(through, "k")
            changes = client.watch()
            await changes.some(0)
            for number in range(40):
                await keyspace.put(f"u/{number}", large)
            keys = {f"u/{number}" for number in range(40)}
            for watch in (changes, client.watch(existing=True), keyspace.watch(existing=True)):
                found: list[str] = []
                while len(found) < len(keys):
                    some = await watch.some(5)
                    assert some
                    assert sum(len(change.packed or b"") for change in some) < 3 << 20
                    found += [change.key for change in some]
                assert sorted(found) == sorted(keys)


async def test_a_daemon_that_ends_does_not_wait_for_watchers() -> None:
    """Neither if it owns what they watch, nor if it asks others; they go on at another one."""
    store, seen = MemoryStore(), list[object]()
    async with (
        open_ringpop(Config(store="memory:", name="a"), store=store) as a,
        AsyncExitStack() as stack,
    ):
        b = await stack.enter_async_context(
            open_ringpop(Config(store="memory:", name="b", hosts=(a.address,)), store=store)
        )
        keyspace = await a.open_keyspace("k", partitions=8)
        await all_online(keyspace, "a", "b")
        through = await stack.enter_async_context(AsyncClient(b.address))
        client = await stack.enter_async_context(AsyncKeyspaceClient(through, "k"))

        async def watch() -> None:
            async for change in client.watch(existing=True):
                seen.append(change.value)

        await keyspace.put("first", 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            while seen != [1]:
                await trio.sleep(0.01)
            await trio.sleep(0.5)  # it waits now
            with trio.fail_after(8):  # below the time for which a question waits
                await b.end()
            await keyspace.put("second", 2)
            with trio.fail_after(10):
                while seen != [1, 2]:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
