"""The synchronous client of a keyspace, in a thread, against real daemons on loopback."""

from __future__ import annotations

import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio

from ringpop_py import (
    BadOperation,
    Change,
    Client,
    ConditionFailed,
    Config,
    ConfigError,
    KeyspaceClient,
    KeyspaceUnknown,
    NotEnoughMembers,
    OperationId,
    OperationIdReused,
    OutcomeUnknown,
    PartitionFull,
    PartitionUnavailable,
    StoreFull,
    StoreUnavailable,
    open_ringpop,
    tag_of,
)
from ringpop_py.base.values.operations import Outcome
from ringpop_py.base.values.requests import APPLY, READ, SCAN, encode_results
from ringpop_py.client import routes
from ringpop_py.client.jobs import JobClient
from ringpop_py.net.wire.calls import Answer
from ringpop_py.state.messages import ROUTED, Routes, encode_answer
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.clusters import key_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.placement.table import PartitionOwners

T = TypeVar("T")


async def in_thread(
    peer: Address, work: Callable[[KeyspaceClient], T], *, direct: bool = True, timeout_s: float = 5
) -> T:
    """What *work* does with a client of the keyspace "k" at *peer*."""

    def run() -> T:
        with (
            Client(peer, timeout_s=timeout_s) as client,
            KeyspaceClient(client, "k", direct=direct) as keyspace,
        ):
            return work(keyspace)

    return await trio.to_thread.run_sync(run)


@asynccontextmanager
async def nodes(*names: str, **settings: int) -> AsyncIterator[Sequence[Ringpop]]:
    """Members of one cluster, all of which serve a share of the keyspace "k"."""
    store = MemoryStore()
    found: list[Ringpop] = []
    async with AsyncExitStack() as stack:
        for name in names:
            hosts = tuple(node.address for node in found)
            node = open_ringpop(Config(name=name, hosts=hosts, store="memory:"), store=store)
            found.append(await stack.enter_async_context(node))
        keyspace = await found[0].open_keyspace("k", **{"partitions": 8, **settings})  # type: ignore[arg-type]
        with trio.fail_after(20):
            while set(keyspace.table.counts()) != set(names) or keyspace.table.moving:
                if settings.get("min_cluster_size", 0) > len(names):
                    break
                await trio.sleep(0.01)
        yield found


class _Caught:
    """A call whose answer is kept back."""

    def __init__(self, incoming: IncomingCall) -> None:
        self._incoming = incoming
        self._found: Answer | None = None
        self._came = trio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._incoming, name)

    def answer(self, answer: Answer) -> None:
        self._found = answer
        self._came.set()

    async def answered(self) -> Answer:
        await self._came.wait()
        assert self._found is not None
        return self._found


class Counting:
    """Counts the calls of an endpoint at one node, and may lose their answers."""

    def __init__(self, node: Ringpop, endpoint: str, *, lose_count: int = 0) -> None:
        self.count = 0
        self._lose_count = lose_count
        served = node.channel.handlers.find("ringpop", endpoint)
        assert served is not None
        self._handler = served.handler
        node.channel.serve("ringpop", endpoint, self._serve)

    async def _serve(self, incoming: IncomingCall) -> Answer:
        self.count += 1
        caught = _Caught(incoming)
        answer = self._handler(caught)  # type: ignore[arg-type]
        if answer is None:
            answer = caught.answered()
        done = answer if isinstance(answer, Answer) else await answer
        if self.count <= self._lose_count:
            message = "the answer is lost"
            raise RuntimeError(message)
        assert isinstance(done, Answer)
        return done


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_what_is_put_is_there_for_others(direct: bool) -> None:  # noqa: FBT001
    async with nodes("a", "b") as (a, b):

        def work(keyspace: KeyspaceClient) -> object:
            keyspace.put("x", {"n": [1, None, b"x"]})
            keyspace.put("y", 1)
            keyspace.update("y", "add", 41)
            keyspace.put("gone", 1)
            keyspace.delete("gone")
            return keyspace.get_many(["x", "y", "gone", "never"]), keyspace.get("gone", "default")

        found = await in_thread(a.address, work, direct=direct)

        assert found == ({"x": {"n": [1, None, b"x"]}, "y": 42}, "default")
        assert await (await b.open_keyspace("k")).get("y") == 42


