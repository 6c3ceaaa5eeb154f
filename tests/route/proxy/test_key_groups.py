"""Requests of many keys: few messages, results in order, errors of their own; and failover."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import Config, GossipConfig, ProxyConfig
from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    CallTimeout,
    ConfigError,
    ConnectRefused,
    DeadlineExceeded,
    HandlerFailed,
    KeysDiverged,
    NoOwner,
    Refused,
    RingpopError,
)
from ringpop_py.base.values.declared import encode
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.daemon import open_ringpop
from ringpop_py.member.swim.member import Status
from ringpop_py.net.wire.calls import Call
from ringpop_py.route.proxy import key_groups
from ringpop_py.route.proxy.head import MANY_ENDPOINT, Head
from ringpop_py.route.proxy.key_groups import BYTES_MAX, KEYS_MAX, checked_many, messages_of
from ringpop_py.route.proxy.request import AppCall, HttpRequest, ManyCall, Request
from ringpop_py.testing import MemoryNetwork
from tests.e2e.local_cluster import free_addresses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ringpop_py.node.ringpop import Ringpop

KEYS = [f"key {number}" for number in range(3000)]
BODIES = [b"%d" % number for number in range(3000)]


@asynccontextmanager
async def cluster(
    count: int,
    **proxy: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[list[Ringpop], MemoryNetwork]]:
    network = MemoryNetwork()
    hosts = tuple(Address(f"10.0.0.{number}", 3000) for number in range(1, count + 1))
    async with AsyncExitStack() as stack:
        nodes = []
        for host in hosts:
            config = Config(
                listen=host,
                hosts=hosts,
                proxy=ProxyConfig(**proxy),
                gossip=GossipConfig(suspect_s=1.0),
            )
            nodes.append(await stack.enter_async_context(open_ringpop(config, network=network)))
        for node in nodes:
            await node.wait_until(lambda ringpop: len(ringpop.ring) == count)
        yield nodes, network


def expected(node: Ringpop, keys: Sequence[str], bodies: Sequence[bytes]) -> list[bytes]:
    return [
        f"{key}={body.decode()} at {node.lookup(key)}".encode()
        for key, body in zip(keys, bodies, strict=True)
    ]


def serve_many(node: Ringpop) -> list[ManyCall]:
    calls = list[ManyCall]()

    @node.many_handler("/tell")
    async def tell(call: ManyCall) -> list[bytes]:
        await trio.lowlevel.checkpoint()
        calls.append(call)
        pairs = zip(call.keys, call.bodies, strict=True)
        return [f"{key}={body.decode()} at {node.name}".encode() for key, body in pairs]

    return calls


def serve_each(node: Ringpop) -> None:
    @node.handler("/tell")
    def tell(call: AppCall) -> bytes:
        (key,) = call.keys
        return f"{key}={call.body.decode()} at {node.name}".encode()

    @node.handler("/slow")
    async def slow(call: AppCall) -> bytes:
        await trio.sleep(1)
        return tell(call)


async def test_the_results_stand_in_order_and_few_messages_were_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(3) as (nodes, _):
        calls = {node.name: serve_many(node) for node in nodes}
        keys, bodies = [*KEYS, *KEYS[:7]], [*BODIES, *BODIES[:7]]  # some stand twice
        headers = (("tenant", "é"),)

        results = await nodes[0].proxy_many("/tell", keys, bodies, headers=headers, deadline_s=9)

        assert results == expected(nodes[0], keys, bodies)
        for node in nodes:
            served = sum(len(call.keys) for call in calls[node.name])
            assert len(calls[node.name]) == -(-served // KEYS_MAX)
            assert {call.headers for call in calls[node.name]} == {headers}
        assert await nodes[0].proxy_many("/tell", [], []) == []
        # A request of one key is answered by the same handler.
        reply = await nodes[0].proxy(KEYS[0], Request("/tell", b"0"))
        assert [reply.body] == expected(nodes[0], KEYS[:1], BODIES[:1])


@pytest.mark.parametrize("endpoint", ["/tell", "/slow"])
async def test_a_handler_of_single_requests_is_called_for_each(
    autojump_clock: trio.testing.MockClock, endpoint: str
) -> None:
    del autojump_clock
    async with cluster(2) as (nodes, _):
        for node in nodes:
            serve_each(node)

        began_at = trio.current_time()
        results = await nodes[0].proxy_many(endpoint, KEYS, BODIES)

        assert results == expected(nodes[0], KEYS, BODIES)
        assert trio.current_time() - began_at < 3  # all at the same time


async def test_each_request_has_an_error_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    async with cluster(2) as (nodes, _):
        for node in nodes:

            @node.handler("/fussy")
            def fussy(call: AppCall) -> bytes:
                match call.body:
                    case b"1":
                        raise ApplicationError("odd", "one is odd")
                    case b"2":
                        raise ZeroDivisionError("by two")
                    case b"3":
                        raise BadRequest("no threes")
                    case _:
                        pass
                return call.body

        bodies = [b"%d" % (number % 5) for number in range(100)]
        results = await nodes[0].proxy_many("/fussy", KEYS[:100], bodies)

        for body, result in zip(bodies, results, strict=True):
            if body in (b"0", b"4"):
                assert result == body
            else:
                kind = {b"1": ApplicationError, b"2": HandlerFailed}.get(body)
                assert isinstance(result, kind or (Refused, BadRequest))
                assert any(text in str(result) for text in ("one is odd", "by two", "no threes"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([b""], "it returned 1 bodies for"),
        ("text", "it returned no list of bytes"),
        (None, "it returned no list of bytes"),
    ],
)
async def test_an_answer_that_does_not_fit_fails_its_message(
    autojump_clock: trio.testing.MockClock, answer: object, message: str
) -> None:
    del autojump_clock
    async with cluster(2) as (nodes, _):
        for node in nodes:
            node.many_handler("/bad")(lambda _call: answer)  # type: ignore[type-var]

        results = await nodes[0].proxy_many("/bad", KEYS[:50], BODIES[:50])

        assert all(isinstance(each, HandlerFailed) and message in str(each) for each in results)


async def test_each_key_gets_the_error_of_a_missing_handler_or_of_one_that_raises(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(2) as (nodes, _):
        for node in nodes:

            @node.many_handler("/full")
            def full(_call: ManyCall) -> list[bytes]:
                raise ApplicationError("full", "come back later")

        nothing = await nodes[0].proxy_many("/nothing", KEYS[:50], BODIES[:50])
        later = await nodes[0].proxy_many("/full", KEYS[:50], BODIES[:50])

        assert {type(each) for each in nothing} == {Refused}  # whoever is the owner
        assert {str(each) for each in later} == {"full: come back later"}


async def test_without_an_owner_each_request_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(1) as ((node,), _):
        node.ring = node.ring.with_changes([], [node.name])
        [result] = await node.proxy_many("/tell", KEYS[:1], BODIES[:1])
        assert isinstance(result, NoOwner)


def test_messages_hold_so_many_keys_and_bytes_and_leave_none_out() -> None:
    big = [b"x" * (BYTES_MAX // 3)] * 7 + [b"y" * (2 * BYTES_MAX)] * 2 + [b""] * 2000
    keys = [str(number) for number in range(len(big))]
    places = range(0, len(big), 1)

    messages = [*messages_of(keys, big, places)]

    assert [place for message in messages for place in message.places] == [*places]
    for message in messages:
        assert [*message.keys] == [keys[place] for place in message.places]
        assert [*message.bodies] == [big[place] for place in message.places]
        assert len(message.keys) <= KEYS_MAX
        assert len(message.keys) == 1 or sum(map(len, message.bodies)) <= BYTES_MAX
    assert len(messages) < 12


@pytest.mark.parametrize(
    ("keys", "bodies", "message"),
    [
        (["a"], [], "1 keys have 0 bodies"),
        ("a", [b""], "keys is a list of texts"),
        ([1], [b""], "key is text"),
        (["a"], b"a", "bodies is a list of bytes"),
        (["a"], ["a"], "a body is bytes"),
    ],
)
def test_malformed_lists_of_keys_and_bodies_are_refused(
    keys: Any,  # noqa: ANN401
    bodies: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_many(keys, bodies)


async def test_a_member_that_does_not_know_it_refuses_and_runs_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(2) as ((a, b), _):
        calls = list[AppCall]()
        b.handler("/tell")(calls.append)
        del b.channel.handlers.served["ringpop", MANY_ENDPOINT]  # as one of before

        keys = [key for key in KEYS[:50] if a.lookup(key) == b.name]
        results = await a.proxy_many("/tell", keys, BODIES[: len(keys)], idempotent=True)

        assert not calls
        assert {type(each) for each in results} == {Refused}
        assert {each.took_effect for each in results if isinstance(each, RingpopError)} == {"no"}


async def test_answers_that_are_too_large_together_are_told_and_the_others_stay(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(2) as (nodes, _):
        for node in nodes:
            node.many_handler("/large")(lambda call: [b"x" * 20_000] * len(call.keys))

            @node.handler("/fails")
            def fails(_call: AppCall) -> bytes:
                raise ApplicationError("large", "é" * 30_000)

        for endpoint in ("/large", "/fails"):
            results = await nodes[0].proxy_many(endpoint, KEYS[:2000], BODIES[:2000])
            large = [each for each in results if "ask for fewer at a time (keys_max)" in str(each)]
            assert 0 < len(large) < 1000
            assert all(isinstance(each, HandlerFailed) for each in large)
            assert all(nodes[0].lookup(key) != nodes[0].name for key in of(large, results))
        results = await nodes[0].proxy_many("/large", KEYS[:2000], BODIES[:2000], keys_max=100)
        assert {*map(len, results)} == {20_000}  # type: ignore[arg-type]


def of(some: Sequence[object], results: Sequence[object]) -> list[str]:
    """The keys of *some* of the results."""
    found = {id(each) for each in some}
    return [key for key, each in zip(KEYS, results, strict=False) if id(each) in found]


async def test_the_time_counts_for_own_keys_too(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    async with cluster(2) as (nodes, _):
        for node in nodes:
            serve_each(node)
        began_at = trio.current_time()
        results = await nodes[0].proxy_many("/slow", KEYS[:50], BODIES[:50], deadline_s=0.5)
        assert trio.current_time() - began_at == pytest.approx(0.5, abs=0.1)
        assert {type(each) for each in results} == {DeadlineExceeded}


@pytest.mark.parametrize("what", ["key", "header", "endpoint"])
async def test_text_that_is_not_unicode_is_refused_before_anything_is_sent(what: str) -> None:
    half = "\ud800"
    keys = [*KEYS[:2000], half if what == "key" else "k"]
    headers = ((half, ""),) if what == "header" else ()
    endpoint = f"/{half}" if what == "endpoint" else "/tell"
    async with two() as nodes:
        calls = [serve_many(node) for node in nodes]
        with Client(nodes[0].address) as client:
            with pytest.raises(ConfigError, match="not Unicode"):
                client.proxy_many(endpoint, keys, BODIES[:2001], headers=headers)
            with pytest.raises(ConfigError, match="not Unicode"):
                client.handle_or_proxy_all(keys, Request(endpoint, b"", headers))
        async with AsyncClient(nodes[0].address) as other:
            with pytest.raises(ConfigError, match="not Unicode"):
                await other.proxy_many(endpoint, keys, BODIES[:2001], headers=headers)
        with pytest.raises(ConfigError, match="not Unicode"):
            await nodes[0].proxy_many(endpoint, keys, BODIES[:2001], headers=headers)
        assert calls == [[], []]


async def test_a_slow_owner_costs_a_client_its_own_answers_only() -> None:
    async with two() as nodes:
        for node in nodes:

            @node.handler("/tell")
            async def tell(_call: AppCall, node: Ringpop = node) -> bytes:
                if node is nodes[1]:
                    await trio.sleep_forever()
                return node.name.encode()

        async with AsyncClient(nodes[0].address) as client:
            results = await client.proxy_many("/tell", KEYS[:50], BODIES[:50], deadline_s=1)
            replies = await client.handle_or_proxy_all(KEYS[:50], Request("/tell"), deadline_s=1)
        for key, result in zip(KEYS, results, strict=False):
            is_slow = nodes[0].lookup(key) == nodes[1].name
            assert isinstance(result, DeadlineExceeded if is_slow else bytes), result
        assert {reply.owner: type(reply.error) for reply in replies} == {
            nodes[0].name: type(None),
            nodes[1].name: DeadlineExceeded,
        }


async def test_too_many_keys_in_one_message_are_refused() -> None:
    async with two() as nodes:
        keys = tuple(map(str, range(KEYS_MAX + 1)))
        for wrong in (keys, ()):
            head = Head(wrong, route=True, endpoint="/tell").encode()
            call = Call("ringpop", MANY_ENDPOINT, head, encode([b""] * len(wrong)), ttl_s=5)
            async with AsyncClient(nodes[0].address) as client:
                with pytest.raises(BadRequest, match="a message has requests of 1 to 1024 keys"):
                    await client.call(call)


async def test_a_call_without_time_is_not_sent() -> None:
    async with two() as nodes:
        calls = [serve_many(node) for node in nodes]
        async with AsyncClient(nodes[0].address) as client:
            for _ in range(2):  # without a connection, and with one
                with pytest.raises(CallTimeout) as caught:
                    await client.proxy("k", Request("/tell"), deadline_s=0)
                assert caught.value.took_effect == "no"
                await client.proxy_many("/tell", ["k"], [b""])
        assert sum(map(len, calls)) == 2


# Clients.


@asynccontextmanager
async def two() -> AsyncIterator[list[Ringpop]]:
    """Two nodes at real addresses."""
    listen = Address("127.0.0.1", 0)
    async with (
        open_ringpop(Config(listen=listen)) as first,
        open_ringpop(Config(listen=listen, hosts=(first.address,))) as second,
    ):
        await first.wait_until(lambda node: len(node.ring.owners) == 2)
        await second.wait_until(lambda node: len(node.ring.owners) == 2)
        yield [first, second]


@pytest.mark.parametrize("is_async", [False, True])
async def test_clients_send_many_and_ask_all_owners(*, is_async: bool) -> None:
    async with two() as nodes:
        calls = [serve_many(node) for node in nodes]

        async def ask(name: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
            if is_async:
                async with AsyncClient(nodes[0].address) as caller:
                    return await getattr(caller, name)(*arguments, **options)
            with Client(nodes[0].address) as client:
                act = partial(getattr(client, name), *arguments, **options)
                return await trio.to_thread.run_sync(act)

        results = await ask("proxy_many", "/tell", KEYS, BODIES, headers=(("a", "b"),))
        assert results == expected(nodes[0], KEYS, BODIES)
        assert len(calls[0]) + len(calls[1]) <= 6  # each of three messages has two owners
        assert {call.headers for part in calls for call in part} == {(("a", "b"),)}

        nothing = await ask("proxy_many", "/nothing", KEYS[:9], BODIES[:9])
        assert all(isinstance(each, Refused) for each in nothing)

        for node in nodes:

            @node.handler("/who")
            def who(call: AppCall, node: Ringpop = node) -> bytes:
                return f"{node.name} {call.body.decode()} {len(call.keys)}".encode()

        replies = await ask("handle_or_proxy_all", [*KEYS[:50], KEYS[0]], Request("/who", b"x"))
        assert sorted(reply.owner for reply in replies) == sorted(node.name for node in nodes)
        for reply in replies:
            assert {nodes[0].lookup(key) for key in reply.keys} == {reply.owner}
            assert reply.reply.body == f"{reply.owner} x {len(reply.keys)}".encode()
        assert sorted(key for reply in replies for key in reply.keys) == sorted(KEYS[:50])

        # The asker's own application answers for its host; nobody has one at the other.
        here, there = sorted(
            await ask("handle_or_proxy_all", KEYS[:50], HttpRequest("GET", "/"), max_retries=0),
            key=lambda reply: reply.owner != nodes[0].name,
        )
        assert (here.owner, here.reply, here.error) == (nodes[0].name, None, None)
        assert isinstance(there.error, Refused)
        assert "no HTTP application" in str(there.error)


async def test_the_options_of_a_client_reach_its_daemon() -> None:
    async with two() as nodes:
        seen = list[dict[str, Any]]()
        for node in nodes:

            @node.handler("/who")
            def who(call: AppCall) -> bytes:
                return call.body

        real = nodes[0].proxying.proxy

        async def spied(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            seen.append(options)
            return await real(*arguments, **options)

        nodes[0].proxying.proxy = spied  # type: ignore[method-assign]
        async with AsyncClient(nodes[0].address, timeout_s=5) as client:
            await client.proxy("k", Request("/who"))
            await client.proxy(
                "k",
                Request("/who"),
                max_retries=2,
                retry_schedule=[1, 2],
                idempotent=True,
                failover=2,
                deadline_s=4,
            )
            for wrong, message in (
                ({"max_retries": -1}, "max_retries"),
                ({"retry_schedule": "1"}, "retry_schedule"),
                ({"failover": 2}, "failover needs idempotent"),
                ({"failover": 0, "idempotent": True}, "failover is 1 to"),
                ({"retries": 1}, "no option 'retries'"),
                ({"deadline_s": "1"}, "deadline_s"),
            ):
                with pytest.raises(ConfigError, match=message):
                    await client.proxy("k", Request("/who"), **wrong)
            with pytest.raises(ConfigError, match="failover is for requests of one key"):
                await client.proxy(["k", "l"], Request("/who"), idempotent=True, failover=2)
            with pytest.raises(RingpopError, match="failover is 1 to max_retries"):
                # Only the daemon knows how often it tries.
                await client.proxy("k", Request("/who"), idempotent=True, failover=9)

    assert [each.keys() - {"owners"} for each in seen[:2]] == [
        {"idempotent", "deadline_s"},
        {"idempotent", "deadline_s", "max_retries", "retry_schedule", "failover"},
    ]
    assert seen[1]["retry_schedule"] == (1.0, 2.0)
    assert seen[1]["deadline_s"] == pytest.approx(4, abs=0.5)


def test_a_daemon_that_is_away_is_the_result_of_each_request() -> None:
    (nobody,) = free_addresses(1)
    with Client(nobody) as client:
        results = client.proxy_many("/tell", KEYS[:9], BODIES[:9])
    assert [type(each) for each in results] == [ConnectRefused] * 9


# Failover.


async def test_a_call_to_a_member_in_doubt_is_given_up_if_its_request_may_run_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(4) as (nodes, network):
        for node in nodes:
            serve_each(node)
        asker = nodes[0]
        key = next(key for key in KEYS if asker.name not in asker.lookup_n(key, 2))
        owner, second = asker.lookup_n(key, 2)
        address = asker.address_of(owner)
        assert address is not None
        network.hang(address)
        ends = dict[int, tuple[str, float]]()
        began_at = trio.current_time()

        async def ask(failover: int) -> None:
            reply = await asker.proxy(key, Request("/tell"), idempotent=True, failover=failover)
            ends[failover] = reply.owner, trio.current_time() - began_at

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1)
            nursery.start_soon(ask, 2)
            await trio.sleep(0.1)
            asker.proxying.doubt(address, "it is suspect", is_owner=True)
            await trio.sleep(0.1)
            ((failover, (answered_by, after_s)),) = ends.items()
            assert (failover, answered_by) == (2, second)
            assert after_s == pytest.approx(0.1, abs=0.05)
            assert asker.proxying.counts.retries == 1
            asker.proxying.doubt(address, "it is faulty", is_owner=False)
            await trio.sleep(0.1)
            assert asker.proxying.counts.retries == 2
            nursery.cancel_scope.cancel()
        network.resume(address)


async def test_members_that_are_suspect_and_faulty_are_in_doubt(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    async with cluster(3) as (nodes, network):
        doubted = list[tuple[Address, bool]]()

        def doubt(address: Address, _why: str, *, is_owner: bool) -> None:
            doubted.append((address, is_owner))

        monkeypatch.setattr(nodes[0].proxying, "doubt", doubt)
        network.hang(nodes[1].address)
        name = nodes[1].name
        await nodes[0].wait_until(lambda node: node.status_of(name) is Status.FAULTY)
        assert doubted == [(nodes[1].address, True), (nodes[1].address, False)]
        network.resume(nodes[1].address)


async def test_failover_is_for_one_key_of_the_ring(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    async with cluster(1) as ((node,), _):
        keyspace = await node.open_keyspace("k", mode="memory", partitions=4)
        once_more: dict[str, Any] = {"idempotent": True, "failover": 2}
        for ask in (
            lambda: node.handle_or_proxy(["a", "b"], Request("/x"), **once_more),
            lambda: keyspace.handle_or_proxy("a", Request("/x"), **once_more),
            lambda: node.proxy_many("/x", ["a"], [b""], **once_more),
            lambda: node.handle_or_proxy_all(["a"], Request("/x"), **once_more),
        ):
            with pytest.raises(ConfigError, match="failover is for"):
                await ask()


# All owners of a keyspace.


async def test_each_owner_of_a_keyspace_is_asked_for_its_keys(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with cluster(3) as (nodes, _):
        for node in nodes:
            serve_each(node)

            @node.handler("/who")
            def who(call: AppCall) -> bytes:
                return b"%d" % len(call.keys)

        keyspaces = [await node.open_keyspace("k", mode="memory", partitions=16) for node in nodes]
        while True:
            replies = await keyspaces[0].handle_or_proxy_all(KEYS[:200], Request("/who"))
            if len(replies) == 3:
                break
            await trio.sleep(0.1)

        assert {reply.owner for reply in replies} == {node.name for node in nodes}
        for reply in replies:
            assert reply.error is None
            is_here = reply.owner == nodes[0].name
            assert (reply.reply is None) == is_here
            if reply.reply is not None:
                assert reply.reply.body == b"%d" % len(reply.keys)
        assert sorted(key for reply in replies for key in reply.keys) == sorted(KEYS[:200])


class SplitOwners:
    """Keys whose owner depends on their last digit."""

    owned_by = 1

    def owners_of(self, keys: Sequence[str]) -> list[str]:
        return [{"0": "", "1": "a"}.get(key[-1], "b") for key in keys]

    def why_nobody(self, key: str) -> NoOwner:
        return NoOwner(f"nobody has {key}")


@pytest.mark.parametrize(
    ("keys", "owner", "why"),
    [
        (["1", "11"], "a", ""),
        (["1", "2"], "", "its keys now have 2 owners: a, b"),
        (["1", "10"], "", "nobody has 10"),
    ],
)
def test_keys_go_together_where_they_have_one_owner(keys: list[str], owner: str, why: str) -> None:
    together = key_groups.Together(SplitOwners(), keys)  # type: ignore[arg-type]
    assert together.destination(keys[0]) == owner
    if why:
        error = together.why_nobody(keys[0])
        assert str(error) == why
        assert isinstance(error, KeysDiverged if "now" in why else NoOwner)


def test_known_owners_of_keys_count_while_the_same_ring_decides() -> None:
    owners = SplitOwners()
    together = key_groups.Together(owners, ["1"], (owners.owned_by, "elsewhere"))  # type: ignore[arg-type]
    assert together.destination("1") == "elsewhere"
    owners.owned_by = 2
    assert together.destination("1") == "a"
