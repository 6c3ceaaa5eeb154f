"""Calls between channels on a network in memory, in time that jumps."""

# ruff: noqa: PT019 - pytest-trio runs a test by the clock that it takes as an argument

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock as Clock

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    BadRequest,
    CallCancelled,
    CallError,
    CallTimeout,
    ConnectBroke,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    ConnectTooSlow,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    PeerSilent,
    TooManyInFlight,
    WireError,
)
from ringpop_py.edge.testing import BACKLOG_MAX, MemoryNetwork
from ringpop_py.net.security.users import is_this_machine
from ringpop_py.net.transport.channel import (
    IDLE_S,
    LINGER_S,
    RESERVED,
    Channel,
    IncomingCall,
)
from ringpop_py.net.transport.deadlines import TICK_S
from ringpop_py.net.transport.writer import PIECE_FRAMES
from ringpop_py.net.wire import frames
from ringpop_py.net.wire.calls import (
    ENDPOINT_BYTES_MAX,
    Answer,
    AnswerReceived,
    Call,
    Ended,
)
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.frames import frame
from ringpop_py.net.wire.init import init_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ringpop_py.net.transport.network import Stream

    Start = Callable[..., Awaitable[Channel]]


A, B = Address("a", 1), Address("b", 1)
NAMES = (("host_port", "0.0.0.0:0"), ("process_name", "x"))


@pytest.fixture
def _clock() -> Clock:
    """Time that jumps to the next instant that a task waits for."""
    return Clock(autojump_threshold=0)


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
async def start(nursery: trio.Nursery, network: MemoryNetwork) -> Start:
    """Start a channel that listens at its name, port 1."""

    async def start(name: str, **options: Any) -> Channel:  # noqa: ANN401 - as Channel takes them
        defaults: dict[str, Any] = {"process_name": name, "network": network}
        channel = Channel(**(defaults | options))
        await channel.listen(Address(name, 1))
        await nursery.start(channel.run)
        return channel

    return start


def sent(channel: Channel) -> int:
    """How many calls of this node wait for their answers."""
    return sum(len(link.connection.calls) for link in channel.links)


def serving(channel: Channel) -> int:
    """How many calls of others wait for this node's answers."""
    return sum(len(link.connection.served) for link in channel.links)


def call(endpoint: str = "/echo", arg3: bytes = b"", **options: Any) -> Call:  # noqa: ANN401
    return Call("app", endpoint, b"", arg3, **({"ttl_s": 1.0} | options))


def echo(incoming: IncomingCall) -> Answer:
    return Answer(ok=True, arg2=incoming.arg2, arg3=incoming.arg3)


async def forever(_: IncomingCall) -> Answer:
    await trio.sleep_forever()
    raise AssertionError


async def hello(network: MemoryNetwork, to: Address) -> Stream:
    """A peer that is up, and whose bytes the test writes."""
    stream = await network.connect(to, origin=None)
    await stream.send_some(memoryview(init_frame(frames.INIT_REQ, 1, NAMES)))
    await stream.receive()
    return stream


