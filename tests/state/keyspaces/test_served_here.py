"""Requests for one key whose partition is here: they need no errand, unless something fails."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest
import trio

from ringpop_py.base.errors import (
    BadOperation,
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
    OutcomeUnknown,
    PartitionUnavailable,
    StoreUnavailable,
)
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.requests import encode_results
from ringpop_py.net.transport.serving import IncomingCalls
from ringpop_py.route.errand import Errand
from ringpop_py.state.keyspaces import endpoints
from ringpop_py.state.keyspaces.endpoints import KeyspaceServer
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.requests import ReadsOf, WritesOf
from ringpop_py.state.shares.dispatcher import Dispatcher
from ringpop_py.state.shares.host import OwningHost
from ringpop_py.state.shares.server import PartitionServer
from ringpop_py.state.stores.memory import StoreFault
from tests.state.durable.benches import until
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ringpop_py.net.transport.serving import IncomingCall
    from ringpop_py.net.wire.calls import Answer
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time


class Losing:
    """A partition whose answers are lost: of a write, after it has taken effect."""

    def __init__(self, partition: Any, error: KeyspaceError) -> None:  # noqa: ANN401 - a `Held`
        self._partition = partition
        self._error = error

    async def write(self, writes: Sequence[Write], deadline: float) -> None:
        await self._partition.write(writes, deadline)
        raise self._error

    async def read(self, _look: object, _deadline: float, *, stale: bool) -> None:
        del stale
        raise self._error


def lose(monkeypatch: pytest.MonkeyPatch, error: KeyspaceError) -> None:
    """Have the first answer of each request that is served here be lost."""
    served = OwningHost.served

    def losing(host: OwningHost[Any], number: int) -> Any:  # noqa: ANN401 - a `Held`
        partition = served(host, number)
        return partition and Losing(partition, error)

    monkeypatch.setattr(OwningHost, "served", losing)


@asynccontextmanager
async def two_members(
    mode: Literal["durable", "memory"] = "durable",
) -> AsyncIterator[tuple[Cluster, Keyspace]]:
    """Nodes a and b with a keyspace, as a sees it."""
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        await cluster.start("b")
        keyspace = await a.open_keyspace("k", partitions=8, mode=mode)
        await all_online(keyspace, "a", "b")
        yield cluster, keyspace


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_a_request_served_here_needs_no_errand(
    mode: Any,  # noqa: ANN401 - one of two texts
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=4, mode=mode)
        await all_online(keyspace, "a")
        monkeypatch.delattr(Dispatcher, "ask")

        assert await keyspace.update("key", "add", 2) == 2
        await keyspace.put("other", "text")
        assert await keyspace.get("key") == 2
        assert await keyspace.get("other", stale=True) == "text"
        assert await keyspace.get("absent", "default") == "default"
        with pytest.raises(BadOperation):
            await keyspace.update("other", "add", 1)


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_a_request_of_another_member_for_one_partition_needs_no_task(
    mode: Any,  # noqa: ANN401 - one of two texts
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_members(mode) as (_, keyspace):
        key = key_at(keyspace, "b")
        monkeypatch.delattr(KeyspaceServer, "_at_host")

        assert await keyspace.update(key, "add", 2) == 2
        assert await keyspace.get(key) == 2
        assert await keyspace.get(key, stale=True) == 2
        (outcome, _) = await keyspace.update_many([(key, "append", 1), (key, "add", 1)])
        assert isinstance(outcome, BadOperation)
        with pytest.raises(BadOperation):
            await keyspace.update(key, "append", 1)
        assert await keyspace.get(key) == 3


async def test_a_request_to_another_generation_of_a_keyspace_is_refused() -> None:
    async with two_members() as (_, keyspace):
        key = key_at(keyspace, "b")
        number, other = keyspace.partition_of(key), keyspace.generation + 1
        host: Any = keyspace._host
        await keyspace.put(key, 1)
        writes = [Write("s", 0, (Change(key, "put", 2),))]

        for request in (
            WritesOf("k", other, {number: writes}, host),
            ReadsOf("k", other, {number: (key,)}, stale=False, host=host),
        ):
            found = await keyspace._dispatcher.ask_one(request, number, trio.current_time() + 1)
            assert isinstance(found, KeyspaceUnknown)

        assert await keyspace.get(key) == 1


async def test_a_request_that_an_owner_elsewhere_answers_immediately_needs_no_errand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_members() as (_, keyspace):
        key = key_at(keyspace, "b")

        with monkeypatch.context() as patch:
            patch.delattr(Errand, "__init__")
            assert await keyspace.update(key, "add", 2) == 2
            assert await keyspace.get(key) == 2
            assert await keyspace.get(key_at(keyspace, "b", "other"), "none") == "none"


async def test_an_answer_that_cannot_be_read_leaves_a_write_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_members() as (_, keyspace):
        key = key_at(keyspace, "b")
        monkeypatch.setattr(endpoints, "encode_results", lambda _: encode_results(["nonsense"]))

        with pytest.raises(OutcomeUnknown, match="cannot be read"):
            await keyspace.put(key, 1, timeout_s=0.5)
        monkeypatch.undo()

        assert await keyspace.get(key) == 1


async def test_a_caller_that_is_gone_is_not_answered_and_what_it_wrote_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_members() as (cluster, keyspace):
        key = key_at(keyspace, "b")
        answer, were_over = IncomingCalls.answer, list[bool]()

        def answering(calls: IncomingCalls, incoming: IncomingCall, given: Answer) -> None:
            were_over.append(incoming.ended)
            answer(calls, incoming, given)

        monkeypatch.setattr(IncomingCalls, "answer", answering)
        cluster.store.inject(StoreFault.FAILS, count=1_000)

        with pytest.raises((OutcomeUnknown, StoreUnavailable)):
            await keyspace.put(key, 1, timeout_s=0.1)
        cluster.store.heal()
        await trio.sleep(10)

        assert await keyspace.get(key) == 1
        assert not any(were_over)


async def test_a_write_that_waits_for_the_store_in_vain_says_what_the_store_says() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=4)
        await all_online(keyspace, "a")
        cluster.store.inject(StoreFault.FAILS, count=1_000)

        with pytest.raises(OutcomeUnknown, match="served the request: memory store"):
            await keyspace.put("key", 1, timeout_s=1)


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("late"), PartitionUnavailable("it left")], ids=lambda e: e.code
)
async def test_a_write_goes_on_as_an_errand_with_the_same_id(
    error: KeyspaceError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=4)
        await all_online(keyspace, "a")
        lose(monkeypatch, error)

        assert await keyspace.update("key", "add", 1) == 1
        assert await keyspace.get("key") == 1


async def test_writes_follow_their_partitions_to_another_node_and_count_once() -> None:
    async with trio.open_nursery() as nursery, a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=8)
        await all_online(keyspace, "a")
        keys = [f"key-{number}" for number in range(16)]
        counts, has_moved, ended = dict.fromkeys(keys, 0), False, 0

        async def count(key: str) -> None:
            nonlocal ended
            while not has_moved:
                counts[key] = cast("int", await keyspace.update(key, "add", 1))
                await trio.sleep(0.005)
            ended += 1

        for key in keys:
            nursery.start_soon(count, key)
        await cluster.start("b")
        await all_online(keyspace, "a", "b")
        has_moved = True
        await until(lambda: ended == len(keys))

        assert {keyspace.owner_of(key) for key in keys} == {"a", "b"}
        assert await keyspace.get_many(keys) == counts
        assert min(counts.values()) > 1


async def test_a_write_that_is_left_open_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_cluster() as cluster:

        async def late(*_: object) -> None:
            await trio.sleep(10)

        monkeypatch.setattr(PartitionServer, "apply", late)
        lose(monkeypatch, OutcomeUnknown("the deadline passed"))
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=4)
        await all_online(keyspace, "a")

        with pytest.raises(OutcomeUnknown):
            await keyspace.update("key", "add", 1, timeout_s=1)


async def test_after_a_cut_a_copy_whose_owner_is_elsewhere_takes_no_writes_of_its_own_node() -> (
    None
):
    async with two_members("memory") as (_, keyspace):
        host: Any = keyspace._host
        number = next(row.partition for row in keyspace.table if row.owner == "a")
        assert host.served(number) is not None

        row = keyspace.table[number]
        keyspace.table.put(row.claimed("b", row.epoch + 1))

        assert host.driver.partitions[number].presence is Presence.OWNED
        assert host.served(number) is None


async def test_an_errand_that_follows_needs_no_pause_if_the_partition_is_elsewhere() -> None:
    async with two_members() as (_, keyspace):
        number = next(row.partition for row in keyspace.table if row.owner == "b")
        key = next(key for key in map(str, range(1_000)) if keyspace.partition_of(key) == number)
        host: Any = keyspace._host
        request = ReadsOf("k", keyspace.generation, {number: (key,)}, stale=False, host=host)
        await keyspace.put(key, 1)
        began_at = trio.current_time()

        left = PartitionUnavailable("it has left")
        found = await keyspace._dispatcher.ask_one(request, number, began_at + 5, left)

        assert not isinstance(found, KeyspaceError)
        assert trio.current_time() == began_at


async def test_a_request_with_much_time_is_an_errand(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=4)
        await all_online(keyspace, "a")
        lose(monkeypatch, BadOperation("an answer of the partition itself, which is the result"))

        for timeout_s in (61, 1e9, 1e308, float("inf")):
            await keyspace.put("key", timeout_s, timeout_s=timeout_s)
            assert await keyspace.get("key", timeout_s=timeout_s) == timeout_s


async def test_a_malformed_write_is_refused_alone() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=1)
        await all_online(keyspace, "a")
        await keyspace.put("key", 1)

        malformed: Any = Write("s", 0, None)  # type: ignore[arg-type]
        outcomes = await keyspace.write({0: [malformed]})

        assert isinstance(outcomes[0][0], BadOperation)
        assert await keyspace.get("key") == 1


async def test_a_time_out_has_to_be_a_time() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("k", partitions=4)
        await all_online(keyspace, "a")

        for timeout_s in (0, -1, "1"):
            with pytest.raises(ConfigError, match="timeout_s"):
                await keyspace.update("key", "add", 1, timeout_s=timeout_s)  # type: ignore[arg-type]
        assert await keyspace.get("key") is None
        assert await keyspace.update("key", "add", 1, timeout_s=float("inf")) == 1