async def test_owners_are_asked_without_the_daemon_between() -> None:
    async with nodes("a", "b") as (a, b):
        through = Counting(a, "/keyspace/client/apply")
        at_b = Counting(b, "/keyspace/apply")

        await in_thread(a.address, lambda k: k.update_many([(f"{n}", "put", n) for n in range(50)]))

        assert (through.count, at_b.count) == (0, 1)


async def test_a_client_follows_a_partition_that_has_moved() -> None:
    async with nodes("a") as (a,):
        stored = a.keyspaces._stored
        assert stored is not None
        with Client(a.address, timeout_s=5) as client, KeyspaceClient(client, "k") as k:
            put = lambda: k.update_many([(f"{n}", "count", None) for n in range(50)])  # noqa: E731
            await trio.to_thread.run_sync(put)
            config = Config(name="b", hosts=(a.address,), store="memory:")
            async with open_ringpop(config, store=stored.opened.store) as b:
                table = (await b.open_keyspace("k")).table
                with trio.fail_after(20):
                    while table.counts() != {"a": 4, "b": 4}:
                        await trio.sleep(0.01)

                outcomes = await trio.to_thread.run_sync(put)
                at_b = Counting(b, "/keyspace/apply")
                await trio.to_thread.run_sync(put)

                assert outcomes == [Outcome((2,))] * 50
                assert at_b.count == 1  # it has learnt where that is


async def test_a_lost_answer_is_made_good_and_the_write_takes_effect_once() -> None:
    async with nodes("a", "b") as (a, b):
        at_owners = [Counting(node, "/keyspace/apply", lose_count=1) for node in (a, b)]

        found = await in_thread(a.address, lambda k: [k.update("n", "add", 1) for _ in range(3)])

        assert sum(owner.count for owner in at_owners) >= 3
        assert found == [1, 2, 3]


async def test_an_operation_id_takes_effect_once() -> None:
    async with nodes("a") as (a,):

        def work(keyspace: KeyspaceClient) -> object:
            first = keyspace.update("n", "add", 5, operation_id="once")
            second = keyspace.update("n", "add", 5, operation_id=OperationId("once"))
            return first, second

        assert await in_thread(a.address, work) == (5, 5)


@pytest.mark.parametrize("direct", [True, False])
async def test_an_operation_id_used_again_for_another_write_is_an_error(*, direct: bool) -> None:
    async with nodes("a") as (a,):

        def work(keyspace: KeyspaceClient) -> object:
            keyspace.update("n", "add", 5, operation_id="once")
            with pytest.raises(OperationIdReused, match="'once' was used before"):
                keyspace.update("n", "add", 6, operation_id="once")
            return keyspace.get("n")

        assert await in_thread(a.address, work, direct=direct) == 5


async def test_a_write_can_depend_on_what_is_there() -> None:
    async with nodes("a", "b") as (a, _):

        def work(keyspace: KeyspaceClient) -> object:
            keyspace.put("x", 1, if_absent=True)
            with pytest.raises(ConditionFailed):
                keyspace.put("x", 2, if_absent=True)
            with pytest.raises(ConditionFailed):
                keyspace.delete("x", if_tag=tag_of(2))
            return keyspace.update("x", "add", 1, if_tag=tag_of(1))

        assert await in_thread(a.address, work) == 2


async def test_a_scan_is_ordered_and_has_bounds() -> None:
    async with nodes("a", "b") as (a, _):

        def work(keyspace: KeyspaceClient) -> object:
            keyspace.update_many([(f"{n:04}", "put", n) for n in range(2_500)])
            return (
                list(keyspace.scan(start="0100", end="2400")),
                list(keyspace.scan("00", limit=3)),
            )

        found = await in_thread(a.address, work)

        assert found == (
            [(f"{n:04}", n) for n in range(100, 2_400)],
            [("0000", 0), ("0001", 1), ("0002", 2)],
        )


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_errors_arrive_as_their_own_classes(direct: bool) -> None:  # noqa: FBT001
    async with nodes("a", partitions=1, max_keys_per_partition=2) as (a,):

        def work(keyspace: KeyspaceClient) -> None:
            keyspace.put("text", "no number")
            keyspace.put("other", 1)
            with pytest.raises(BadOperation):
                keyspace.update("text", "add", 1)
            with pytest.raises(ConditionFailed):
                keyspace.update("other", "put_if_absent", 2)
            with pytest.raises(PartitionFull):
                keyspace.put("third", 1)
            with pytest.raises(BadOperation, match="cannot be sent"):
                keyspace.put("text", {1, 2})  # type: ignore[arg-type]
            with pytest.raises(BadOperation, match="operation_id"):
                keyspace.put("text", 1, operation_id=7)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="timeout_s"):
                keyspace.get("text", timeout_s=0)
            outcomes = keyspace.update_many([Change("text", "add", 1), Change("other", "add", 1)])
            assert isinstance(outcomes[0], BadOperation)
            assert outcomes[1] == Outcome((2,))

        await in_thread(a.address, work, direct=direct)


