"""Whatever a node cannot read or accept of a peer is one warning a peer and reason."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import PRESETS
from ringpop_py.base.errors import BadRequest, CallError, PeerDeclined, PeerFailed
from ringpop_py.base.logs import LogEvent
from ringpop_py.base.values.packed import encode_value
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.net.wire.frames import frame
from ringpop_py.net.wire.init import PROTOCOL
from ringpop_py.net.wire.ringpop_codec import JOIN, PING
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.base.config.settings import DialectName
    from ringpop_py.net.transport.serving import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time

US, PEER = Address("10.0.0.1", 3000), Address("10.0.0.2", 3000)
BOTH: Final = pytest.mark.parametrize("dialect", ["native", "ringpop"])
SCHEMES: Final = {"native": "msgpack", "ringpop": "json"}


def config(dialect: DialectName, **options: object) -> Config:
    gossip = PRESETS["ringpop" if dialect == "ringpop" else "lan"]
    settings = {"listen": US, "dialect": dialect, "cluster": "test", "gossip": gossip, **options}
    return Config(**settings)  # type: ignore[arg-type] # one of each


@asynccontextmanager
async def node_with_peer(
    dialect: DialectName,
    answers: dict[str, Answer | Exception] | None = None,
    introduced: dict[str, str] | None = None,
    **options: object,
) -> AsyncIterator[tuple[Ringpop, Channel]]:
    """A node that has one host, and that host: it gives *answers*, by endpoint."""
    network = MemoryNetwork()
    headers = {"cluster": "test", **(introduced or {})} if dialect == "native" else {}
    peer = Channel(
        host_port=PEER, process_name="peer", network=network, init_headers=lambda: headers
    )
    for endpoint, answer in (answers or {}).items():
        peer.serve(NODE_SERVICE, endpoint, partial(given, answer))
    await peer.listen(PEER)
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.run)
        ours = config(dialect, **({"hosts": (PEER,)} | options))
        async with open_ringpop(ours, network=network, wait_ready=False) as ringpop:
            yield ringpop, peer
        nursery.cancel_scope.cancel()


def given(answer: Answer | Exception, _incoming: IncomingCall) -> Answer:
    if isinstance(answer, Exception):
        raise answer
    return answer


def events_in(caplog: pytest.LogCaptureFixture, *names: str) -> list[LogEvent]:
    """The warnings of these names."""
    said = [record.msg for record in caplog.records if record.levelname == "WARNING"]
    return [event for event in said if isinstance(event, LogEvent) and event.name in names]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[LogEvent]:
    return events_in(caplog, "peer-trouble")


def told(event: LogEvent) -> tuple[object, object]:
    assert event.fields["advice"]
    return event.fields["peer"], event.fields["endpoint"]


async def asked(peer: Channel, endpoint: str, body: bytes, scheme: str) -> Answer | CallError:
    try:
        return await peer.call(
            US, Call(NODE_SERVICE, endpoint, b"", body, ttl_s=1.0, scheme=scheme)
        )
    except CallError as error:
        return error


@BOTH
async def test_a_list_that_cannot_be_read_is_told_once_however_often_it_comes(
    dialect: DialectName, caplog: pytest.LogCaptureFixture
) -> None:
    list_ = Answer(ok=True, arg3=encode_value(SCHEMES[dialect], {"membership": 5}))

    async with node_with_peer(dialect, {JOIN: list_}):
        await trio.sleep(60)

    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), JOIN)
    assert "its answer cannot be read, and was not used: " in str(warning.fields["reason"])
    assert str(warning).startswith(f"{PEER}, {JOIN}: its answer cannot be read")
    assert str(warning).endswith("; " + str(warning.fields["advice"]))


@BOTH
async def test_a_request_that_cannot_be_read_is_told_once_a_reason(
    dialect: DialectName, caplog: pytest.LogCaptureFixture
) -> None:
    scheme = SCHEMES[dialect]
    async with node_with_peer(dialect, hosts=()) as (_, peer):
        outcomes = [
            await asked(peer, PING, encode_value(scheme, body), scheme)
            for body in ([5], "ping", "ping", "ping")
        ]
        outcomes += [await asked(peer, PING, b"\xc1{", scheme) for _ in range(2)]

    assert {type(outcome) for outcome in outcomes} == {BadRequest}
    assert [told(warning) for warning in warnings_in(caplog)] == [(str(PEER), PING)] * 3


async def test_a_client_that_only_calls_is_reported_by_its_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    client = Channel(process_name="client", network=network)
    async with (
        trio.open_nursery() as nursery,
        open_ringpop(config("native"), network=network),
    ):
        await nursery.start(client.run)
        await asked(client, "/admin/lookup", b"\xc1", "msgpack")
        nursery.cancel_scope.cancel()

    assert [told(warning) for warning in warnings_in(caplog)] == [("memory", "/admin/lookup")]


@BOTH
async def test_the_other_dialect_is_told(
    dialect: DialectName, caplog: pytest.LogCaptureFixture
) -> None:
    other = "json" if dialect == "native" else "msgpack"
    async with node_with_peer(dialect, hosts=()) as (_, peer):
        await asked(peer, PING, encode_value(other, {}), other)

    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), PING)
    assert f"this cluster gossips in {SCHEMES[dialect]}, not in {other}" in str(warning)


@BOTH
async def test_an_endpoint_that_is_not_there_is_told(
    dialect: DialectName, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with_peer(dialect, hosts=()) as (_, peer):
        for _ in range(3):
            await asked(peer, "/protocol/new", b"", "json")

    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), "/protocol/new")
    assert "no endpoint /protocol/new of ringpop" in str(warning)


async def test_frames_that_break_the_protocol_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async with node_with_peer("native", hosts=()) as (_, peer):
        await asked(peer, "/health", b"", "json")
        (link,) = peer.links
        link.connection.queue.put(frame(0x77, 1))
        link.writer.flush()
        await trio.sleep(1)

    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), "connection")
    assert "it was closed: a frame of type 0x77 is out of place here" in str(warning)


async def test_a_wrong_checksum_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with node_with_peer("native", hosts=()) as (_, peer):
        await asked(peer, "/health", b"", "json")
        (link,) = peer.links
        call = Call(NODE_SERVICE, PING, b"", b"truth", ttl_s=1.0, checksum_type=1)
        link.connection.send_call(call)
        link.connection.queue.put(link.connection.take_outgoing().replace(b"truth", b"trust"))
        link.writer.flush()
        await trio.sleep(1)

    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), NODE_SERVICE)
    assert "the checksum does not match" in str(warning)


async def test_a_row_that_is_left_out_is_told_and_the_rest_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [
        {"address": str(PEER), "status": "alive", "incarnationNumber": 1},
        {"address": "10.0.0.3:3000", "status": "asleep", "incarnationNumber": 1},
    ]
    list_ = Answer(ok=True, arg3=json.dumps({"app": "test", "membership": rows}).encode())

    async with node_with_peer("ringpop", {JOIN: list_}) as (ringpop, _):
        await ringpop.wait_ready()
        known = [member.name for member in ringpop.members]

    assert known == [str(US), str(PEER)]
    (warning,) = [w for w in warnings_in(caplog) if w.fields["endpoint"] == JOIN]
    assert "used without a part: the row of 10.0.0.3:3000: its status 'asleep'" in str(warning)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(ok=False, arg3=b"not today"), "it refuses this node: error: not today"),
        (BadRequest("what is this?"), "the call failed: what is this?"),
        (PeerFailed("oh"), "the call failed: oh"),
    ],
)
async def test_a_peer_that_refuses_our_pings_is_told(
    answer: Answer | Exception,
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"address": str(PEER), "status": "alive", "incarnationNumber": 1}]
    list_ = Answer(ok=True, arg3=json.dumps({"app": "test", "membership": rows}).encode())

    async with node_with_peer("ringpop", {JOIN: list_, PING: answer}):
        await trio.sleep(4)

    warnings = [w for w in warnings_in(caplog) if w.fields["endpoint"] == PING]
    assert [told(warning) for warning in warnings] == [(str(PEER), PING)]
    assert text in str(warnings[0])


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"error","message":"node is not ready to handle requests"}',
        b'{"type":"ringpop.not-ready","message":"wait"}',
        b'{"type":"ringpop.leaving","message":"n2 is about to end"}',
    ],
)
async def test_a_peer_that_is_not_ready_yet_or_about_to_end_is_no_trouble(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"address": str(PEER), "status": "alive", "incarnationNumber": 1}]
    list_ = Answer(ok=True, arg3=json.dumps({"app": "test", "membership": rows}).encode())

    async with node_with_peer("ringpop", {JOIN: list_, PING: Answer(ok=False, arg3=body)}):
        await trio.sleep(4)

    assert [w for w in warnings_in(caplog) if w.fields["endpoint"] == PING] == []


async def test_a_refused_peer_is_reported_at_the_node_that_refuses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    join = encode_value("msgpack", ["test", 7, str(PEER), *PEER, 1, 1000])
    async with node_with_peer("native", hosts=()) as (_, peer):
        await asked(peer, JOIN, join, "msgpack")

    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), JOIN)
    assert "set --ring-points to one number" in str(warning)


async def test_a_row_that_is_not_believed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"address": str(PEER), "status": "alive", "incarnationNumber": 1 << 60}]
    list_ = Answer(ok=True, arg3=json.dumps({"app": "test", "membership": rows}).encode())

    async with node_with_peer("ringpop", {JOIN: list_}) as (ringpop, _):
        await ringpop.wait_ready()

    (warning,) = warnings_in(caplog)
    assert "the row of 10.0.0.2:3000 was not accepted: its incarnation" in str(warning)
    assert "set the clock" in str(warning)


async def test_troubles_are_among_the_events_once() -> None:
    async with node_with_peer("native", hosts=()) as (ringpop, peer):
        for _ in range(5):
            await asked(peer, PING, b"\xc1", "msgpack")
        records = [r for r in ringpop.reporter.events.last(100) if r["event"] == "peer-trouble"]

    assert [(record["peer"], record["endpoint"]) for record in records] == [(str(PEER), PING)]


# Names of clusters.


@pytest.mark.parametrize("name", ["ringpop", "another", None])
async def test_in_the_ringpop_dialect_the_name_in_a_list_is_not_compared(
    name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"address": str(PEER), "status": "alive", "incarnationNumber": 1}]
    said = {"membership": rows} if name is None else {"membership": rows, "app": name}
    list_ = Answer(ok=True, arg3=json.dumps(said).encode())

    async with node_with_peer("ringpop", {JOIN: list_}) as (ringpop, _):
        await ringpop.wait_ready()
        known = [member.name for member in ringpop.members]

    assert known == [str(US), str(PEER)]
    assert events_in(caplog, "join-rejected", "stranger-refused") == []


async def test_in_the_ringpop_dialect_a_mismatch_is_told_once_with_both_names_at_both_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    ours = config("ringpop", cluster="crimson", hosts=())
    theirs = config("ringpop", cluster="azure", hosts=(US,), listen=PEER)

    async with (
        open_ringpop(ours, network=network),
        open_ringpop(theirs, network=network, wait_ready=False),
    ):
        await trio.sleep(60)

    refused, rejected = events_in(caplog, "join-rejected", "stranger-refused")
    assert str(refused) == (
        f"refused {PEER}, of cluster 'azure': this node is of 'crimson'; "
        "give both the same --cluster if they belong together"
    )
    assert "the app here is 'crimson', not 'azure'" in str(rejected)


async def test_nodes_of_the_ringpop_dialect_meet_under_its_name() -> None:
    network = MemoryNetwork()
    named = Config(listen=US, dialect="ringpop", cluster="ringpop", gossip=PRESETS["ringpop"])
    unnamed = Config(listen=PEER, dialect="ringpop", hosts=(US,), gossip=PRESETS["ringpop"])

    async with open_ringpop(named, network=network), open_ringpop(unnamed, network=network) as b:
        assert [member.name for member in b.members] == [str(US), str(PEER)]


async def test_a_peer_of_another_version_is_refused_with_both_named_and_the_node_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newer = node_with_peer("native", introduced={PROTOCOL: "2"}, hosts=())

    async with newer as (node, peer):
        refusals = [await asked(peer, PING, b"", "msgpack") for _ in range(2)]
        await trio.sleep(1)

        assert {type(refusal) for refusal in refusals} == {PeerDeclined}
        assert "version 1 of the protocol is spoken here, not version '2'" in str(refusals[0])
        assert node.ready
    (warning,) = warnings_in(caplog)
    assert told(warning) == (str(PEER), "connection")
    assert "version 1 of the protocol is spoken here, not version '2'" in str(warning)


async def test_a_node_that_would_join_a_newer_version_says_so_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node_with_peer("native", introduced={PROTOCOL: "2"}) as (node, _):
        await trio.sleep(60)

        assert len(node.members) == 1
    for name in ("peer-trouble", "join-rejected"):
        (warning,) = events_in(caplog, name)
        assert "version 1 of the protocol is spoken here, not version '2'" in str(warning)


async def test_a_caller_that_names_no_version_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async with node_with_peer("native", {JOIN: BadRequest("planted")}, hosts=()) as (_, peer):
        outcome = await asked(peer, PING, b"", "msgpack")

    assert isinstance(outcome, BadRequest)
    assert "connection" not in [told(warning)[1] for warning in warnings_in(caplog)]
