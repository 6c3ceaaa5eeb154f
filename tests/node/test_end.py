"""A node that ends in good order, on clusters in one process and in virtual time."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Address, Config, Request, Status, StatusChanged, open_ringpop
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import ConnectRefused, MayHaveRun, PeerDeclined, RingpopError
from ringpop_py.member.drain import STALLED_S, Work
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import Answer, Call
from ringpop_py.route.proxy.head import Head
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.state.keyspaces.clusters import all_online
from tests.state.keyspaces.memory_clusters import Cluster, a_cluster

if TYPE_CHECKING:
    from ringpop_py.base.errors import CallError
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall
    from ringpop_py.state.placement.definition import Mode

pytestmark = pytest.mark.virtual_time

SLOW = Request("/slow", b"body")
HANDLER_S = 1.5
LARGE = bytes(7 << 20)
"""More than a connection in memory holds."""
CALLER = Address("10.0.0.2", 1)


RECEIVED: list[str] = []
"""The keys of actors, each time that one of them began with a message."""


class Slow(Actor[int, int]):
    """Adds what it is sent, slowly."""

    state = 0

    async def receive(self, message: int) -> int:
        RECEIVED.append(self.key)
        await trio.sleep(HANDLER_S)
        self.state += message
        return int(self.state)


def stores(*names: str) -> dict[str, MemoryStore]:
    return dict.fromkeys(names, MemoryStore())


async def started(cluster: Cluster, *names: str) -> list[Ringpop]:
    """Nodes that see each other, each with a slow handler that says who answered."""
    cluster.on_start = serve_slowly
    nodes = await cluster.start(*names)
    for node in nodes:
        await node.wait_until(lambda ringpop: len(ringpop.ring) == len(names))
    return nodes


def serve_slowly(node: Ringpop) -> None:
    @node.handler("/slow")
    async def serve(_: AppCall) -> bytes:
        await trio.sleep(HANDLER_S)
        return node.name.encode()


def key_of(owner: Ringpop) -> str:
    return next(key for n in range(10_000) if owner.lookup(key := f"k{n}") == owner.name)


def routed(key: str) -> Call:
    """What `Client.proxy` sends."""
    return Call("app", SLOW.endpoint, Head((key,), route=True).encode(), b"", ttl_s=10)


async def closing(node: Ringpop) -> None:
    while not node.ending.closing:
        await trio.sleep(0.01)


async def test_a_handler_that_is_at_work_is_waited_for() -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        replies: list[bytes] = []

        async def call() -> None:
            replies.append((await a.proxy(key_of(b), SLOW)).body)

        nursery.start_soon(call)
        await trio.sleep(0.1)
        began = trio.current_time()
        await cluster.shut_down("b")
        took_s = trio.current_time() - began

        await trio.sleep(0.1)
        assert replies == [b"b"]
        assert HANDLER_S - 0.2 < took_s < HANDLER_S + 0.5
        assert a.status_of("b") is Status.LEAVE


async def test_requests_for_keys_of_an_ending_node_go_to_the_next_owner() -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        a, b, _ = await started(cluster, "a", "b", "c")
        key = key_of(b)
        nursery.start_soon(a.proxy, key, SLOW)  # so that b has something to wait for
        await trio.sleep(0.1)
        nursery.start_soon(cluster.shut_down, "b")
        await a.wait_until(lambda ringpop: "b" not in ringpop.ring)

        late = Call("app", SLOW.endpoint, Head((key,), sender="a").encode(), b"", ttl_s=10)
        with pytest.raises(PeerDeclined):
            await a.channel.call(b.address, late)
        reply = await a.proxy(key, SLOW)

        assert reply.owner in ("a", "c")


async def test_a_clients_call_is_brought_to_its_owner_until_the_node_closes() -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        answers: list[Answer] = []

        async def call() -> None:
            answers.append(await a.channel.call(b.address, routed(key_of(a))))

        nursery.start_soon(call)
        await trio.sleep(0.1)
        nursery.start_soon(cluster.shut_down, "b")
        await closing(b)
        with pytest.raises(PeerDeclined, match="ask another member"):
            await a.channel.call(b.address, routed(key_of(a)))
        await trio.sleep(HANDLER_S)

        assert [answer.arg3 for answer in answers] == [b"a"]
        with pytest.raises(ConnectRefused):
            await a.channel.call(b.address, routed(key_of(a)))


async def test_requests_under_way_at_the_time_out_are_cut_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "ringpop")
    async with a_cluster(drain_timeout_s=1.0) as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        failures: list[RingpopError] = []

        async def call() -> None:
            try:
                await a.proxy(key_of(b), SLOW)
            except RingpopError as error:
                failures.append(error)

        for _ in range(3):
            nursery.start_soon(call)
        await trio.sleep(0.1)
        await cluster.shut_down("b")
        await trio.sleep(0.1)

        assert [type(error) for error in failures] == [MayHaveRun] * 3
        assert "cut after 1.0 s: requests 3" in caplog.text


async def test_a_node_that_is_cancelled_cuts_what_is_under_way() -> None:
    network = MemoryNetwork()
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        cluster.network = network
        (a,) = await started(cluster, "a")
        config = Config(name="b", listen=Address("b", 1), hosts=(a.address,))
        with trio.CancelScope() as scope:
            async with open_ringpop(config, network=network) as b:
                serve_slowly(b)
                await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)
                caught: list[BaseException] = []

                async def call() -> None:
                    try:
                        await a.proxy(key_of(b), SLOW, max_retries=0)
                    except RingpopError as error:
                        caught.append(error)

                nursery.start_soon(call)
                await trio.sleep(0.1)
                began = trio.current_time()
                scope.cancel()
                await trio.lowlevel.checkpoint()

        assert trio.current_time() == began
        await trio.sleep(0.1)
        assert [type(error) for error in caught] == [MayHaveRun]


async def test_partitions_are_handed_over_before_the_node_is_gone() -> None:
    async with a_cluster(stores("a", "b")) as cluster:
        a, _ = await started(cluster, "a", "b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        statuses: set[str] = set()
        a.observe(lambda _: statuses.update(row.status.label for row in keyspace.table))

        await cluster.shut_down("b")

        assert keyspace.table.counts() == {"a": 8}
        assert "offline" not in statuses


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_an_actor_that_is_at_work_finishes_before_its_partition_moves(mode: Mode) -> None:
    RECEIVED.clear()
    async with a_cluster(stores("a", "b")) as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        keyspace = await a.open_keyspace("actors", partitions=4, mode=mode)
        here = keyspace.actor(Slow)
        (await b.open_keyspace("actors")).actor(Slow)
        await all_online(keyspace, "a", "b")
        keys = [f"k{n}" for n in range(8)]
        answers: list[int] = []

        async def ask(key: str) -> None:
            answers.append(await here.ask(key, 1))

        for key in 2 * keys:  # the second waits in the mailbox when the node is told to end
            nursery.start_soon(ask, key)
        await trio.sleep(0.5)
        began = trio.current_time()
        await cluster.shut_down("b")
        took_s = trio.current_time() - began
        await trio.sleep(3 * HANDLER_S)

        assert sorted(answers) == [1] * len(keys) + [2] * len(keys)
        assert sorted(RECEIVED) == sorted(2 * keys)  # none was begun a second time
        assert took_s < HANDLER_S + 0.5


async def test_partitions_that_nobody_takes_are_sealed_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "ringpop")
    async with a_cluster(stores("a", "b"), drain_timeout_s=60.0) as cluster:
        a, b = await started(cluster, "a", "b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        count = keyspace.table.counts()["b"]
        there = b.keyspaces.durable_host("counts").driver
        there.may_leave = lambda _number: False
        began = trio.current_time()

        await cluster.shut_down("b")
        took_s = trio.current_time() - began
        await all_online(keyspace, "a")

        assert STALLED_S < took_s < STALLED_S + 2
        assert f"{count} partitions were not handed over" in caplog.text
        assert "cut after" not in caplog.text


async def test_an_end_cannot_be_undone_by_labels_or_undrain() -> None:
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        nursery.start_soon(a.proxy, key_of(b), SLOW)
        await trio.sleep(0.1)
        nursery.start_soon(cluster.shut_down, "b")
        await a.wait_until(lambda ringpop: "b" not in ringpop.ring)

        b.set_labels((("zone", "x"),))
        b.undrain()
        b.rejoin()
        await trio.sleep(0.5)

        assert "b" not in a.ring
        assert ("zone", "x") in b.node.local.labels


async def test_in_the_ringpop_dialect_a_node_with_partitions_leaves_the_ring_first() -> None:
    network, store = MemoryNetwork(), MemoryStore()
    hosts = (Address("a", 1), Address("b", 1))

    def opened(host: Address) -> Any:  # noqa: ANN401 - a context manager of trio's
        config = Config(listen=host, hosts=hosts, dialect="ringpop")
        return open_ringpop(config, network=network, store=store, wait_ready=False)

    async with opened(hosts[0]) as a, trio.open_nursery() as nursery:
        seen: list[Status | None] = []
        async with opened(hosts[1]) as b:
            serve_slowly(b)
            for node in (a, b):
                await node.wait_until(lambda ringpop: len(ringpop.ring) == 2)
            keyspace = await a.open_keyspace("k", partitions=8)
            while len(set(map(keyspace.destination, range(8)))) < 2:
                await trio.sleep(0.1)
            a.observe(lambda _: seen.append(a.status_of(b.name)))
            nursery.start_soon(a.proxy, key_of(b), SLOW)
            await trio.sleep(0.1)
        await trio.sleep(1)

        assert list(dict.fromkeys(seen))[-2:] == [Status.LEAVE, Status.FAULTY]


async def test_remaining_work_is_counted_by_kind() -> None:
    async with a_cluster(stores("a", "b")) as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        keyspace = await a.open_keyspace("actors", partitions=4)
        here = keyspace.actor(Slow)
        (await b.open_keyspace("actors")).actor(Slow)
        await all_online(keyspace, "a", "b")
        key = next(k for n in range(100) if here.owner_of(k := f"k{n}") == "b")

        nursery.start_soon(here.ask, key, 1)
        nursery.start_soon(a.proxy, key_of(b), SLOW)
        await trio.sleep(0.1)
        left = b.ending.left()

        partitions = keyspace.table.counts()["b"]
        expected = {Work.REQUESTS: 1, Work.ACTOR_MESSAGES: 1, Work.PARTITIONS: partitions}
        assert {work: count for work, count in left.items() if count} == expected


async def calling(
    cluster: Cluster, nursery: trio.Nursery, callee: Ringpop, answers: list[Answer | CallError]
) -> None:
    """A caller at `CALLER` asks *callee* for `LARGE`, and then reads nothing."""

    @callee.handler("/large")
    async def serve(_: AppCall) -> bytes:
        await trio.sleep(0.2)
        return LARGE

    caller = Channel(host_port=CALLER, process_name="caller", network=cluster.network)
    await nursery.start(caller.run)
    caller.begin(callee.address, Call("app", "/large", b"", b"", ttl_s=60), answers.append)
    await trio.sleep(0.1)
    cluster.network.hang(CALLER)
    await trio.sleep(0.2)


async def test_an_answer_to_a_slow_reader_is_sent_whole_before_the_end() -> None:
    answers: list[Answer | CallError] = []
    async with a_cluster() as cluster, trio.open_nursery() as nursery:
        _, b = await started(cluster, "a", "b")
        await calling(cluster, nursery, b, answers)

        nursery.start_soon(cluster.shut_down, "b")
        await trio.sleep(3)
        cluster.network.resume(CALLER)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert [isinstance(answer, Answer) and answer.arg3 for answer in answers] == [LARGE]


@pytest.mark.parametrize(
    ("drain_timeout_s", "end_s", "warning"),
    [(1.0, 1.0, "cut after 1.0 s: unsent answers 1"), (30.0, WireLimits().frame_timeout_s, "")],
)
async def test_a_caller_that_reads_nothing_does_not_hold_the_end_for_long(
    drain_timeout_s: float, end_s: float, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ringpop")
    async with (
        a_cluster(drain_timeout_s=drain_timeout_s) as cluster,
        trio.open_nursery() as nursery,
    ):
        _, b = await started(cluster, "a", "b")
        await calling(cluster, nursery, b, [])
        began = trio.current_time()

        await cluster.shut_down("b")
        nursery.cancel_scope.cancel()

    assert end_s - 0.5 < trio.current_time() - began < end_s + 0.5
    assert ("cut after" in caplog.text) is bool(warning)
    assert warning in caplog.text


async def test_an_end_that_is_cancelled_says_what_it_cuts_and_leaving_the_block_ends_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "ringpop")
    async with a_cluster(stores("a", "b")) as cluster, trio.open_nursery() as nursery:
        a, b = await started(cluster, "a", "b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")

        async def call() -> None:
            with suppress(RingpopError):
                await a.proxy(key_of(b), SLOW, max_retries=0)

        nursery.start_soon(call)
        await trio.sleep(0.1)

        with trio.move_on_after(0.3):
            await b.end()
        told = caplog.text
        began = trio.current_time()
        await cluster.shut_down("b")
        await trio.sleep(0.1)

        assert "cut after 0.3 s: requests 1" in told
        assert trio.current_time() - began < 0.5
        assert a.status_of("b") is Status.LEAVE
        assert caplog.text.count("cut after") == 1


async def test_in_the_dialect_of_ringpop_a_node_says_that_it_is_faulty_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = MemoryNetwork()
    addresses = [Address(f"10.0.0.{number}", 3000) for number in range(1, 7)]
    said: set[Status] = set()
    called: list[str] = []
    replies: list[bytes] = []
    async with AsyncExitStack() as stack:
        nodes: list[Ringpop] = []
        for address in addresses:
            config = Config(listen=address, hosts=tuple(addresses), dialect="ringpop")
            opening = open_ringpop(config, network=network, wait_ready=False)
            nodes.append(await stack.enter_async_context(opening))
        for node in nodes:
            await node.wait_until(lambda ringpop: len(ringpop.ring) == len(addresses))
        *others, ending = nodes
        serve_slowly(ending)

        def note(effect: object) -> None:
            if isinstance(effect, StatusChanged) and effect.member.name == ending.name:
                said.add(effect.member.status)

        begin = ending.channel.begin

        def counted(to: Address, call: Call, done: Any) -> Any:  # noqa: ANN401 - passed on
            called.append(call.endpoint)
            return begin(to, call, done)

        async def ask() -> None:
            replies.append((await others[0].proxy(key_of(ending), SLOW)).body)

        await trio.sleep(60)  # no suspicion of the start is told any more
        for node in others:
            node.observe(note)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.1)
            monkeypatch.setattr(ending.channel, "begin", counted)
            await ending.end()

    assert len(replies) == 1, "what was under way was finished"
    assert said == {Status.FAULTY}
    assert called == ["/protocol/ping"] * 2  # ceil(0.4 * 5)