async def test_a_keyspace_that_is_not_there_is_named() -> None:
    async with nodes("a") as (a,):

        def work() -> None:
            with Client(a.address) as client, pytest.raises(KeyspaceUnknown, match="'other'"):
                KeyspaceClient(client, "other").get("x")

        await trio.to_thread.run_sync(work)


async def test_a_keyspace_that_was_made_anew_is_found_again() -> None:
    async with nodes("a") as (a,):
        with Client(a.address, timeout_s=5) as client, KeyspaceClient(client, "k") as k:
            await trio.to_thread.run_sync(lambda: k.put("x", 1))
            await a.keyspaces.drop("k")
            await a.open_keyspace("k", partitions=16)

            found = await trio.to_thread.run_sync(lambda: [k.get("x"), k.update("x", "add", 2)])

            assert found == [None, 2]


async def test_what_waits_for_members_ends_with_why_long_before_the_deadline() -> None:
    async with nodes("a", min_cluster_size=3) as (a,):

        def work(keyspace: KeyspaceClient) -> None:
            began = time.monotonic()
            with pytest.raises(NotEnoughMembers, match="1 of the 3 members"):
                keyspace.put("x", 1, timeout_s=60)
            assert time.monotonic() - began < 30

        await in_thread(a.address, work)


async def test_other_daemons_serve_while_the_first_does_not_answer() -> None:
    async with nodes("a", "b") as (a, b):
        with (
            Client(b.address, timeout_s=5) as client,
            KeyspaceClient(client, "k", direct=False) as keyspace,
        ):
            await trio.to_thread.run_sync(lambda: keyspace.put("x", 1))
            at_b = Counting(b, "/keyspace/client/read", lose_count=1_000)
            at_a = Counting(a, "/keyspace/client/read")

            found = await trio.to_thread.run_sync(lambda: keyspace.get("x"))

            assert found == 1
            assert (at_b.count, at_a.count) == (1, 1)


async def test_a_stale_read_is_answered_though_the_owner_does_not_answer() -> None:
    async def hang(_incoming: IncomingCall) -> Answer:
        await trio.sleep_forever()
        raise AssertionError

    async with nodes("a", "b") as (a, b):
        key = key_at(await a.keyspaces.get("k"), "b")
        await in_thread(a.address, lambda k: k.put(key, "kept"))
        for endpoint in (READ, SCAN):
            b.channel.serve("ringpop", endpoint, hang)

        def work(keyspace: KeyspaceClient) -> object:
            return keyspace.get(key, stale=True), dict(keyspace.scan(stale=True))

        assert await in_thread(a.address, work) == ("kept", {key: "kept"})


async def test_a_daemon_is_asked_long_before_the_deadline_if_the_owner_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "STRAIGHT_US", 50_000)
    async with nodes("a", "b") as (a, b):
        key = key_at(await a.keyspaces.get("k"), "b")
        await in_thread(a.address, lambda k: k.put(key, "kept"))
        served = b.channel.handlers.find("ringpop", READ)
        assert served is not None
        read = served.handler
        asked: list[IncomingCall] = []

        def answer_the_second(incoming: IncomingCall) -> object:
            asked.append(incoming)
            return None if len(asked) == 1 else read(incoming)

        b.channel.serve("ringpop", READ, answer_the_second)  # type: ignore[arg-type]

        assert await in_thread(a.address, lambda k: k.get(key, timeout_s=3_600)) == "kept"
        assert len(asked) == 2


def test_nobody_there_is_told_from_perhaps_done() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with Client(f"127.0.0.1:{port}", timeout_s=0.3) as client:
        keyspace = KeyspaceClient(client, "k")

        with pytest.raises(PartitionUnavailable, match="no daemon answered in time"):
            keyspace.put("x", 1)


