"""`Ringpop.replicate` and `quorum_read`, at nodes of one process, in virtual time."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py import (
    Address,
    Config,
    GossipConfig,
    HttpRequest,
    ProxyConfig,
    Request,
    open_ringpop,
)
from ringpop_py.base.errors import (
    ApplicationError,
    ConfigError,
    ConnectFailed,
    DeadlineExceeded,
    MaxRetriesExceeded,
    MayHaveRun,
    NoOwner,
    NotEnoughReplies,
    Refused,
)
from ringpop_py.route.proxy.request import Reply
from ringpop_py.route.quorum import replication
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall

pytestmark = pytest.mark.virtual_time

KEY: Final = "key"
NO_RETRIES: Final = ProxyConfig(max_retries=0, retry_schedule_s=())


class Cluster:
    """Nodes whose handlers keep a value, and can be made slow.

    Attributes:
        nodes: in the order of their points after `KEY`.
        values: what each has, by its name.
        slow: what a member's handler waits for.
        ends: whose handler has returned, or was cancelled, in that order.
    """

    def __init__(self, nodes: Sequence[Ringpop], network: MemoryNetwork) -> None:
        by_name = {node.name: node for node in nodes}
        self.nodes = [by_name[name] for name in nodes[0].lookup_n(KEY, len(nodes))]
        self.names = [node.name for node in self.nodes]
        self.network = network
        self.values: dict[str, bytes] = defaultdict(bytes)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.slow: dict[str, trio.Event] = {}
        self.ends: list[str] = []
        for node in nodes:
            self._serve(node)

    def _serve(self, node: Ringpop) -> None:
        @node.handler("/put")
        async def put(call: AppCall) -> bytes:
            self.calls["/put", node.name] += 1
            try:
                if node.name in self.slow:
                    await self.slow[node.name].wait()
                self.values[node.name] = call.body
            finally:
                self.ends.append(node.name)
            return b"ok"

        @node.handler("/get")
        async def get(_call: AppCall) -> bytes:
            self.calls["/get", node.name] += 1
            if node.name in self.slow:
                await self.slow[node.name].wait()
            return self.values[node.name]

    def cut_off(self, node: Ringpop) -> None:
        for other in self.nodes:
            if other is not node:
                self.network.cut(node.address, other.address)

    def puts(self) -> list[int]:
        return [self.calls["/put", name] for name in self.names]


@asynccontextmanager
async def cluster(count: int, proxy: ProxyConfig | None = None) -> AsyncIterator[Cluster]:
    network = MemoryNetwork()
    hosts = tuple(Address(f"10.0.0.{number}", 3000) for number in range(1, count + 1))
    async with AsyncExitStack() as stack:
        nodes = []
        for host in hosts:
            config = Config(
                listen=host,
                hosts=hosts,
                proxy=proxy or ProxyConfig(),
                gossip=GossipConfig(suspect_s=1.0),
            )
            nodes.append(await stack.enter_async_context(open_ringpop(config, network=network)))
        for node in nodes:
            await node.wait_until(lambda node: len(node.ring) == count)
        yield Cluster(nodes, network)


PUT: Final = Request("/put", b"2")
GET: Final = Request("/get")


def newest(replies: Sequence[Reply]) -> Reply:
    return max(replies, key=lambda reply: reply.body)


def with_put(reply: Reply) -> Request:
    return Request("/put", reply.body)


# replicate.


@pytest.mark.parametrize("sender", [0, 2, 4])
async def test_the_handlers_of_the_first_members_get_the_request_wherever_it_comes_from(
    sender: int,
) -> None:
    async with cluster(5) as c:
        replies = await c.nodes[sender].replicate(KEY, PUT, n=3, w=3)

        assert replies == {name: Reply(b"ok", name) for name in c.names[:3]}
        assert [*replies] == c.names[:3]
        assert c.puts() == [1, 1, 1, 0, 0]


async def test_it_returns_with_enough_replies_and_the_others_go_on() -> None:
    async with cluster(4) as c:
        slow = c.slow[c.names[0]] = trio.Event()

        replies = await c.nodes[3].replicate(KEY, PUT)

        assert [*replies] == c.names[1:3]
        assert c.names[0] not in c.values
        slow.set()
        await trio.testing.wait_all_tasks_blocked()
        assert c.values[c.names[0]] == b"2"


async def test_a_slow_member_is_waited_for_if_its_reply_is_needed() -> None:
    async with cluster(3) as c:
        slow = c.slow[c.names[2]] = trio.Event()
        got: list[str] = []

        async def ask() -> None:
            got.extend(await c.nodes[0].replicate(KEY, PUT, w=3))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(5)
            assert got == []
            slow.set()
        assert got == c.names


async def test_nobody_waits_for_a_member_that_hangs() -> None:
    async with cluster(4) as c:
        c.network.hang(c.nodes[0].address)
        began_at = trio.current_time()

        replies = await c.nodes[3].replicate(KEY, PUT)

        assert [*replies] == c.names[1:3]
        assert trio.current_time() - began_at < 0.1
        c.network.resume(c.nodes[0].address)


async def test_too_few_members_is_an_error_that_names_them() -> None:
    async with cluster(3, NO_RETRIES) as c:
        a, b, d = c.nodes
        c.network.cut(a.address, b.address)
        c.network.cut(a.address, d.address)

        with pytest.raises(NotEnoughReplies) as caught:
            await a.replicate(KEY, PUT)

        assert caught.value.answered == (a.name,)
        assert caught.value.errors.keys() == {b.name, d.name}
        assert {type(error) for error in caught.value.errors.values()} == {MaxRetriesExceeded}
        assert caught.value.history[0] == f"{a.name}: answered"
        assert caught.value.took_effect == "unknown"


async def test_a_member_that_is_out_of_reach_for_a_while_is_tried_again_in_the_background() -> None:
    async with cluster(3) as c:
        a, b, _ = c.nodes
        c.network.cut(a.address, b.address)

        assert b.name not in await a.replicate(KEY, PUT)
        c.network.heal()
        await trio.sleep(2)

        assert c.values[b.name] == b"2"


async def test_an_error_of_a_handler_is_no_reply() -> None:
    async with cluster(3) as c:
        for node in c.nodes[:2]:

            @node.handler("/full")
            def full(_call: AppCall) -> bytes:
                raise ApplicationError("full", "no room")

        c.nodes[2].handler("/full")(lambda _call: b"ok")

        with pytest.raises(NotEnoughReplies, match="full: no room") as caught:
            await c.nodes[0].replicate(KEY, Request("/full"))

        errors = caught.value.errors
        assert {name: type(errors[name]) for name in c.names[:2]} == dict.fromkeys(
            c.names[:2], ApplicationError
        )


async def test_what_may_have_run_is_repeated_at_a_member_only_with_leave() -> None:
    async with cluster(3) as c:
        a, b, _ = c.nodes
        c.slow[b.name] = trio.Event()

        async def lose() -> None:
            await trio.sleep(0.1)
            c.slow.pop(b.name).set()
            c.network.cut(a.address, b.address)
            await trio.sleep(0.5)
            c.network.heal()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose)
            with pytest.raises(NotEnoughReplies) as caught:
                await a.replicate(KEY, PUT, w=3)
        assert isinstance(caught.value.errors[b.name], MayHaveRun)
        assert c.puts() == [1, 1, 1]

        c.slow[b.name] = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose)
            assert [*await a.replicate(KEY, PUT, w=3, idempotent=True)] == c.names
        assert c.puts() == [2, 3, 2]


async def test_another_member_stands_in_for_one_that_leaves_the_ring_meanwhile() -> None:
    async with cluster(4) as c:
        c.cut_off(c.nodes[1])

        replies = await c.nodes[0].replicate(
            KEY, PUT, w=3, idempotent=True, max_retries=20, retry_schedule=[0.5]
        )

        assert [*replies] == [c.names[0], c.names[2], c.names[3]]
        assert c.puts() == [1, 0, 1, 1]


async def test_a_member_refuses_what_it_is_not_among_the_first_for_by_its_own_ring() -> None:
    async with cluster(3, NO_RETRIES) as c:
        a, b, _ = c.nodes
        b.ring = b.ring.with_changes([], [b.name])

        with pytest.raises(NotEnoughReplies, match="invalid-key") as caught:
            await a.replicate(KEY, PUT, w=3)

        assert isinstance(caught.value.errors[b.name], Refused)
        assert c.puts() == [1, 0, 1]


@pytest.mark.parametrize(("after_s", "refusals"), [(0.05, 1), (0.5, 2)])
async def test_a_member_that_refused_is_asked_again_when_its_ring_is_right(
    after_s: float, refusals: int
) -> None:
    async with cluster(3) as c:
        a, b, _ = c.nodes
        right = b.ring
        b.ring = right.with_changes([], [b.name])

        async def correct() -> None:
            await trio.sleep(after_s)
            b.ring = right

        async with trio.open_nursery() as nursery:
            nursery.start_soon(correct)
            assert [*await a.replicate(KEY, PUT, w=3)] == c.names
        # The first retry waits a moment for the views to agree, the second one for a second.
        assert b.proxying.counts.refused_keys == refusals
        assert c.puts() == [1, 1, 1]


async def test_with_fewer_members_than_n_all_of_them_get_it() -> None:
    async with cluster(2) as c:
        assert [*await c.nodes[0].replicate(KEY, PUT)] == c.names

        with pytest.raises(
            NotEnoughReplies, match=r"w is 3, more than the members in the ring \(2\)"
        ):
            await c.nodes[0].replicate(KEY, PUT, w=3)
        assert c.puts() == [1, 1]


async def test_an_empty_ring_has_no_members_to_ask() -> None:
    async with cluster(1) as c:
        c.nodes[0].leave()
        await c.nodes[0].wait_until(lambda node: len(node.ring) == 0)

        with pytest.raises(NoOwner):
            await c.nodes[0].replicate(KEY, PUT, w=1)


async def test_a_deadline_is_for_all_attempts_here_and_there() -> None:
    async with cluster(3) as c:
        c.slow |= {name: trio.Event() for name in c.names[:2]}
        began_at = trio.current_time()

        with pytest.raises(NotEnoughReplies) as caught:
            await c.nodes[0].replicate(KEY, PUT, deadline_s=2)

        assert trio.current_time() - began_at == pytest.approx(2, abs=0.1)
        assert isinstance(caught.value.errors[c.names[0]], DeadlineExceeded)
        assert caught.value.answered == (c.names[2],)


async def test_a_caller_that_is_cancelled_waits_for_nobody_and_nothing_goes_on() -> None:
    async with cluster(3) as c:
        c.slow |= {name: trio.Event() for name in c.names}

        with trio.move_on_after(1) as scope:
            await c.nodes[0].replicate(KEY, PUT)

        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert c.names[0] in c.ends
        assert c.nodes[0].proxying.counts.in_flight == 0


async def test_of_too_many_in_the_background_the_oldest_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication, "BEHIND_MAX", 1)
    async with cluster(3) as c:
        a = c.nodes[0]
        c.slow[a.name] = trio.Event()

        await a.replicate(KEY, PUT)
        await trio.testing.wait_all_tasks_blocked()
        assert a.name not in c.ends
        await a.replicate(KEY, PUT)
        await trio.testing.wait_all_tasks_blocked()

        assert c.ends.count(a.name) == 1
        assert c.puts()[0] == 2


async def test_the_background_ends_with_its_node() -> None:
    async with cluster(3) as c:
        c.slow[c.names[0]] = trio.Event()
        await c.nodes[0].replicate(KEY, PUT)
        assert c.names[0] not in c.ends

    assert c.ends.count(c.names[0]) == 1


async def test_a_node_that_has_ended_sends_nothing() -> None:
    async with cluster(3) as c:
        first_to_end = max(c.nodes, key=lambda node: node.address)

    with pytest.raises(ConnectFailed, match="not running"):
        await first_to_end.replicate(KEY, PUT)
    assert c.puts() == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n": 0}, "n is 1 to 16 members, not 0"),
        ({"n": 2, "w": 3}, r"w is 1 to n \(2\) members, not 3"),
        ({"failover": 2}, "failover"),
        ({"deadline_s": "1"}, "deadline_s is a number of seconds"),
        ({"max_retries": -1}, "max_retries"),
        ({"no_such": 1}, "no option 'no_such'"),
    ],
)
async def test_arguments_that_cannot_be_used_are_refused(
    arguments: dict[str, object], text: str
) -> None:
    async with cluster(3) as c:
        with pytest.raises(ConfigError, match=text):
            await c.nodes[0].replicate(KEY, PUT, **arguments)  # type: ignore[arg-type]
        assert c.puts() == [0, 0, 0]


async def test_only_requests_of_handlers_are_sent_to_several() -> None:
    async with cluster(1) as c:
        with pytest.raises(ConfigError, match="request is a Request, not HttpRequest"):
            await c.nodes[0].replicate(KEY, HttpRequest("GET", "/"), w=1)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="key is text"):
            await c.nodes[0].replicate(b"key", PUT, w=1)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="resolve is a function"):
            await c.nodes[0].quorum_read(KEY, GET, r=1, resolve=None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="repair is a function"):
            await c.nodes[0].quorum_read(KEY, GET, r=1, repair=1)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="what resolve returns is a Reply, not bytes"):
            await c.nodes[0].quorum_read(KEY, GET, r=1, resolve=lambda _: b"")  # type: ignore[arg-type, return-value]


# quorum_read.


async def test_a_read_sees_an_acknowledged_write_although_a_member_is_missing_each_time() -> None:
    async with cluster(3) as c:
        c.slow[c.names[0]] = trio.Event()
        assert [*await c.nodes[0].replicate(KEY, PUT)] == c.names[1:]
        del c.slow[c.names[0]]
        c.slow[c.names[2]] = trio.Event()

        assert await c.nodes[2].quorum_read(KEY, GET, resolve=newest) == Reply(b"2", c.names[1])


async def test_by_default_the_reply_that_most_gave_is_returned() -> None:
    async with cluster(3) as c:
        c.values |= dict(zip(c.names, [b"1", b"2", b"2"], strict=True))

        assert (await c.nodes[0].quorum_read(KEY, GET, r=3)).body == b"2"


async def test_resolve_gets_the_replies_in_ring_order() -> None:
    async with cluster(3) as c:
        c.slow[c.names[0]] = trio.Event()
        seen: list[list[str]] = []

        def resolve(replies: Sequence[Reply]) -> Reply:
            seen.append([reply.owner for reply in replies])
            return Reply(b"merged", "")

        reply = await c.nodes[0].quorum_read(KEY, GET, resolve=resolve)

        assert (seen, reply) == ([c.names[1:]], Reply(b"merged", ""))


async def test_only_members_that_replied_something_else_are_repaired_once() -> None:
    async with cluster(4) as c:
        c.values |= dict(zip(c.names, [b"2", b"1", b"2"], strict=False))

        reply = await c.nodes[3].quorum_read(KEY, GET, resolve=newest, repair=with_put)
        await trio.sleep(5)

        assert reply.body == b"2"
        assert c.puts() == [0, 1, 0, 0]
        assert [c.values[name] for name in c.names[:3]] == [b"2"] * 3
        await c.nodes[3].quorum_read(KEY, GET, resolve=newest, repair=with_put)
        await trio.sleep(5)
        assert c.puts() == [0, 1, 0, 0]


async def test_a_late_reply_counts_for_the_repair_also_if_it_is_the_right_one() -> None:
    async with cluster(3) as c:
        c.values |= dict(zip(c.names, [b"1", b"1", b"2"], strict=True))
        slow = c.slow[c.names[2]] = trio.Event()

        assert (
            await c.nodes[0].quorum_read(KEY, GET, resolve=newest, repair=with_put)
        ).body == b"1"
        await trio.sleep(0.5)
        assert c.puts() == [0, 0, 0]
        slow.set()
        await trio.testing.wait_all_tasks_blocked()

        assert c.puts() == [1, 1, 0]
        assert [c.values[name] for name in c.names] == [b"2"] * 3


async def test_a_repair_does_not_wait_for_a_member_that_hangs() -> None:
    async with cluster(3) as c:
        c.values |= dict(zip(c.names, [b"2", b"1", b"1"], strict=True))
        c.network.hang(c.nodes[2].address)

        await c.nodes[0].quorum_read(KEY, GET, resolve=newest, repair=with_put)
        await trio.sleep(replication.LATE_S + 0.1)

        assert c.puts() == [0, 1, 0]
        c.network.resume(c.nodes[2].address)


async def test_without_a_repair_the_others_are_not_waited_for() -> None:
    async with cluster(3) as c:
        c.slow[c.names[0]] = trio.Event()

        await c.nodes[0].quorum_read(KEY, GET)
        await trio.testing.wait_all_tasks_blocked()

        assert c.nodes[0].proxying.counts.in_flight == 0


async def test_repair_may_decline() -> None:
    async with cluster(3) as c:
        c.values[c.names[0]] = b"2"

        await c.nodes[0].quorum_read(KEY, GET, repair=lambda _reply: None)
        await trio.sleep(5)

        assert c.puts() == [0, 0, 0]


@pytest.mark.parametrize("returned", [b"no request", None], ids=["returns", "raises"])
async def test_a_repair_with_a_bug_is_logged_and_the_node_goes_on(
    returned: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    def repair(_reply: Reply) -> Request:
        if returned is None:
            raise SystemExit
        return returned  # type: ignore[return-value]

    async with cluster(3) as c:
        c.values[c.names[0]] = b"2"

        await c.nodes[0].quorum_read(KEY, GET, repair=repair)
        await trio.sleep(5)

        (event,) = events_in(caplog, "repair-failed")
        assert event.fields["key"] == KEY
        assert [*await c.nodes[0].replicate(KEY, PUT, w=3)] == c.names


async def test_what_resolve_raises_is_for_the_caller() -> None:
    def resolve(_replies: Sequence[Reply]) -> Reply:
        raise LookupError("which one?")

    async with cluster(3) as c:
        with pytest.raises(LookupError, match="which one"):
            await c.nodes[0].quorum_read(KEY, GET, resolve=resolve)


async def test_a_read_of_too_few_members_is_an_error() -> None:
    async with cluster(2) as c:
        with pytest.raises(
            NotEnoughReplies, match=r"r is 3, more than the members in the ring \(2\)"
        ):
            await c.nodes[0].quorum_read(KEY, GET, r=3)