async def test_both_ends_call_over_one_connection(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    a.serve("app", "/echo", echo)
    b.serve("app", "/echo", echo)

    there = await a.call(B, call(arg3=b"1"))
    back = await b.call(A, call(arg3=b"2"))

    assert (there.arg3, back.arg3) == (b"1", b"2")
    assert len(a.links) == len(b.links) == 1
    assert a.calls_sent == b.calls_sent == 1
    assert serving(a) == serving(b) == 0


async def test_a_handler_sees_who_calls_and_until_when(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    seen: list[IncomingCall] = []

    def handler(incoming: IncomingCall) -> Answer:
        seen.append(incoming)
        return Answer(ok=False)

    b.serve("app", "*", handler)
    began = trio.current_time()
    answer = await a.call(B, call("/x", ttl_s=5.0, scheme="json", headers=(("sk", "key"),)))

    (incoming,) = seen
    assert not answer.ok
    assert answer.scheme == "json"
    assert (incoming.service, incoming.endpoint, incoming.scheme) == ("app", "/x", "json")
    assert incoming.event.head.headers == {"as": "json", "cn": "a", "sk": "key"}
    assert incoming.caller == "a:1"
    assert incoming.deadline == pytest.approx(began + 5.0, abs=0.1)
    assert repr(incoming) == "<IncomingCall app /x from a:1>"


async def test_a_handler_may_answer_later(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    kept: list[IncomingCall] = []
    b.serve("app", "/later", kept.append)
    outcomes: list[Answer | CallError] = []

    for _ in range(2):
        a.begin(B, call("/later"), outcomes.append)
    await trio.sleep(0.1)
    assert outcomes == []
    kept[1].answer(Answer(ok=True, arg3=b"2"))
    kept[1].answer(Answer(ok=True, arg3=b"again"))
    kept[0].fail(PeerDeclined("no"))
    kept[0].fail(PeerDeclined("again"))
    await trio.sleep(0.1)

    first, second = outcomes
    assert isinstance(first, Answer)
    assert first.arg3 == b"2"
    assert isinstance(second, PeerDeclined)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (PeerDeclined("why"), PeerDeclined),
        (PeerBusy("why"), PeerBusy),
        (TooManyInFlight("why"), PeerBusy),
        (BadRequest("why"), BadRequest),
        (WireError("why"), BadRequest),
        (CallTimeout("why"), CallTimeout),
        (ZeroDivisionError("secret"), PeerFailed),
    ],
)
@pytest.mark.parametrize("in_a_task", [False, True])
async def test_an_error_that_a_handler_raises_is_reported(
    start: Start, raised: Exception, expected: type[CallError], _clock: Clock, *, in_a_task: bool
) -> None:
    a, b = await start("a"), await start("b")
    reported: list[tuple[str, Exception]] = []
    b.on_handler_error = lambda endpoint, error: reported.append((endpoint, error))

    def fail(_: IncomingCall) -> Answer:
        raise raised

    async def fail_later(_: IncomingCall) -> Answer:
        await trio.sleep(0.1)
        raise raised

    b.serve("app", "/fail", fail_later if in_a_task else fail)
    with pytest.raises(expected) as caught:
        await a.call(B, call("/fail"))

    unexpected = expected is PeerFailed
    assert type(caught.value) is expected
    assert str(caught.value) == ("ZeroDivisionError" if unexpected else "why")
    assert reported == ([("/fail", raised)] if unexpected else [])


@pytest.mark.parametrize("service", ["app", "other"])
async def test_an_unknown_endpoint_is_a_bad_request(
    start: Start, service: str, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)

    with pytest.raises(BadRequest, match="no endpoint /none"):
        await a.call(B, Call(service, "/none", ttl_s=1.0))


async def test_a_cancelled_caller_cancels_the_handler(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    ended: list[str] = []

    async def handler(_: IncomingCall) -> Answer:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cancelled")
        raise AssertionError

    b.serve("app", "/slow", handler)
    with trio.move_on_after(0.5) as scope:
        await a.call(B, call("/slow", ttl_s=60.0))
    await trio.sleep(0.1)

    assert scope.cancelled_caught
    assert ended == ["cancelled"]
    assert serving(b) == 0
    assert sent(a) == 0


async def test_a_ttl_ends_the_call_and_its_handler(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    cancelled = trio.Event()

    async def handler(_: IncomingCall) -> Answer:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    b.serve("app", "/slow", handler)
    began = trio.current_time()
    with pytest.raises(CallTimeout):
        await a.call(B, call("/slow", ttl_s=2.0))

    assert trio.current_time() - began == pytest.approx(2.0, abs=0.1)
    await cancelled.wait()
    assert serving(b) == 0


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan")])
async def test_a_call_without_time_fails_at_once(start: Start, ttl_s: float, _clock: Clock) -> None:
    a = await start("a")

    with pytest.raises(CallTimeout):
        await a.call(B, call(ttl_s=ttl_s))

    assert len(a.links) == 0


async def test_an_endless_ttl_is_allowed(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)

    assert (await a.call(B, call(ttl_s=float("inf")))).ok


async def test_nobody_there_fails_all_waiting_calls(start: Start, _clock: Clock) -> None:
    a = await start("a")
    outcomes: list[Answer | CallError] = []

    for _ in range(3):
        a.begin(B, call(), outcomes.append)
    await trio.sleep(0.01)

    assert [type(outcome) for outcome in outcomes] == [ConnectRefused] * 3
    assert {error.took_effect for error in outcomes if isinstance(error, CallError)} <= {"no"}


async def test_a_channel_that_does_not_run_makes_no_calls(_clock: Clock) -> None:
    with pytest.raises(ConnectFailed, match="not running"):
        await Channel(process_name="x").call(B, call())


async def test_a_broken_connection_is_noticed_and_made_again(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    b.serve("app", "/slow", forever)
    gone: list[tuple[str, Address]] = []
    a.on_disconnect = lambda address: gone.append(("a", address))
    b.on_disconnect = lambda address: gone.append(("b", address))
    outcomes: list[Answer | CallError] = []

    await a.call(B, call())
    a.begin(B, call("/slow"), outcomes.append)
    await trio.sleep(0.1)
    network.cut(A, B)
    await trio.sleep(0.1)
    with pytest.raises(ConnectFailed):
        await a.call(B, call())
    network.heal()

    assert [type(outcome) for outcome in outcomes] == [ConnectionLost]
    assert sorted(gone) == [("a", B), ("b", A)]
    assert (await a.call(B, call(arg3=b"again"))).arg3 == b"again"


async def test_an_address_that_hangs_answers_when_it_goes_on(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    await a.call(B, call())

    network.hang(B)
    with pytest.raises(CallTimeout):
        await a.call(B, call(ttl_s=1))
    outcomes: list[Answer | CallError] = []
    a.begin(B, call(arg3=b"again", ttl_s=9.0), outcomes.append)
    await trio.sleep(1)
    assert outcomes == []
    network.resume(B)
    await trio.sleep(0.1)

    (answer,) = outcomes
    assert isinstance(answer, Answer)
    assert answer.arg3 == b"again"


async def test_calls_to_a_peer_that_is_believed_to_be_gone_are_given_up_and_it_may_be_back(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    b.serve("app", "/slow", forever)
    await a.call(B, call())
    errors: list[CallError] = []

    async def ask(endpoint: str) -> None:
        try:
            await a.call(B, call(endpoint, ttl_s=60))
        except CallError as error:
            errors.append(error)

    network.hang(B)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "/slow")
        nursery.start_soon(ask, "/echo")
        await trio.sleep(0.1)
        a.give_up_calls(B, lambda one: one.endpoint == "/slow", "b is gone")
        await trio.sleep(0.1)
        assert [(type(error), str(error)) for error in errors] == [(PeerSilent, "b is gone")]
        network.resume(B)  # and the other call is answered

    assert len(errors) == 1
    assert sent(a) == 0
    assert len(a.links) == 1
    a.give_up_calls(Address("10.0.0.9", 1), lambda _: True, "it was never called")


async def test_a_call_that_is_given_up_before_it_was_sent_has_not_run(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    await network.listen(B)  # it accepts, and never says a word
    errors: list[CallError] = []

    async def ask() -> None:
        try:
            await a.call(B, call(ttl_s=60))
        except CallError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.1)
        a.give_up_calls(B, lambda _: True, "b is gone")

    assert [(type(error), error.took_effect) for error in errors] == [(ConnectTooSlow, "no")]


async def test_calls_that_were_never_written_are_known_not_to_have_run(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/slow", forever)
    outcomes: list[Answer | CallError] = []
    a.begin(B, call("/slow", ttl_s=9.0), outcomes.append)
    await trio.sleep(0.1)

    a.begin(B, call("/slow", ttl_s=9.0), outcomes.append)  # waits for the next tick
    network.cut(A, B)
    await trio.sleep(0.1)

    assert [type(outcome) for outcome in outcomes] == [ConnectionLost, ConnectBroke]


async def test_clusters_do_not_mix(start: Start, _clock: Clock) -> None:
    def only(name: str) -> dict[str, Any]:
        def accept(headers: Mapping[str, str]) -> str | None:
            return None if headers.get("cluster") == name else f"this is {name}"

        return {"init_headers": lambda: {"cluster": name}, "accept": accept}

    a = await start("a", **only("east"))
    await start("b", **only("west"))
    c = await start("c")

    with pytest.raises(PeerDeclined, match="this is west"):
        await a.call(B, call())
    with pytest.raises(PeerDeclined, match="this is east"):
        await c.call(A, call())
    with pytest.raises(PeerDeclined, match="this is east"):
        await a.call(Address("c", 1), call())
    assert len(a.links) == 0


async def test_an_idle_connection_is_closed(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    await a.call(B, call())

    await trio.sleep(3 * a.limits.idle_timeout_s)

    assert len(a.links) == len(b.links) == 0


async def test_a_silent_connection_is_replaced(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    (listener,) = await network.listen(B)
    accepted: list[Stream] = []

    async def mute() -> None:
        while True:
            stream = await listener.accept()
            accepted.append(stream)
            await stream.receive()
            await stream.send_some(memoryview(init_frame(frames.INIT_RES, 1, NAMES)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mute)
        for _ in range(5):
            with pytest.raises(CallTimeout):
                await a.call(B, call())
        nursery.cancel_scope.cancel()

    assert len(accepted) == 2


async def test_calls_over_a_connection_that_is_given_up_for_silence_are_not_lost(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    (listener,) = await network.listen(B)
    outcomes: list[Answer | CallError] = []

    async def mute() -> None:
        stream = await listener.accept()
        await stream.receive()
        await stream.send_some(memoryview(init_frame(frames.INIT_RES, 1, NAMES)))
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mute)
        a.begin(B, call(ttl_s=60), outcomes.append)
        for _ in range(3):
            with pytest.raises(CallTimeout):
                await a.call(B, call())
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()

    assert [type(outcome) for outcome in outcomes] == [PeerSilent]


async def test_a_peer_that_accepts_and_says_nothing_has_refused_nothing(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a", limits=WireLimits(init_timeout_s=2))
    await network.listen(B)
    outcomes: list[Answer | CallError] = []

    a.begin(B, call(ttl_s=1), outcomes.append)
    a.begin(B, call(ttl_s=60), outcomes.append)
    await trio.sleep(5)

    assert [type(outcome) for outcome in outcomes] == [ConnectTooSlow] * 2


async def test_a_network_that_cannot_be_reached_has_refused_nothing(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    await network.listen(B)
    network.cut(A, B)

    with pytest.raises(ConnectFailed) as caught:
        await a.call(B, call())

    assert type(caught.value) is ConnectFailed


async def test_an_overfull_backlog_is_no_refusal(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    await network.listen(B)
    for _ in range(BACKLOG_MAX):
        await network.connect(B, origin=None)

    with pytest.raises(ConnectTooSlow):
        await a.call(B, call())


# Limits.


async def test_the_number_of_calls_that_wait_for_a_connection_is_bounded(
    start: Start, _clock: Clock
) -> None:
    a = await start("a", limits=WireLimits(calls_in_flight_max=2))
    outcomes: list[Answer | CallError] = []

    for _ in range(3):
        a.begin(B, call(), outcomes.append)

    assert [type(outcome) for outcome in outcomes] == [TooManyInFlight]


async def test_unsent_bytes_are_bounded_and_a_peer_that_does_not_read_is_left(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a", limits=WireLimits(outgoing_bytes_max=1 << 20))
    (listener,) = await network.listen(B)
    outcomes: list[Answer | CallError] = []
    a.begin(B, call(ttl_s=60.0), outcomes.append)
    stream = await listener.accept()
    await stream.receive()
    await stream.send_some(memoryview(init_frame(frames.INIT_RES, 1, NAMES)))

    await trio.sleep(0.1)
    for _ in range(20):
        a.begin(B, call(arg3=bytes(1 << 20), ttl_s=60.0), outcomes.append)
        await trio.sleep(0.01)

    refused = [type(outcome) for outcome in outcomes]
    assert set(refused) == {TooManyInFlight}
    assert 10 < len(refused) < 20
    await trio.sleep(a.limits.frame_timeout_s + 0.1)
    assert {type(outcome) for outcome in outcomes[len(refused) :]} == {
        ConnectTooSlow,
        PeerSilent,
    }
    assert len(outcomes) == 21


async def test_answers_to_a_peer_that_does_not_read_are_bounded(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b", limits=WireLimits(outgoing_bytes_max=4 << 20))
    b.serve("app", "/large", lambda _: Answer(ok=True, arg3=bytes(1 << 20)))
    greedy = await hello(network, B)
    payload = (
        b"\0" + (60_000).to_bytes(4, "big") + bytes(25) + b"\x03app\x02\x02as\x03raw\x02cn\x01x"
    )
    payload += b"\0\0\x06/large\0\0\0\0"

    sent = 0
    with trio.move_on_after(1):
        while sent < 100_000:
            sent += 1
            await greedy.send_some(memoryview(frame(frames.CALL_REQ, sent, payload)))

    (link,) = b.links
    assert sent > 20
    assert link.writer.unsent_bytes < 10 << 20
    await trio.sleep(b.limits.frame_timeout_s)
    assert len(b.links) == 0


async def test_connections_are_bounded_in_all_and_by_host(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b", limits=WireLimits(connections_max=3, connections_per_address_max=2))

    streams = [await network.connect(B, origin=None) for _ in range(5)]
    others = [await network.connect(B, origin=A) for _ in range(5)]
    await trio.sleep(0.1)

    assert len(b.links) == 3
    assert b.links._accepted_from == {"memory": 2, "a": 1}
    for stream in (*streams, *others):
        stream.close()
    await trio.sleep(0.1)
    assert not b.links._accepted_from


async def test_this_machine_may_have_all_connections_and_who_is_refused_hears_why(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b", limits=WireLimits(connections_max=9, connections_per_address_max=2))
    told: list[tuple[str, str]] = []
    b.on_trouble = lambda peer, _endpoint, reason, *_: told.append((peer, reason))
    here = Address("127.0.0.1", 1)
    streams = [await network.connect(B, origin=here) for _ in range(5)]
    c = Address("c", 1)
    streams += [await network.connect(B, origin=c) for _ in range(2)]
    await trio.sleep(0.1)
    assert len(b.links) == 7

    began, third = trio.current_time(), await start("c")
    why = "2 connections come from c already .connections_per_address_max."
    with pytest.raises(PeerDeclined, match=f"{B}: {why}"):
        await third.call(B, call())

    [(peer, reason)] = told
    assert (peer, len(b.links), b.links.refused_count) == ("c", 7, 1)
    assert began <= b.links.refused_at <= trio.current_time()
    assert "a connection was refused" in reason
    for stream in streams:
        stream.close()


async def test_when_all_connections_are_in_use_the_idlest_makes_room(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b", limits=WireLimits(connections_max=2))
    told: list[str] = []
    b.on_trouble = lambda _peer, _endpoint, reason, *_: told.append(reason)
    first, second = await start("c"), await start("d")
    b.serve("app", "/echo", echo)
    for client in (first, second):
        await client.call(B, call())
    too_soon = await network.connect(B, origin=Address("e", 1))
    assert await too_soon.receive() == b""
    await trio.sleep(2 * IDLE_S)
    await first.call(B, call())

    newcomer = await start("f")
    await newcomer.call(B, call())

    assert sorted(link.remote_host for link in b.links) == ["c", "f"]
    came = "it came when all 2 connections are in use: idle ones end"
    refused = f"a connection was refused: {B}: all 2 connections are in use (connections_max)"
    assert told == [came, refused, came]


async def test_a_connection_with_a_call_under_way_makes_no_room(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b", limits=WireLimits(connections_max=1))

    async def slow(_incoming: IncomingCall) -> Answer:
        await trio.sleep(3 * IDLE_S)
        return Answer(ok=True)

    b.serve("app", "/slow", slow)
    first = await start("c")
    answers: list[Answer | CallError] = []
    first.begin(B, call("/slow", ttl_s=9.0), answers.append)
    await trio.sleep(2 * IDLE_S)

    refused = await network.connect(B, origin=Address("e", 1))

    assert await refused.receive() == b""
    await trio.sleep(2 * IDLE_S)
    assert [isinstance(each, Answer) for each in answers] == [True]


async def test_a_known_host_gets_in_when_all_connections_are_in_use(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b", limits=WireLimits(connections_max=1))
    b.knows_host = lambda host: is_this_machine(host) or host == "member"
    here, member, stranger = (Address(host, 1) for host in ("127.0.0.1", "member", "stranger"))
    first = await network.connect(B, origin=stranger)
    streams = [await network.connect(B, origin=each) for each in (here, member, stranger)]
    await trio.sleep(0.1)

    assert [link.remote_host for link in b.links] == ["stranger", "127.0.0.1", "member"]
    streams += [await network.connect(B, origin=member) for _ in range(2 * RESERVED)]
    await trio.sleep(0.1)
    assert len(b.links) == 1 + RESERVED
    with pytest.raises(ConnectFailed, match="all 1 connections are in use"):
        await b.call(Address("c", 1), call())
    for stream in (first, *streams):
        stream.close()


# Hostile peers.


async def test_a_peer_that_never_introduces_itself_is_left(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b")
    stream = await network.connect(B, origin=None)
    began = trio.current_time()

    assert await stream.receive() == b""

    assert trio.current_time() - began == pytest.approx(b.limits.init_timeout_s, abs=0.1)


async def test_a_frame_that_is_not_finished_in_time_ends_its_connection(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b")
    stream = await hello(network, B)
    began = trio.current_time()

    async def drip() -> None:  # a byte a second, for ever
        for byte in frame(frames.CALL_REQ, 1, bytes(1_000)):
            await stream.send_some(memoryview(bytes((byte,))))
            await trio.sleep(1)

    with pytest.raises(trio.BrokenResourceError):
        await drip()

    assert trio.current_time() - began <= b.limits.frame_timeout_s + 2
    assert len(b.links) == 0


async def test_frames_that_are_finished_in_time_keep_their_connection(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b")
    stream = await hello(network, B)
    ping = frame(frames.PING_REQ, 1)

    await stream.send_some(memoryview(ping[:8]))
    for _ in range(10):  # always a frame under way, never one for long
        await trio.sleep(3)
        await stream.send_some(memoryview(ping[8:] + ping[:8]))
    await stream.send_some(memoryview(ping[8:]))
    await trio.sleep(20)

    assert len(b.links) == 1


async def test_each_call_ends_once_whatever_happens(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    b.serve("app", "/slow", forever)
    ends: dict[int, int] = {}

    def begin(number: int) -> None:
        def done(_: Answer | CallError) -> None:
            ends[number] = ends.get(number, 0) + 1

        endpoint = "/slow" if number % 3 == 0 else "/echo"
        a.begin(B, call(endpoint, bytes(number % 7 * 20_000), ttl_s=0.1 + number % 5), done)

    for number in range(300):
        begin(number)
        if number % 50 == 20:
            network.cut(A, B)
        if number % 50 == 30:
            network.heal()
        if number % 9 == 0:
            await trio.sleep(0.05)
    await trio.sleep(20)

    assert ends == dict.fromkeys(range(300), 1)
    assert sent(a) == serving(b) == 0


async def test_a_failing_callback_harms_no_other_call(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    reported: list[Exception] = []
    a.on_handler_error = lambda _, error: reported.append(error)

    def done(_: Answer | CallError) -> None:
        raise ZeroDivisionError

    a.begin(B, call(), done)
    assert (await a.call(B, call())).ok

    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_a_stopping_channel_ends_its_calls(
    network: MemoryNetwork, start: Start, _clock: Clock
) -> None:
    b = await start("b")
    b.serve("app", "/slow", forever)
    a = Channel(process_name="a", network=network)
    outcomes: list[Answer | CallError] = []

    async with trio.open_nursery() as nursery:
        await nursery.start(a.run)
        a.begin(B, call("/slow"), outcomes.append)
        await trio.sleep(0.1)
        a.begin(Address("nowhere", 1), call("/slow"), outcomes.append)
        nursery.cancel_scope.cancel()

    assert [type(outcome) for outcome in outcomes] == [ConnectionLost, ConnectFailed]
    await trio.sleep(0.1)
    assert len(b.links) == serving(b) == 0
    assert repr(a) == "<Channel at 0.0.0.0:0, 0 connections>"


async def test_calls_that_cross_a_goodbye_certainly_did_not_run(
    start: Start, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    served: list[bytes] = []
    outcomes: list[Answer | CallError] = []
    gone: list[Address] = []
    a.on_disconnect = gone.append

    def serve(incoming: IncomingCall) -> Answer:
        served.append(incoming.arg3)
        return Answer(ok=True, arg3=incoming.arg3)

    b.serve("app", "/echo", serve)
    await a.call(B, call(arg3=b"before"))

    a.begin(B, call(arg3=b"crossing"), outcomes.append)
    for link in b.links:  # before it has read what lies there
        link.say_goodbye("b has ended")
    await b.say_goodbye("b has ended")

    assert served == [b"before"]
    assert [str(outcome) for outcome in outcomes] == ["b:1: b has ended"]
    assert isinstance(outcomes[0], PeerDeclined)
    assert not gone  # nothing broke, so nobody is suspected for it
    with pytest.raises(ConnectRefused):
        await a.call(B, call())


async def test_a_call_that_a_goodbye_cuts_may_have_run(start: Start, _clock: Clock) -> None:
    a, b = await start("a"), await start("b")
    cancelled = trio.Event()

    async def serve(_: IncomingCall) -> Answer:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    b.serve("app", "/slow", serve)
    outcomes: list[Answer | CallError] = []
    a.begin(B, call("/slow", ttl_s=60), outcomes.append)
    await trio.sleep(0.1)

    await b.say_goodbye("b has ended")
    await trio.sleep(0.1)

    assert [type(outcome) for outcome in outcomes] == [CallCancelled]
    assert cancelled.is_set()
    assert len(a.links) == len(b.links) == 0


async def test_answers_that_are_not_sent_yet_come_before_the_goodbye(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b")
    b.serve("app", "/large", lambda _: Answer(ok=True, arg3=bytes(7 << 20)))
    stream = await hello(network, B)
    peer = Connection(host_port="0.0.0.0:0", process_name="x", initiates=True, limits=WireLimits())
    peer.receive(init_frame(frames.INIT_RES, 1, NAMES))
    peer.take_outgoing()
    asked = peer.send_call(call("/large", ttl_s=60))
    await stream.send_some(memoryview(peer.take_outgoing()))
    await trio.sleep(0.1)

    events: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.say_goodbye, "b has ended")
        while data := await stream.receive():
            events += peer.receive(data)

    assert [type(event) for event in events] == [AnswerReceived, Ended]
    assert isinstance(events[0], AnswerReceived)
    assert events[0].id == asked


async def test_a_peer_that_never_closes_delays_a_goodbye_by_a_moment(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b")
    await hello(network, B)
    began = trio.current_time()

    await b.say_goodbye("b has ended")

    assert trio.current_time() - began == LINGER_S


async def test_a_bug_that_one_peer_meets_ends_its_connection_and_nothing_else(
    start: Start, _clock: Clock
) -> None:
    a, b, c = await start("a"), await start("b"), await start("c")
    reported: list[Exception] = []
    b.on_handler_error = lambda _, error: reported.append(error)
    b.serve("app", "/echo", echo)

    def bug(_service: str, _endpoint: str) -> None:
        raise ZeroDivisionError

    b.handlers.on_unserved = bug
    with pytest.raises(ConnectionLost):
        await a.call(B, call("/unserved"))

    assert [type(error) for error in reported] == [ZeroDivisionError]
    assert (await a.call(B, call(arg3=b"1"))).arg3 == b"1"
    assert (await c.call(B, call(arg3=b"2"))).arg3 == b"2"


@pytest.mark.parametrize("speaks", [False, True])
async def test_a_silent_peer_that_owes_an_answer_is_reported_again_and_again(
    start: Start, network: MemoryNetwork, *, speaks: bool, _clock: Clock
) -> None:
    a = await start("a")
    quiet_at: list[float] = []
    a.on_quiet = lambda _address: quiet_at.append(trio.current_time())
    (listener,) = await network.listen(B)

    async def slow() -> None:
        stream = await listener.accept()
        await stream.receive()
        await stream.send_some(memoryview(init_frame(frames.INIT_RES, 1, NAMES)))
        while speaks:
            await trio.sleep(0.3)
            await stream.send_some(memoryview(frame(frames.PING_REQ, 7)))
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        began_at = trio.current_time()
        with pytest.raises(CallTimeout):
            await a.call(B, call(ttl_s=1.8))
        nursery.cancel_scope.cancel()
    await trio.sleep(3)

    # In the first half second it has introduced itself.
    expected = [] if speaks else [1.0, 1.5]
    assert [at - began_at for at in quiet_at] == pytest.approx(expected, abs=0.1)


async def test_a_call_that_was_begun_and_is_answered_leaves_nothing_to_wake_for(
    start: Start, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    b.serve("app", "/forever", forever)
    await a.call(B, call(ttl_s=0.1))
    await trio.sleep(1)
    (due,) = a.wheel._order  # when the connection will be idle
    ended: list[Answer | CallError] = []

    a.begin(B, call(), ended.append)
    await trio.sleep(0.1)
    assert len(ended) == 1
    assert a.wheel._order == [due]

    # While another is under way, both are watched as ever.
    a.begin(B, call(), ended.append)
    a.begin(B, call("/forever", ttl_s=2.0), ended.append)
    await trio.sleep(0.1)
    assert len(ended) == 2
    assert len(a.wheel._order) > 1
    await trio.sleep(3)
    assert isinstance(ended[2], CallTimeout)
    assert a.wheel._order == [due]


async def test_an_answered_call_does_not_postpone_that_the_peer_is_found_quiet(
    start: Start, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/echo", echo)
    b.serve("app", "/forever", forever)
    quiet_at, ended = list[float](), list[Answer | CallError]()
    a.on_quiet = lambda _address: quiet_at.append(trio.current_time() - began)
    a.begin(B, call(), ended.append)
    await trio.sleep(0.3)
    began = trio.current_time()

    a.begin(B, call("/forever", ttl_s=1.3), ended.append)
    await trio.sleep(2)

    assert isinstance(ended[-1], CallTimeout)
    assert quiet_at == pytest.approx([0.5, 1.0], abs=2 * TICK_S)


async def test_an_observer_of_quiet_peers_may_call_such_a_peer_immediately(
    start: Start, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/forever", forever)
    quiet_at, ended = list[float](), list[Answer | CallError]()

    def quiet(to: Address) -> None:
        quiet_at.append(trio.current_time() - began)
        a.begin(to, call("/forever", ttl_s=0.2), ended.append)

    a.on_quiet = quiet
    b.serve("app", "/echo", echo)
    await a.call(B, call())
    await trio.sleep(2)
    began = trio.current_time()
    a.begin(B, call("/forever", ttl_s=1.2), ended.append)
    await trio.sleep(3)

    # Then it speaks: it refuses the second call, whose time is over.
    assert quiet_at == pytest.approx([0.5], abs=2 * TICK_S)
    assert len(ended) == 2


def _frame_count(data: bytes) -> int:
    return len(frames.FrameReader().feed(data)[1])


async def test_calls_of_one_tick_leave_in_pieces(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    (listener,) = await network.listen(B)
    sends: list[int] = []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forgotten, a)
        stream = await listener.accept()
        await stream.receive()
        await stream.send_some(memoryview(init_frame(frames.INIT_RES, 1, NAMES)))
        await stream.receive()  # the first call, which came before the others
        for _ in range(3 * PIECE_FRAMES + 3):
            nursery.start_soon(_forgotten, a)
        while sum(sends) < 3 * PIECE_FRAMES + 3:
            sends.append(_frame_count(await stream.receive()))
        nursery.cancel_scope.cancel()

    assert sends == [PIECE_FRAMES, 2 * PIECE_FRAMES, 3]


async def _forgotten(channel: Channel) -> None:
    with suppress(CallError):
        await channel.call(B, call())


async def test_answers_of_one_receive_leave_in_pieces(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    b = await start("b")
    b.serve("app", "/echo", echo)
    caller = Connection(
        host_port="0.0.0.0:0", process_name="x", initiates=True, limits=WireLimits()
    )
    stream = await network.connect(B, origin=None)
    stream.send_nowait(caller.take_outgoing())
    caller.receive(await stream.receive())
    sends: list[int] = []

    for _ in range(3 * PIECE_FRAMES + 3):
        caller.send_call(call())
    stream.send_nowait(caller.take_outgoing())
    while sum(sends) < 3 * PIECE_FRAMES + 3:
        sends.append(len(caller.receive(await stream.receive())))

    assert sends == [PIECE_FRAMES, 2 * PIECE_FRAMES, 3]


@pytest.mark.parametrize("ttls", [(0.5, 3.0, 1.0), (3.0, 1.0, 0.5), (1.0, 1.0, 0.5)])
@pytest.mark.parametrize("connects", [False, True])
async def test_each_call_ends_when_its_own_time_is_over(
    start: Start, network: MemoryNetwork, *, connects: bool, ttls: tuple[float, ...], _clock: Clock
) -> None:
    a = await start("a", limits=WireLimits(connect_timeout_s=60.0))
    (listener,) = await network.listen(B)
    took: dict[int, float] = {}

    async def one(number: int, ttl_s: float) -> None:
        began = trio.current_time()
        with pytest.raises(CallTimeout if connects else ConnectTooSlow):
            await a.call(B, call(ttl_s=ttl_s))
        took[number] = trio.current_time() - began

    async with trio.open_nursery() as nursery:
        for number, ttl_s in enumerate(ttls):
            nursery.start_soon(one, number, ttl_s)
        if connects:
            stream = await listener.accept()
            await stream.receive()
            await stream.send_some(memoryview(init_frame(frames.INIT_RES, 1, NAMES)))

    assert all(ttl_s <= took[at] <= ttl_s + 2 * TICK_S for at, ttl_s in enumerate(ttls))
    assert sent(a) == 0


async def test_a_connection_that_is_over_leaves_nothing_on_the_wheel(
    start: Start, network: MemoryNetwork, _clock: Clock
) -> None:
    a = await start("a")
    (listener,) = await network.listen(B)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forgotten, a)
        (await listener.accept()).close()

        await a.links.wait_empty()
        nursery.cancel_scope.cancel()

    assert not any(a.wheel._buckets.values())


async def test_the_end_of_a_call_may_end_others_whose_time_is_over(
    start: Start, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    b.serve("app", "/slow", forever)
    outcomes: list[str] = []

    def done(outcome: Answer | CallError) -> None:
        outcomes.append(type(outcome).__name__)
        a.give_up_calls(B, lambda _: True, "enough")

    for _ in range(3):
        a.begin(B, call("/slow"), done)
    await trio.sleep(5)

    assert outcomes == ["CallTimeout", "PeerSilent", "PeerSilent"]
    assert sent(a) == 0


async def test_a_call_that_another_cancels_when_the_connection_is_up_is_not_sent(
    start: Start, nursery: trio.Nursery, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    served: list[str] = []
    b.serve("app", "*", lambda incoming: served.append(incoming.endpoint))
    scope = trio.CancelScope()

    async def second() -> None:
        with scope:
            await a.call(B, call())

    # The first is refused when it could be sent, and the one who made it cancels the second.
    too_long = "/" + "x" * ENDPOINT_BYTES_MAX
    a.begin(B, call(too_long), lambda _: scope.cancel())
    nursery.start_soon(second)
    await trio.sleep(5)

    assert scope.cancelled_caught
    assert served == []
    assert not any(link.busy for link in a.links)


async def test_answers_come_as_they_are_ready(
    start: Start, nursery: trio.Nursery, _clock: Clock
) -> None:
    a, b = await start("a"), await start("b")
    order: list[bytes] = []

    async def slow(incoming: IncomingCall) -> Answer:
        await trio.sleep(float(incoming.arg3))
        return Answer(ok=True, arg3=incoming.arg3)

    async def caller(seconds: bytes) -> None:
        order.append((await a.call(B, call("/slow", seconds, ttl_s=9.0))).arg3)

    b.serve("app", "/slow", slow)
    for seconds in (b"3", b"1", b"2"):
        nursery.start_soon(caller, seconds)
    await trio.sleep(4)

    assert order == [b"1", b"2", b"3"]