async def test_a_write_that_may_have_taken_effect_is_not_said_to_be_undone() -> None:
    async with nodes("a") as (a,):
        Counting(a, "/keyspace/apply", lose_count=1_000)
        Counting(a, "/keyspace/client/apply", lose_count=1_000)

        def work(keyspace: KeyspaceClient) -> None:
            with pytest.raises(OutcomeUnknown):
                keyspace.put("x", 1, timeout_s=0.5)
            assert keyspace.get("x") == 1

        await in_thread(a.address, work)


async def test_a_write_that_may_have_taken_effect_is_not_said_to_have_had_no_room() -> None:
    async with nodes("a") as (a,):
        unknown = encode_results([StoreUnavailable("no answer")])
        full = encode_answer([StoreFull("no room")], Routes())
        a.channel.serve("ringpop", APPLY, lambda _: Answer(ok=True, arg3=unknown))
        a.channel.serve("ringpop", ROUTED[APPLY], lambda _: Answer(ok=True, arg3=full))

        def work(keyspace: KeyspaceClient) -> None:
            with pytest.raises(OutcomeUnknown, match="no room"):
                keyspace.put("x", 1)

        await in_thread(a.address, work)


@pytest.mark.parametrize("of_each_write", [False, True], ids=["of the part", "of each write"])
async def test_a_daemon_that_reaches_no_owner_proves_nothing_of_an_earlier_attempt(
    of_each_write: bool,  # noqa: FBT001
) -> None:
    async with nodes("a") as (a,):
        error = PartitionUnavailable("no owner answered")
        result = [error] if of_each_write else error
        answer = encode_answer([result], Routes.of({0: ("a", 1)}, {}))
        Counting(a, APPLY, lose_count=1_000)
        a.channel.serve("ringpop", ROUTED[APPLY], lambda _: Answer(ok=True, arg3=answer))

        def work(keyspace: KeyspaceClient) -> None:
            with pytest.raises(OutcomeUnknown, match="no owner answered"):
                keyspace.put("x", 1)
            assert keyspace.get("x") == 1

        await in_thread(a.address, work)


async def test_a_page_without_rows_though_there_are_more_is_no_answer() -> None:
    async with nodes("a", partitions=1) as (a,):
        result = [[], True]
        straight, routed = encode_results([result]), encode_answer([result], Routes())
        a.channel.serve("ringpop", SCAN, lambda _: Answer(ok=True, arg3=straight))
        a.channel.serve("ringpop", ROUTED[SCAN], lambda _: Answer(ok=True, arg3=routed))

        def work(keyspace: KeyspaceClient) -> None:
            with pytest.raises(OutcomeUnknown, match="there are more"):
                list(keyspace.scan(timeout_s=0.2))

        await in_thread(a.address, work)


async def test_an_owner_without_room_is_believed() -> None:
    async with nodes("a") as (a,):
        full = encode_results([StoreFull("no room")])
        a.channel.serve("ringpop", APPLY, lambda _: Answer(ok=True, arg3=full))
        through_daemon = Counting(a, ROUTED[APPLY])

        def work(keyspace: KeyspaceClient) -> None:
            with pytest.raises(StoreFull, match="no room"):
                keyspace.put("x", 1)

        await in_thread(a.address, work)
        assert through_daemon.count == 0


def test_a_client_without_a_key_uses_no_keyspace_of_the_cluster() -> None:
    with Client("127.0.0.1:1", cluster_key="") as client:
        for use in (KeyspaceClient, partial(JobClient, job="j")):
            with pytest.raises(ConfigError, match="the cluster's own keyspaces, not '~shuffles'"):
                use(client, "~shuffles")
        client.is_of_cluster = True  # as that of the process that holds the rows of shuffles
        KeyspaceClient(client, "~shuffles").close()
    with Client("127.0.0.1:1", cluster_key="file") as client:
        KeyspaceClient(client, "~shuffles").close()  # a member judges


async def test_owners_are_told_and_waited_for_until_they_have_changed() -> None:
    async with nodes("a", "b") as (a, b):

        def watch(keyspace: KeyspaceClient) -> list[PartitionOwners]:
            now = keyspace.partition_owners()
            same = keyspace.partition_owners(after=now.epoch, timeout_s=1.5)
            trio.from_thread.run_sync(a.drain)
            return [now, same, keyspace.partition_owners(after=now.epoch, timeout_s=5)]

        now, same, later = await in_thread(b.address, watch)

        assert now == same
        assert sorted([*now.of("a"), *now.of("b")]) == list(range(8))
        assert later.epoch > now.epoch
