"""A cluster in one process: handle_or_proxy from end to end, over the network in memory."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import pytest
import trio
import trio.testing

from ringpop_py import (
    Address,
    ApplicationError,
    Config,
    HttpRequest,
    ProxyConfig,
    Request,
    open_local_keyspaces,
    open_ringpop,
)
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.errors import (
    BadRequest,
    CallTimeout,
    ConfigError,
    DeadlineExceeded,
    HandlerFailed,
    JoinRefused,
    KeysDiverged,
    MaxRetriesExceeded,
    MayHaveRun,
    NameLost,
    NoOwner,
    PeerBusy,
    PeerDeclined,
    Refused,
    RingpopError,
    TooManyInFlight,
)
from ringpop_py.base.values.declared import encode, replace
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.member.swim.effects import (
    AnswerPeer,
    Healed,
    NameTaken,
    StatusChanged,
    StrangerRefused,
)
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Asked, MemberChange, Ping
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.route.proxy.failures import ERROR_CHARACTERS_MAX
from ringpop_py.route.proxy.head import RELAY_ENDPOINT, Head, RelayHead
from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.keyspaces.registry import CATALOG_WAIT_S
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall, RequestOptions

pytestmark = pytest.mark.virtual_time

HEALTH = Call("ringpop", "/health", b"", b"", ttl_s=5)
NO_RETRIES = ProxyConfig(max_retries=0, retry_schedule_s=())


def address(number: int) -> Address:
    return Address(f"10.0.0.{number}", 3000)


@asynccontextmanager
async def cluster(
    count: int, *, proxy: ProxyConfig | None = None, ring_points: int = 100
) -> AsyncIterator[tuple[list[Ringpop], MemoryNetwork]]:
    """*count* nodes that know each other."""
    network = MemoryNetwork()
    hosts = tuple(address(number) for number in range(1, count + 1))
    async with AsyncExitStack() as stack:
        nodes = []
        for host in hosts:
            config = Config(
                listen=host,
                hosts=hosts,
                proxy=proxy or ProxyConfig(),
                ring_points=ring_points,
                gossip=GossipConfig(suspect_s=1.0),
            )
            nodes.append(await stack.enter_async_context(open_ringpop(config, network=network)))
        for node in nodes:
            await node.wait_until(lambda ringpop: len(ringpop.ring) == count)
        yield nodes, network


def key_of(owner: Ringpop, *, but: Sequence[str] = ()) -> str:
    """A key that *owner* owns."""
    keys = (f"key{number}" for number in range(10_000))
    return next(key for key in keys if owner.lookup(key) == owner.name and key not in but)


def serve_who(nodes: Sequence[Ringpop]) -> list[AppCall]:
    """Each node answers ``/who`` with its name; the calls that came."""
    calls = []

    def serve(node: Ringpop) -> None:
        @node.handler("/who")
        async def who(call: AppCall) -> bytes:
            await trio.lowlevel.checkpoint()
            calls.append(call)
            return node.name.encode() + b" " + call.body

    for node in nodes:
        serve(node)
    return calls


async def test_the_owner_handles_it_here() -> None:
    async with cluster(2) as ((a, _b), _):
        assert await a.handle_or_proxy(key_of(a), Request("/who")) is None


async def test_another_gets_the_owners_answer() -> None:
    async with cluster(2) as ((a, b), _):
        calls = serve_who([a, b])

        reply = await a.handle_or_proxy(key_of(b), Request("/who", b"hello"))

        assert reply is not None
        assert reply.body == b.name.encode() + b" hello"
        assert reply.owner == b.name
        assert calls[0].sender == a.name
        assert calls[0].keys == (key_of(b),)


async def test_proxy_calls_the_own_handler_too() -> None:
    async with cluster(2) as ((a, b), _):
        serve_who([a, b])

        replies = [await a.proxy(key_of(owner), Request("/who")) for owner in (a, b)]

        assert [reply.owner for reply in replies] == [a.name, b.name]


async def test_all_keys_are_grouped_by_owner() -> None:
    async with cluster(3) as (nodes, _):
        serve_who(nodes)
        keys = [f"k{number}" for number in range(30)]

        replies = await nodes[0].handle_or_proxy_all(keys, Request("/who"))

        assert sorted(key for reply in replies for key in reply.keys) == sorted(keys)
        assert {reply.owner for reply in replies} == {node.name for node in nodes}
        for reply in replies:
            assert all(nodes[1].lookup(key) == reply.owner for key in reply.keys)
            assert (reply.reply is None) == (reply.owner == nodes[0].name)
            assert reply.error is None


async def test_one_owners_failure_leaves_the_others_replies() -> None:
    async with cluster(3, proxy=NO_RETRIES) as ((a, b, c), network):
        serve_who([a, b, c])
        network.cut(a.address, b.address)

        replies = await a.handle_or_proxy_all([key_of(b), key_of(c)], Request("/who"))

        found = {reply.owner: reply for reply in replies}
        assert isinstance(found[b.name].error, MaxRetriesExceeded | MayHaveRun)
        assert found[c.name].reply is not None


async def test_an_application_error_comes_at_once_and_as_it_is() -> None:
    async with cluster(2) as ((a, b), _):
        attempts = []

        @b.handler("/fail")
        def fail(call: AppCall) -> bytes:
            attempts.append(call)
            raise ApplicationError("sold-out", "no more")

        started = trio.current_time()
        with pytest.raises(ApplicationError) as caught:
            await a.handle_or_proxy(key_of(b), Request("/fail"), idempotent=True)

        assert (caught.value.kind, caught.value.message) == ("sold-out", "no more")
        assert len(attempts) == 1
        assert trio.current_time() - started < 0.5


async def test_an_unreachable_owner_is_tried_by_the_schedule() -> None:
    async with cluster(2, proxy=ProxyConfig(max_retries=2, retry_schedule_s=(0, 0.25))) as (
        (a, b),
        network,
    ):
        key = key_of(b)
        network.cut(a.address, b.address)
        a.node.stop_gossip(0)
        started = trio.current_time()

        with pytest.raises(MaxRetriesExceeded) as caught:
            await a.handle_or_proxy(key, Request("/who"))

        assert len(caught.value.history) == 3
        assert trio.current_time() - started == pytest.approx(0.25, abs=0.05)


async def test_a_request_is_rerouted_when_its_key_changes_owner_between_retries() -> None:
    async with cluster(3) as ((a, b, c), network):
        serve_who([a, b, c])
        keys = (f"key{number}" for number in range(10_000))
        after_b = a.ring.with_changes([], [b.name])
        key = next(k for k in keys if a.lookup(k) == b.name and after_b.lookup(k) == c.name)
        network.cut(a.address, b.address)
        network.cut(c.address, b.address)

        reply = await a.handle_or_proxy(
            key, Request("/who"), max_retries=20, retry_schedule=[0.5], idempotent=True
        )

        assert reply is not None
        assert reply.owner == c.name
        assert a.proxying.counts.reroutes == 1


async def test_a_key_that_becomes_ours_between_retries_is_handled_here() -> None:
    async with cluster(2) as ((a, b), network):
        key = key_of(b)
        network.cut(a.address, b.address)

        reply = await a.handle_or_proxy(key, Request("/who"), max_retries=20, retry_schedule=[0.5])

        assert reply is None


async def test_keys_of_several_owners_are_refused_as_one_request() -> None:
    async with cluster(2) as ((a, b), _):
        with pytest.raises(KeysDiverged):
            await a.handle_or_proxy([key_of(a), key_of(b)], Request("/who"))


@pytest.mark.parametrize(
    "request_", [Request("/who"), HttpRequest("GET", "/")], ids=["call", "http"]
)
async def test_a_receiver_refuses_a_key_that_it_does_not_own(
    request_: Request | HttpRequest,
) -> None:
    async with cluster(2, proxy=NO_RETRIES) as ((a, b), _):
        calls = serve_who([a, b])
        key = key_of(b)
        # A sender with an old view: it believes that b owns what b does not.
        b.ring = b.ring.with_changes([], [b.name])

        with pytest.raises(Refused, match="invalid-key"):
            await a.handle_or_proxy(key, request_)

        assert calls == []
        assert b.proxying.counts.refused_keys == 1


async def test_a_receiver_refuses_several_keys_of_which_it_does_not_own_the_last() -> None:
    async with cluster(3, proxy=NO_RETRIES) as ((a, b, c), _):
        calls = serve_who([a, b, c])
        own, lost = key_of(b), key_of(c)
        a.ring = a.ring.with_changes([], [a.name, c.name])  # b owned all keys, once

        with pytest.raises(Refused, match=f"{b.name} has {c.name} as the key's owner"):
            await a.handle_or_proxy([own, lost], Request("/who"))

        assert calls == []


@pytest.mark.parametrize("consistency", ["checksum", "none"])
async def test_consistency_by_ring_checksum_and_none(consistency: str) -> None:
    proxy = ProxyConfig(max_retries=0, consistency=consistency)  # type: ignore[arg-type]
    async with cluster(3, proxy=proxy) as ((a, b, c), _):
        serve_who([a, b, c])
        key = key_of(b)
        b.ring = b.ring.with_changes([], [c.name])  # the owner of the key is the same

        if consistency == "checksum":
            with pytest.raises(Refused, match="invalid-checksum"):
                await a.handle_or_proxy(key, Request("/who"))
        else:
            assert await a.handle_or_proxy(key, Request("/who")) is not None


async def test_a_refusal_brings_the_views_together_before_the_first_retry() -> None:
    async with cluster(3) as ((a, b, c), _):
        serve_who([a, b, c])
        key = key_of(b)
        for node in (a, b, c):
            node.node.stop_gossip(0)  # so that nothing but the refusal can bring the news
        b.leave()
        await b.wait_until(lambda ringpop: b.name not in ringpop.ring)
        started = trio.current_time()

        reply = await a.handle_or_proxy(key, Request("/who"), max_retries=2, retry_schedule=[0])

        assert reply is None or reply.owner == c.name
        assert trio.current_time() - started < 0.3


async def test_a_request_that_may_have_run_is_not_repeated() -> None:
    async with cluster(2) as ((a, b), network):
        runs = []

        @b.handler("/once")
        async def once(call: AppCall) -> bytes:
            runs.append(call)
            network.cut(a.address, b.address)
            await trio.sleep(1)
            return b""

        with pytest.raises(MayHaveRun, match="ConnectionLost"):
            await a.handle_or_proxy(key_of(b), Request("/once"))

        assert len(runs) == 1


@pytest.mark.parametrize(
    "options",
    [{"idempotent": True}, {"idempotent": True, "retry_schedule": [0.2]}],
    ids=["as configured", "a schedule of its own"],
)
async def test_a_request_that_may_run_again_is_repeated(options: RequestOptions) -> None:
    async with cluster(2) as ((a, b), network):
        runs = []
        cut = trio.Event()

        @b.handler("/again")
        async def again(call: AppCall) -> bytes:
            runs.append(call)
            if len(runs) == 1:
                network.cut(a.address, b.address)
                cut.set()
                await trio.sleep(1)
            return b"done"

        async def heal_soon() -> None:
            await cut.wait()
            await trio.sleep(0.1)
            network.heal()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal_soon)
            reply = await a.handle_or_proxy(key_of(b), Request("/again"), **options)

        assert reply is not None
        assert reply.body == b"done"
        assert len(runs) == 2


@pytest.mark.parametrize(
    "options",
    [{"max_retries": -1}, {"retry_schedule": []}, {"retry_schedule": [math.nan]}],
    ids=str,
)
async def test_options_that_cannot_be_followed_are_refused_whoever_owns_the_key(
    options: RequestOptions,
) -> None:
    async with cluster(2) as ((a, b), _):
        for key in (key_of(a), key_of(b)):
            with pytest.raises(ConfigError):
                await a.handle_or_proxy(key, Request("/who"), **options)


async def test_the_deadline_holds_for_the_whole() -> None:
    async with cluster(2) as ((a, b), _):

        @b.handler("/slow")
        async def slow(_call: AppCall) -> bytes:
            await trio.sleep(60)
            return b""

        started = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await a.handle_or_proxy(key_of(b), Request("/slow"), deadline_s=0.5, idempotent=True)

        assert trio.current_time() - started < 1.0


async def test_a_bug_in_a_handler_is_not_repeated_and_ends_nothing() -> None:
    async with cluster(2) as ((a, b), _):
        serve_who([b])

        @b.handler("/bug")
        def bug(_call: AppCall) -> bytes:
            raise ZeroDivisionError

        with pytest.raises(HandlerFailed, match=f"ZeroDivisionError: .*/bug at {b.name}"):
            await a.handle_or_proxy(key_of(b), Request("/bug"))

        assert await a.handle_or_proxy(key_of(b), Request("/who")) is not None


@pytest.mark.parametrize("kind", [PeerBusy, PeerDeclined, TooManyInFlight, NoOwner])
async def test_an_error_that_a_handler_got_from_elsewhere_does_not_have_it_run_again(
    kind: type[RingpopError],
) -> None:
    async with cluster(2) as (nodes, _):
        one, two = nodes
        runs: list[str] = []

        @two.handler("/inline")
        def inline(call: AppCall) -> bytes:
            runs.append(call.endpoint)
            raise kind("from a call of the handler's own")

        @two.handler("/task")
        async def task(call: AppCall) -> bytes:
            await trio.lowlevel.checkpoint()
            return inline(call)

        for endpoint in ("/inline", "/task"):
            for caller in (one, two):
                with pytest.raises(HandlerFailed, match=kind.__name__):
                    await caller.proxy(key_of(two), Request(endpoint))

        assert runs == ["/inline", "/inline", "/task", "/task"]


async def test_an_answer_that_cannot_be_read_may_have_run() -> None:
    async with cluster(2) as (nodes, _):
        one, two = nodes
        two.channel.serve("app", "/strange", lambda _: Answer(ok=False, arg2=b"\xc1"))

        with pytest.raises(MayHaveRun, match="cannot be read"):
            await one.proxy(key_of(two), Request("/strange"))


async def test_an_application_error_may_be_long() -> None:
    async with cluster(2) as (nodes, _):
        one, two = nodes

        @two.handler("/x")
        def fail(_: AppCall) -> bytes:
            raise ApplicationError("kind", "m" * 100_000)

        with pytest.raises(ApplicationError) as caught:
            await one.proxy(key_of(two), Request("/x"))

        assert caught.value.message == "m" * ERROR_CHARACTERS_MAX


async def test_a_client_that_names_no_endpoint_is_refused() -> None:
    async with cluster(2) as (nodes, _):
        one, two = nodes
        call = Call("app", "x", Head(("k",), route=True).encode(), ttl_s=5, scheme="raw")

        with pytest.raises(BadRequest, match="text that begins with"):
            await one.channel.call(two.address, call)


async def test_an_endpoint_that_nobody_serves_is_refused_at_once() -> None:
    async with cluster(2) as ((a, b), _):
        with pytest.raises(Refused, match="no handler for endpoint '/nothing'"):
            await a.handle_or_proxy(key_of(b), Request("/nothing"))
        with pytest.raises(Refused, match="no handler for endpoint '/nothing'") as caught:
            await a.proxy(key_of(a), Request("/nothing"))  # whoever is the owner
        assert len(caught.value.history) == 1


async def test_too_many_requests_are_pushed_back() -> None:
    async with cluster(2, proxy=ProxyConfig(in_flight_max=2)) as ((a, b), _):
        release = trio.Event()

        @b.handler("/wait")
        async def wait(_call: AppCall) -> bytes:
            await release.wait()
            return b""

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(a.handle_or_proxy, key_of(b), Request("/wait"))
            await trio.testing.wait_all_tasks_blocked()

            with pytest.raises(TooManyInFlight):
                await a.handle_or_proxy(key_of(b), Request("/wait"))

            release.set()


async def test_back_pressure_says_that_an_attempt_before_it_may_have_run() -> None:
    async with cluster(2, proxy=ProxyConfig(in_flight_max=1, timeout_s=2)) as ((a, b), _):
        runs = 0

        @b.handler("/wait")
        async def wait(_call: AppCall) -> bytes:
            nonlocal runs
            runs += 1
            await trio.sleep(9)
            return b""

        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                options: RequestOptions = {"idempotent": True, "retry_schedule": [1.0]}
                with pytest.raises(TooManyInFlight) as raised:
                    await a.handle_or_proxy(key_of(b), Request("/wait"), **options)
                assert raised.value.took_effect == "unknown"

            nursery.start_soon(ask)
            await trio.sleep(2.5)  # the first attempt has ended, and the second has not begun
            with pytest.raises(RingpopError):
                await a.handle_or_proxy(key_of(b), Request("/wait"), max_retries=0)
        assert runs == 2


@pytest.mark.parametrize("route", [False, True])
async def test_a_burst_of_a_clients_calls_is_pushed_back_beyond_the_limit(
    route: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with cluster(2, proxy=ProxyConfig(in_flight_max=3)) as (nodes, _):
        one, two = nodes
        running: list[int] = []

        @two.handler("/slow")
        async def slow(_: AppCall) -> bytes:
            running.append(two.proxying.counts.in_flight)
            await trio.sleep(0.5)
            return b""

        head = Head((key_of(two),), route=route).encode()
        outcomes: list[str] = []

        async def ask() -> None:
            try:
                await one.channel.call(
                    two.address, Call("app", "/slow", head, ttl_s=5, scheme="raw")
                )
                outcomes.append("ok")
            except PeerBusy:
                outcomes.append("busy")

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)

        assert sorted(outcomes) == ["busy"] * 7 + ["ok"] * 3
        assert max(running) <= 3
        assert two.proxying.counts.in_flight == 0


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        (ApplicationError("kind", "on purpose"), ApplicationError),
        (BadRequest("on purpose"), (BadRequest, Refused)),
        (ValueError("a bug"), HandlerFailed),
        (PeerBusy("from a call of its own"), HandlerFailed),
        ("not bytes", HandlerFailed),
    ],
    ids=["application error", "bad request", "bug", "error of ours", "wrong type"],
)
@pytest.mark.parametrize("is_here", [False, True])
async def test_a_handler_that_awaits_and_fails_is_no_longer_under_way(
    outcome: object,
    raised: type[Exception] | tuple[type[Exception], ...],
    is_here: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with cluster(
        2, proxy=ProxyConfig(max_retries=0, retry_schedule_s=(), in_flight_max=1)
    ) as (nodes, _):
        one, two = nodes
        caller = two if is_here else one

        @two.handler("/fails")
        async def fails(_: AppCall) -> bytes:
            await trio.lowlevel.checkpoint()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome  # type: ignore[return-value]

        for _ in range(2):  # the second one is admitted like the first
            with pytest.raises(raised):
                await caller.proxy(key_of(two), Request("/fails"))

            assert [node.proxying.counts.in_flight for node in nodes] == [0, 0]


@pytest.mark.parametrize("waits_s", [0.0, 0.1, 5.0], ids=["at once", "by the caller", "by its ttl"])
async def test_a_handler_whose_call_ends_before_it_is_no_longer_under_way(waits_s: float) -> None:
    async with cluster(2, proxy=ProxyConfig(in_flight_max=1)) as ((one, two), _):
        started: list[str] = []

        @two.handler("/hangs")
        async def hangs(call: AppCall) -> bytes:
            started.append(call.endpoint)
            await trio.sleep_forever()
            return b""

        head = Head((key_of(two),)).encode()
        for number in (1, 2):
            with trio.move_on_after(waits_s), pytest.raises(CallTimeout):
                await one.channel.call(
                    two.address, Call("app", "/hangs", head, ttl_s=1, scheme="raw")
                )
            await trio.sleep(0.1)

            assert len(started) == number
            assert two.proxying.counts.in_flight == 0


async def test_a_relayed_call_that_fails_is_no_longer_under_way() -> None:
    async with cluster(2, proxy=ProxyConfig(in_flight_max=1)) as ((one, two), _):
        head = encode(RelayHead(one.name, "/nothing"))
        call = Call(NODE_SERVICE, RELAY_ENDPOINT, head, ttl_s=5, scheme="raw")

        for _ in range(2):
            with pytest.raises(BadRequest, match="no handler for endpoint '/nothing'"):
                await one.channel.call(two.address, call)

            assert two.proxying.counts.in_flight == 0


async def test_an_http_request_whose_replay_fails_is_no_longer_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(2, proxy=ProxyConfig(in_flight_max=1)) as ((one, two), _):

        async def replay(_: HttpRequest) -> NoReturn:
            await trio.lowlevel.checkpoint()
            raise BadRequest("the replay failed")

        monkeypatch.setattr(two.application, "replay", replay)

        for _ in range(2):
            with pytest.raises(Refused, match="the replay failed"):
                await one.proxy(key_of(two), HttpRequest("GET", "/"))

            assert [node.proxying.counts.in_flight for node in (one, two)] == [0, 0]


async def test_a_forwarded_call_is_never_forwarded_again() -> None:
    proxy = ProxyConfig(max_retries=0, consistency="none")
    async with cluster(3, proxy=proxy) as ((a, b, c), _):
        calls = serve_who([a, b, c])
        a.ring = a.ring.with_changes([], [c.name])  # a does not know c
        key = next(k for k in map(str, range(999)) if a.lookup(k) == b.name != b.lookup(k))

        reply = await a.handle_or_proxy(key, Request("/who"))

        assert reply is not None
        assert reply.body.startswith(b.name.encode())
        assert len(calls) == 1


async def test_a_client_may_have_any_node_bring_its_request_to_the_owner() -> None:
    async with cluster(3) as ((a, b, c), _):
        serve_who([a, b, c])
        for owner in (a, b, c):
            head = Head((key_of(owner),), route=True).encode()
            answer = await c.channel.call(
                a.address, Call("app", "/who", head, b"x", ttl_s=5, scheme="raw")
            )
            assert answer.ok
            assert answer.arg3 == owner.name.encode() + b" x"


async def test_http_without_an_application_is_refused() -> None:
    async with cluster(2) as ((a, b), _):
        with pytest.raises(Refused, match="--app-url"):
            await a.handle_or_proxy(key_of(b), HttpRequest("GET", "/"))


async def test_without_members_in_the_ring_there_is_no_owner() -> None:
    async with cluster(1) as ((a,), _):
        a.leave()
        await a.wait_until(lambda ringpop: not len(ringpop.ring))

        with pytest.raises(NoOwner):
            await a.handle_or_proxy("k", Request("/who"))


async def test_a_node_with_other_points_is_refused() -> None:
    async with cluster(2) as ((a, b), network):
        config = Config(listen=address(9), hosts=(a.address, b.address), ring_points=7)

        with pytest.raises(JoinRefused, match="100 ring points"):
            async with open_ringpop(config, network=network):
                pass

        assert len(a.ring) == 2


async def test_another_cluster_is_left_alone() -> None:
    async with cluster(2) as ((a, b), network):
        config = Config(listen=address(9), hosts=(a.address, b.address), cluster="other")

        async with open_ringpop(config, network=network) as stranger:
            await trio.sleep(3)

            assert len(stranger.members) == 1
            assert len(a.members) == 2


async def test_a_stranger_is_told_nothing_and_our_log_tells_both_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    hosts = (address(1), address(2))
    red = Config(listen=hosts[0], hosts=hosts, cluster="crimson")
    blue = Config(listen=hosts[1], hosts=hosts, cluster="azure")

    async with open_ringpop(red, network=network), open_ringpop(blue, network=network):
        await trio.sleep(60)

    refused = [event.fields for event in events_in(caplog, "stranger-refused")]
    assert [(entry["address"], entry["ours"], entry["cluster"]) for entry in refused] == [
        (str(hosts[1]), "crimson", "azure"),
        (str(hosts[0]), "azure", "crimson"),
    ]
    reasons = [str(event.fields["reason"]) for event in events_in(caplog, "join-rejected")]
    assert reasons
    assert not any("crimson" in reason or "azure" in reason for reason in reasons)


@asynccontextmanager
async def peer_with_clock(
    network: MemoryNetwork, at: Address, *, ahead_s: float
) -> AsyncIterator[Channel]:
    """A peer at *at* whose clock is *ahead_s* ahead when a connection starts."""

    def introduce() -> dict[str, str]:
        return {"cluster": "default", "time_ms": str(round((time.time() + ahead_s) * 1000))}

    peer = Channel(process_name="peer", network=network, init_headers=introduce)
    peer.serve("ringpop", "/health", lambda _: Answer(ok=True))
    await peer.listen(at)
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.run)
        yield peer
        nursery.cancel_scope.cancel()


async def test_a_clock_that_differs_much_is_warned_of_once_a_peer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    async with (
        open_ringpop(Config(listen=address(1)), network=network) as ringpop,
        peer_with_clock(network, address(2), ahead_s=3600),
        peer_with_clock(network, address(3), ahead_s=-60),
        peer_with_clock(network, address(4), ahead_s=0),
    ):
        for peer in (2, 2, 3, 4):
            await ringpop.channel.call(address(peer), HEALTH)
            ringpop.channel.links.routes[address(peer)].stop("disconnected by this node")

    told = [event.fields for event in events_in(caplog, "clock-differs")]
    assert [(fields["address"], fields["ahead_s"]) for fields in told] == [
        (str(address(2)), pytest.approx(3600, abs=2)),
        (str(address(3)), pytest.approx(-60, abs=2)),
    ]


async def test_the_time_that_a_caller_says_is_not_judged_for_it_may_have_waited_to_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    async with (
        open_ringpop(Config(listen=address(1)), network=network),
        peer_with_clock(network, address(2), ahead_s=-60) as peer,
    ):
        await peer.call(address(1), HEALTH)

    assert events_in(caplog, "clock-differs") == []


async def test_a_restart_at_another_address_keeps_its_keys_under_its_name() -> None:
    network = MemoryNetwork()
    seed = Config(listen=address(1), name="seed", hosts=(address(1),))
    first = Config(listen=address(2), name="store", hosts=(address(1),))
    async with open_ringpop(seed, network=network) as observer:
        async with open_ringpop(first, network=network) as store:
            await observer.wait_until(lambda ringpop: len(ringpop.ring) == 2)
            key = key_of(store)
        second = Config(listen=address(3), name="store", hosts=(address(1),))
        async with open_ringpop(second, network=network) as store:
            calls = serve_who([store])

            await observer.wait_until(lambda ringpop: ringpop.address_of("store") == address(3))
            reply = await observer.proxy(key, Request("/who"))

            assert reply.owner == "store"
            assert len(calls) == 1
            assert len(observer.members) == 2


async def test_a_second_process_of_a_name_does_not_join_and_says_who_has_it() -> None:
    network = MemoryNetwork()
    seed = Config(listen=address(1), name="seed", hosts=(address(1),))
    first = Config(listen=address(2), name="store", hosts=(address(1),))
    second = Config(listen=address(3), name="store", hosts=(address(1),))
    async with (
        open_ringpop(seed, network=network) as observer,
        open_ringpop(first, network=network) as store,
    ):
        await observer.wait_until(lambda ringpop: ringpop.address_of("store") == address(2))
        await trio.sleep(5)
        before = observer.checksum
        began = trio.current_time()

        with pytest.raises(NameLost) as caught:
            async with open_ringpop(second, network=network):
                raise AssertionError

        took_s = trio.current_time() - began
        await trio.sleep(30)
        text = str(caught.value)
        assert took_s < 1
        assert "the name store belongs to the process at 10.0.0.2:3000, which has run since" in text
        assert "this one, at 10.0.0.3:3000, did not join" in text
        assert "--name" in text
        assert store.readiness.name_lost is None
        assert observer.checksum == before


async def test_a_node_that_loses_its_name_ends_with_an_error_that_names_the_winner() -> None:
    network = MemoryNetwork()
    lost: list[NameLost] = []

    async def meet_after_a_while() -> None:
        config = Config(listen=address(3), name="store")
        async with open_ringpop(config, network=network) as ringpop:
            await trio.sleep(5)
            ringpop.driver.submit(lambda now: ringpop.node.hosts_read([address(1)], now))
            await trio.sleep_forever()

    async def island() -> None:
        with pytest.raises(NameLost) as caught:
            await meet_after_a_while()
        lost.append(caught.value)

    seed = Config(listen=address(1), name="seed", hosts=(address(1),))
    first = Config(listen=address(2), name="store", hosts=(address(1),))
    async with (
        open_ringpop(seed, network=network) as observer,
        open_ringpop(first, network=network) as store,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(island)
        with trio.fail_after(60):
            while not lost:
                await trio.sleep(0.1)
        await trio.sleep(30)

        assert "the process at 10.0.0.2:3000" in str(lost[0])
        assert "10.0.0.3:3000, stopped, because it is the later of the two" in str(lost[0])
        assert "--name" in str(lost[0])
        assert store.readiness.name_lost is None
        statuses = {member.name: member.status.label for member in observer.members}
        assert statuses == {"seed": "alive", "store": "alive"}
        assert observer.address_of("store") == address(2)


async def test_a_name_lost_before_the_join_is_waited_for_is_raised_there() -> None:
    network = MemoryNetwork()
    config = Config(listen=address(1), hosts=(address(1),))

    async def wait_for_the_join() -> None:
        async with open_ringpop(config, network=network, wait_ready=False) as ringpop:
            rival = Member(ringpop.name, *address(9), ringpop.node.local.incarnation + 1)
            ringpop._observe([NameTaken(ringpop.node.local, rival, lost=True)])
            await ringpop.wait_ready()

    with pytest.raises(NameLost) as caught:
        await wait_for_the_join()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("since_ms", [1 << 60, -(1 << 60), 253_402_300_800_000])
async def test_a_name_lost_to_a_process_of_an_unbelievable_age_is_lost_all_the_same(
    since_ms: int,
) -> None:
    config = Config(listen=address(1), name="store", hosts=(address(1),))

    async def lose() -> None:
        async with open_ringpop(config, network=MemoryNetwork(), wait_ready=False) as ringpop:
            rival = Member(ringpop.name, *address(9), ringpop.node.local.incarnation + 1)
            taken = NameTaken(ringpop.node.local, rival, lost=True, since_ms=since_ms)
            ringpop._observe([taken])
            await ringpop.wait_ready()

    with pytest.raises(NameLost, match=r"the process at 10\.0\.0\.9:3000; this one"):
        await lose()


async def test_discovery_that_becomes_right_is_noticed_without_a_signal(tmp_path: Path) -> None:
    network = MemoryNetwork()
    file = tmp_path / "hosts"
    file.write_text("")
    first = Config(listen=address(1), hosts_file=str(file))
    second = Config(listen=address(2))
    async with open_ringpop(first, network=network) as a, open_ringpop(second, network=network):
        await trio.sleep(30)
        assert len(a.members) == 1

        file.write_text(f"{address(2)}\n")

        await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)


async def test_leaving_the_block_is_no_death() -> None:
    async with cluster(2) as ((a, b), network):
        seen: list[Effect] = []
        a.observe(seen.append)
        config = Config(listen=address(9), hosts=(a.address, b.address))
        async with open_ringpop(config, network=network) as c:
            await a.wait_until(lambda ringpop: len(ringpop.ring) == 3)
            name = c.name
        await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)
        await trio.sleep(5)

        statuses = [
            (effect.after.status.label, effect.after.draining)
            for effect in seen
            if isinstance(effect, StatusChanged) and effect.after and effect.after.name == name
        ]
        assert statuses == [("alive", False), ("alive", True), ("leave", True)]


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster(1):
            raise ZeroDivisionError


async def test_an_address_in_use_is_a_config_error() -> None:
    async with cluster(1) as ((a,), network):
        with pytest.raises(ConfigError, match="in use"):
            async with open_ringpop(Config(listen=a.address), network=network):
                pass


async def test_a_second_handler_for_an_endpoint_is_refused() -> None:
    async with cluster(1) as ((a,), _):
        serve_who([a])
        with pytest.raises(ConfigError, match="has a handler already"):
            serve_who([a])


TRACE = {"event": "membership.checksum.update", "expiresIn": 60_000}


async def test_a_trace_tells_its_sink_of_each_new_checksum_until_it_is_removed() -> None:
    async with cluster(2) as ((a, b), _):
        told: list[object] = []

        @b.handler("/sink")
        def take(call: AppCall) -> bytes:
            told.append(decode_value("json", call.body)["checksum"])
            return b""

        sink = {
            "type": "tchannel",
            "hostPort": str(b.address),
            "serviceName": "app",
            "endpoint": "/sink",
        }
        await admin(a, b, "/trace/add", {**TRACE, "sink": sink})
        a.leave()
        await trio.sleep(1)
        traced = a.checksum
        await admin(a, b, "/trace/remove", {**TRACE, "sink": sink})
        a.rejoin()
        await trio.sleep(1)

        assert told == [traced]


async def test_a_sink_is_the_same_however_its_port_is_written() -> None:
    told: list[bytes] = []
    async with cluster(2) as ((a, b), _):

        @b.handler("/sink")
        def take(call: AppCall) -> bytes:
            told.append(call.body)
            return b""

        sink = {"type": "tchannel", "serviceName": "app", "endpoint": "/sink"}
        padded = {**sink, "hostPort": f"{b.address.host}:0{b.address.port}"}
        await admin(a, b, "/trace/add", {**TRACE, "sink": padded})
        usual = {**sink, "hostPort": str(b.address)}
        await admin(a, b, "/trace/remove", {**TRACE, "sink": usual})
        a.leave()
        await trio.sleep(1)

    assert told == []


@pytest.mark.parametrize(
    "body",
    [
        {**TRACE, "event": "nothing", "sink": {"type": "log"}},
        {**TRACE, "sink": {"type": "fax"}},
        {**TRACE, "sink": {"type": "tchannel", "hostPort": "nowhere"}},
        {**TRACE, "expiresIn": -1, "sink": {"type": "log"}},
        {},
    ],
)
async def test_a_trace_that_cannot_be_is_refused(body: dict[str, object]) -> None:
    async with cluster(1) as ((a,), _):
        with pytest.raises((ApplicationError, BadRequest)):
            await admin(a, a, "/trace/add", body)


async def test_a_trace_to_an_unknown_sink_is_refused_with_those_that_exist() -> None:
    async with cluster(1) as ((a,), _):
        with pytest.raises(ApplicationError, match="a sink is 'log' or 'tchannel', not 'fax'"):
            await admin(a, a, "/trace/add", {**TRACE, "sink": {"type": "fax"}})


async def test_healing_by_hand_tells_with_whom() -> None:
    async with cluster(2) as ((a, b), network):
        network.cut(a.address, b.address)
        await a.wait_until(lambda ringpop: len(ringpop.ring) == 1)
        await b.wait_until(lambda ringpop: len(ringpop.ring) == 1)
        await trio.sleep(10)
        network.heal()

        first = await admin(a, a, "/admin/healpartition/disco", None)
        second = await admin(a, a, "/admin/healpartition/disco", None)
        await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)

        there: dict[str, object] = {"targets": [str(b.address)], "failed": [], "error": ""}
        there["silent_hosts"] = {}
        assert first == {**there, "healed": False, "merged": []}
        assert second == {**there, "healed": True, "merged": [str(b.address)]}


async def test_healing_by_hand_is_not_over_when_a_try_beside_it_is() -> None:
    async with cluster(2) as ((a, b), network):
        network.cut(a.address, b.address)
        await a.wait_until(lambda ringpop: len(ringpop.ring) == 1)

        a.driver.submit(lambda _now: [Healed((address(9),), is_run=False)])

        assert (await a.heal()).targets == ()


async def test_strangers_that_call_again_do_not_push_out_what_happened() -> None:
    async with cluster(1) as ((a,), _):
        before = a.reporter.events.last_number

        for _ in range(5):
            a._observe([StrangerRefused(address(9), "other", "ours")])

        assert a.reporter.events.last_number == before + 1


def shown(value: object, name: str) -> dict[str, object]:
    """Return the row of the member *name* in the answer of an endpoint."""
    assert isinstance(value, dict)
    (row,) = [row for row in value["members"] if row["name"] == name]
    assert isinstance(row, dict)
    return row


async def flapping(nodes: Sequence[Ringpop], flapper: Ringpop) -> None:
    """Have *flapper* accused and refute until all others have damped it."""
    name = flapper.name
    for _ in range(8):
        for node in nodes:
            row = node.node.members.get(name)
            assert row is not None
            accused = MemberChange(member=replace(row, status=Status.SUSPECT))
            node.driver.submit(partial(_hear, node, accused))
        await trio.sleep(1)
    for node in nodes:
        await node.wait_until(lambda ringpop: name not in ringpop.ring.owners)


def _hear(node: Ringpop, change: MemberChange, now: int) -> list[Effect]:
    """*node* hears *change* from a stranger."""
    stranger = address(99)
    ping = Ping("default", 100, str(stranger), *stranger, 1, None, (change,))
    effects = node.node.receive(Asked(0, ping), now)
    return [effect for effect in effects if not isinstance(effect, AnswerPeer)]


async def test_a_flapping_member_leaves_the_ring_until_an_operator_clears_it() -> None:
    async with cluster(4) as ((a, b, c, d), _):
        await flapping((a, b, c), d)

        members = await admin(a, b, "/admin/members", None)
        state = await admin(a, b, "/admin/damp/show", {"name": d.name})
        cleared = await admin(a, b, "/admin/damp/clear", {"name": d.name})
        for node in (a, b, c, d):
            await node.wait_until(lambda ringpop: len(ringpop.ring) == 4)

        row = shown(members, d.name)
        assert (row["status"], row["damped"], row["in_ring"]) == ("alive", True, False)
        row = shown(state, d.name)
        assert (row["damped"], row["verdict"]) == (True, 1)
        score, reuse_in_s = row["score"], row["reuse_in_s"]
        assert isinstance(score, int)
        assert reuse_in_s == pytest.approx(300 * math.log2(score / 2500), abs=1)
        assert cleared == {"status": "ok", "was_damped": True}
        assert await admin(a, b, "/admin/damp/clear", {"name": d.name}) == {
            "status": "ok",
            "was_damped": False,
        }


async def test_nothing_is_shown_of_steady_members_unless_they_are_named() -> None:
    async with cluster(2) as ((a, b), _):
        everybody = await admin(a, b, "/admin/damp/show", None)
        one = await admin(a, b, "/admin/damp/show", {"name": b.name})

        assert everybody == {
            "source": a.name,
            "damping": True,
            "suppress": 5000,
            "reuse": 2500,
            "damped_max": 0,
            "members": [],
        }
        assert shown(one, b.name)["score"] == 0
        for endpoint in ("/admin/damp/show", "/admin/damp/clear"):
            with pytest.raises(ApplicationError, match="no member is called 'nobody'"):
                await admin(a, b, endpoint, {"name": "nobody"})


async def test_a_node_that_drains_is_alive_and_owns_nothing() -> None:
    async with cluster(3) as (nodes, _):
        a, b, _c = nodes
        a.set_labels((("zone", "x"),))
        await admin(a, b, "/admin/member/drain", None)
        for node in nodes:
            await node.wait_until(lambda ringpop: len(ringpop.ring) == 2)
        draining = shown(await admin(b, a, "/admin/members", None), a.name)
        a.undrain()
        for node in nodes:
            await node.wait_until(lambda ringpop: len(ringpop.ring) == 3)

        assert draining["status"] == "alive"
        assert draining["draining"] is True
        assert draining["in_ring"] is False
        assert draining["labels"] == {"draining": "true", "zone": "x"}
        assert a.node.local.labels == (("zone", "x"),)


async def test_new_labels_leave_the_node_its_store_and_with_it_its_keyspaces() -> None:
    network = MemoryNetwork()
    config = Config(listen=address(1))
    async with open_ringpop(config, network=network, store=MemoryStore()) as node:
        (before,) = node.node.local.labels

        node.set_labels((("zone", "eu"),))
        await node.wait_until(lambda ringpop: ("zone", "eu") in ringpop.node.local.labels)
        counts = await node.open_keyspace("counts", partitions=1)
        await counts.update("a", "count")

        assert node.node.local.labels == (before, ("zone", "eu"))


async def test_labels_may_be_set_as_they_are_read_and_one_more() -> None:
    config = Config(listen=address(1))
    async with open_ringpop(config, network=MemoryNetwork(), store=MemoryStore()) as node:
        (store,) = node.node.local.labels

        node.set_labels((store, ("zone", "eu")))
        await node.wait_until(lambda ringpop: ("zone", "eu") in ringpop.node.local.labels)

        assert node.node.local.labels == (store, ("zone", "eu"))


async def test_new_labels_leave_the_node_its_identity() -> None:
    config = Config(listen=address(1), dialect="ringpop", name="shop-7")
    async with open_ringpop(config, network=MemoryNetwork()) as node:
        node.set_labels((("zone", "eu"),))
        await node.wait_until(lambda ringpop: ("zone", "eu") in ringpop.node.local.labels)

        assert node.node.local.identity == "shop-7"


@pytest.mark.parametrize("key", ["__identity", "ringpop.store"])
async def test_labels_of_the_nodes_own_are_not_the_applications_to_set(key: str) -> None:
    network, mine = MemoryNetwork(), ((key, "x"),)
    async with open_ringpop(Config(listen=address(1)), network=network) as node:
        with pytest.raises(ConfigError, match=rf"label '{key}': .* are the node's own"):
            node.set_labels(mine)
    with pytest.raises(ConfigError, match=rf"label '{key}': .* are the node's own"):
        async with open_ringpop(Config(listen=address(1), labels=mine), network=network):
            pass


async def test_labels_are_no_more_than_there_may_be_with_the_nodes_own() -> None:
    five = tuple((f"key-{n}", "x") for n in range(5))
    config = Config(listen=address(1))
    async with open_ringpop(config, network=MemoryNetwork(), store=MemoryStore()) as node:
        with pytest.raises(ConfigError, match="at most 5 labels, not 6"):
            node.set_labels(five)


@pytest.mark.parametrize(
    "endpoint",
    ["/admin/damp/show", "/admin/damp/clear", "/admin/member/drain", "/admin/member/undrain"],
)
async def test_the_ringpop_dialect_has_neither_damping_nor_draining(endpoint: str) -> None:
    config = Config(listen=address(1), dialect="ringpop")
    async with open_ringpop(config, network=MemoryNetwork()) as node:
        with pytest.raises(ApplicationError, match="neither damping nor draining"):
            await admin(node, node, endpoint, {"name": node.name})


async def admin(node: Ringpop, caller: Ringpop, endpoint: str, body: object) -> object:
    """What *node* answers *caller* at its own *endpoint*."""
    arg3 = encode_value("msgpack", body)
    answer = await caller.channel.call(node.address, Call("ringpop", endpoint, b"", arg3, ttl_s=30))
    value = decode_value("msgpack", answer.arg3)
    if not answer.ok:
        raise ApplicationError(value["type"], value["message"])
    return value


async def test_an_observer_that_fails_disturbs_nobody() -> None:
    async with cluster(2) as ((a, b), _):

        def fail(_effect: Effect) -> None:
            raise ZeroDivisionError

        a.observe(fail)
        b.leave()

        await a.wait_until(lambda ringpop: b.name not in ringpop.ring)


async def test_a_request_to_a_member_that_does_not_serve_its_endpoint_yet_is_retried() -> None:
    async with cluster(2) as ((a, b), _), trio.open_nursery() as nursery:
        b.application.starting = True
        replies: list[bytes] = []

        async def call() -> None:
            replies.append((await a.proxy(key_of(b), Request("/who"))).body)

        nursery.start_soon(call)
        await trio.sleep(0.5)
        serve_who([b])
        b.application.starting = False
        await trio.sleep(1)

        assert replies == [f"{b.name} ".encode()]
        with pytest.raises(Refused):
            await a.proxy(key_of(b), Request("/nowhere"))


async def test_a_bug_in_the_member_itself_ends_the_node() -> None:
    async def run() -> None:
        async with open_ringpop(Config(listen=address(1)), network=MemoryNetwork()) as node:
            node.driver.submit(lambda now: [now / 0])  # type: ignore[list-item]
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await run()

    assert caught.group_contains(ZeroDivisionError)


class HangingStore(MemoryStore):
    """Answers a `list` while `answers` is set."""

    in_memory = False  # so that a thread hangs, and not the node

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()
        self.hangs = threading.Event()

    def list(self, prefix: str) -> list[str]:
        if not self.answers.is_set():
            self.hangs.set()
        self.answers.wait()
        return super().list(prefix)


async def test_a_node_joins_though_its_store_hangs_and_learns_of_keyspaces_later() -> None:
    store = HangingStore()
    config = Config(listen=address(1))
    Catalog(store, config.cluster).create(Definition(name="counts", partitions=4))
    store.answers.clear()
    nodes: list[Ringpop] = []

    async def run() -> None:
        async with open_ringpop(config, network=MemoryNetwork(), store=store) as node:
            nodes.append(node)
            await trio.sleep_forever()

    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    clock.autojump_threshold = math.inf  # a thread is waited for
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.to_thread.run_sync(store.hangs.wait)
        clock.autojump_threshold = 0
        await trio.sleep(CATALOG_WAIT_S + 0.5)

        assert [node.keyspaces.all() for node in nodes] == [[]]
        store.answers.set()
        while not nodes[0].keyspaces.all():
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wait_ready", [False, True])
async def test_a_signal_cancels_the_block_and_the_node_ends_in_good_order(
    *, wait_ready: bool
) -> None:
    network, before = MemoryNetwork(), signal.getsignal(signal.SIGTERM)
    async with open_ringpop(Config(listen=address(1)), network=network) as other:
        config = Config(listen=address(2), hosts=(address(1),))
        opening = open_ringpop(config, network=network, wait_ready=wait_ready, signals=True)
        async with opening as node:
            await other.wait_until(lambda _: len(other.members) == 2)
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()
        await other.wait_until(lambda _: other.status_of(node.name) is Status.LEAVE)
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_signal_before_the_block_cancels_it_as_it_begins() -> None:
    nobody, before = Address("127.0.0.1", 1), signal.getsignal(signal.SIGTERM)
    config = Config(hosts=(nobody,), dialect="ringpop")  # which is not ready alone

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _ending() -> None:
                while signal.getsignal(signal.SIGTERM) is before:
                    await trio.sleep(0.01)
                signal.raise_signal(signal.SIGTERM)

            async with open_ringpop(config, signals=True):
                await trio.sleep_forever()


async def test_a_second_signal_cuts_what_is_open() -> None:
    network = MemoryNetwork()
    errors: list[RingpopError] = []

    async def ask(node: Ringpop, key: str) -> None:
        try:
            await node.proxy(key, Request("/slow"))
        except RingpopError as error:
            errors.append(error)

    async with open_ringpop(Config(listen=address(1)), network=network) as node:
        opening = open_ringpop(
            Config(listen=address(2), hosts=(address(1),)), network=network, signals=True
        )
        async with trio.open_nursery() as nursery:
            async with opening as ending:

                @ending.handler("/slow")
                async def slow(_call: AppCall) -> None:
                    signal.raise_signal(signal.SIGTERM)
                    await trio.sleep(5)
                    signal.raise_signal(signal.SIGTERM)
                    await trio.sleep_forever()

                await node.wait_until(lambda _: len(node.members) == 2)
                key = next(key for n in range(99) if node.lookup(key := f"k{n}") == ending.name)
                began_at = trio.current_time()
                nursery.start_soon(ask, node, key)
                await trio.sleep_forever()
            # It waited for the open request until the second signal, and no longer.
            assert 4.5 < trio.current_time() - began_at < 6

    assert [type(error) for error in errors] == [MayHaveRun]


def test_another_loop_is_refused_in_one_line() -> None:
    async def main() -> None:
        async with open_ringpop(Config()):
            pass

    async def local() -> None:
        async with open_local_keyspaces():
            pass

    for run in (main, local):
        with pytest.raises(
            ConfigError, match=r"needs trio.*ringpop_py\.AsyncClient.*KeyspaceClient"
        ):
            asyncio.run(run())


def test_signals_in_another_thread_are_refused() -> None:
    errors: list[ConfigError] = []

    async def main() -> None:
        async with open_ringpop(Config(), signals=True):
            pass

    def run() -> None:
        try:
            trio.run(main)
        except ConfigError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert "main thread" in str(errors[0])
