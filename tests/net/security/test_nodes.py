"""Nodes with keys: who may call what, and who says to be whom."""

from __future__ import annotations

import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import BadRequest, CallError, JoinRefused
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.edge.admin import keyspaces, leaders, ticks
from ringpop_py.edge.admin.endpoints import CHANGES, LEAST, READS
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import JoinAck, Ping
from ringpop_py.net.http.stream_calls import STREAM_ENDPOINT
from ringpop_py.net.security.credentials import KeyCredentials
from ringpop_py.net.security.identity import SHUFFLERS, Identity, Role
from ringpop_py.net.security.keys import new_key, read_keys, write_keys
from ringpop_py.net.security.permits import NEWCOMERS_MAX
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.transport.tls import TlsNetwork
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.net.wire.codec import DAMP_REQ, JOIN, NAME_REQ, PING, PING_REQ, SYNC, codec_for
from ringpop_py.route.proxy.entry import ALL_ENDPOINT, FOLLOW_ENDPOINT, FORWARD_ENDPOINT
from ringpop_py.route.proxy.head import MANY_ENDPOINT, RELAY_ENDPOINT
from ringpop_py.route.proxy.http import FLOW_ENDPOINT, PROXY_ENDPOINT
from ringpop_py.state.jobs import messages as jobs
from ringpop_py.state.keyspaces.endpoints import MEMBERS_ONLY
from ringpop_py.state.leaders.record import READ, SWAP
from ringpop_py.state.messages import CLIENT_WATCH, OF_READERS, OF_RECORDS, ROUTED, TELL, WATCH
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.net.transport.serving import IncomingCall

US, THEM = Address("10.0.0.1", 3000), Address("10.0.0.2", 3000)
CODEC: Final = codec_for(dialect_named("native"))


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = str(tmp_path / "key")
    write_keys(path, (new_key(),), replace=False)
    return path


@asynccontextmanager
async def caller(
    network: MemoryNetwork, key: str, role: Role, name: str, *, keyspaces: tuple[str, ...] = ()
) -> AsyncIterator[Channel]:
    cluster = "default" if role in SHUFFLERS else ""
    credentials = KeyCredentials(key, Identity(cluster, role, name, keyspaces))
    channel = Channel(process_name=name, network=TlsNetwork(network, credentials))
    async with trio.open_nursery() as nursery:
        await channel.listen(THEM)
        await nursery.start(channel.run)
        yield channel
        nursery.cancel_scope.cancel()


def call(endpoint: str, body: bytes = b"") -> Call:
    return Call(NODE_SERVICE, endpoint, b"", body, ttl_s=1.0, scheme="msgpack")


OF_ADMINS: Final = {path for path, role in LEAST.items() if role is Role.ADMIN}
ADMINS: Final = sorted(
    {*CHANGES, *keyspaces.CHANGES, *OF_ADMINS, leaders.RESIGN, "/trace/add", "/trace/remove"}
)
MEMBERS: Final = sorted({*MEMBERS_ONLY, PING, PING_REQ, JOIN, SYNC, DAMP_REQ, NAME_REQ})

WATCHES: Final = (WATCH, CLIENT_WATCH)
READERS: Final = sorted(
    {
        *READS,
        *keyspaces.READS,
        leaders.LIST,
        ticks.LIST,
        "/admin/cluster",
        *OF_RECORDS,
        *OF_READERS,
        *WATCHES,
    }
    - {*OF_ADMINS}
)
"""Of `OF_RECORDS`, those that write refuse readers by `check_use`: see `test_permits`."""
JOBS: Final = (jobs.STAGE, jobs.FINISH, jobs.DECIDE, jobs.SETTLE, jobs.STATUS, jobs.SCHEMAS)
HANDLERS: Final = (PROXY_ENDPOINT, FLOW_ENDPOINT, STREAM_ENDPOINT, MANY_ENDPOINT, RELAY_ENDPOINT)
ENTRY: Final = (FOLLOW_ENDPOINT, FORWARD_ENDPOINT, ALL_ENDPOINT)
ACTORS: Final = (messages.ACTOR, ROUTED[messages.ACTOR], TELL)
LEADERS: Final = (READ, SWAP)
CLIENTS: Final = sorted({*keyspaces.CREATES, *LEADERS, *ACTORS, *JOBS, *HANDLERS, *ENTRY})
"""What changes something, or runs code of the application."""


async def test_each_endpoint_is_for_its_role_and_those_above(key: str) -> None:
    network, refused = MemoryNetwork(), {}
    config = Config(listen=US, cluster_key=key)
    async with open_ringpop(config, network=network, store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        served = {name for service, name in node.channel.handlers.served if service == NODE_SERVICE}
        for role in (Role.READER, Role.CLIENT, Role.ADMIN):
            async with caller(network, key, role, "job") as channel:
                for endpoint in {*served, *MEMBERS} - ({*ADMINS} if role is Role.ADMIN else set()):
                    try:
                        await channel.call(US, call(endpoint, b"\xc1"))
                    except CallError as error:
                        refused[role, endpoint] = str(error)

    needed = {
        role: {
            name for (who, name), why in refused.items() if who is role and "for the role" in why
        }
        for role in (Role.READER, Role.CLIENT, Role.ADMIN)
    }
    # Each endpoint stands in one of the lists above: of a new one, say whether readers may call it.
    assert served == {*MEMBERS, *ADMINS, *CLIENTS, *READERS}
    assert needed == {
        Role.READER: {*MEMBERS, *ADMINS, *CLIENTS},
        Role.CLIENT: {*MEMBERS, *ADMINS},
        Role.ADMIN: set(MEMBERS),
    }


async def test_a_client_has_one_member_ask_all_for_what_it_may_ask_itself(key: str) -> None:
    network, other = MemoryNetwork(), Address("10.0.0.9", 3000)
    body = encode_value("msgpack", {"sections": ["node", "settings", "checkup", "work", "reach"]})
    async with (
        open_ringpop(Config(name="a", listen=US, cluster_key=key), network=network) as a,
        open_ringpop(Config(name="b", listen=other, hosts=(US,), cluster_key=key), network=network),
        caller(network, key, Role.CLIENT, "job") as channel,
    ):
        await a.wait_until(lambda node: len(node.ring) == 2)
        answer = await channel.call(US, call("/admin/cluster", body))
        said = decode_value("msgpack", answer.arg3)["said"]
        for endpoint in ("/admin/node", "/admin/config/get", "/admin/checkup"):
            assert (await channel.call(other, call(endpoint))).ok

    assert {name: each["node"]["name"] for name, each in said.items()} == {"a": "a", "b": "b"}


async def test_a_process_for_shuffles_may_call_what_its_records_need_and_nothing_else(
    key: str,
) -> None:
    network, allowed = MemoryNetwork(), set()
    config = Config(listen=US, cluster_key=key)
    async with open_ringpop(config, network=network, store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        node.channel.serve("app", "*", lambda _incoming: Answer(ok=True))
        served = sorted(node.channel.handlers.served)
        async with caller(network, key, Role.SHUFFLES, "b") as channel:
            for service, endpoint in served:
                try:
                    await channel.call(US, Call(service, endpoint, b"", b"\xc1", ttl_s=1.0))
                except CallError as error:
                    if "is for the role" in str(error):
                        continue
                allowed.add(endpoint)

    assert len(served) > len(ADMINS) + len(MEMBERS)
    assert allowed == {"/admin/members", *OF_RECORDS}


async def test_a_member_gossips_in_its_own_name_alone(key: str) -> None:
    network = MemoryNetwork()
    async with (
        open_ringpop(Config(listen=US, cluster_key=key), network=network),
        caller(network, key, Role.MEMBER, "b") as channel,
    ):
        for source, permitted in (("b", True), ("c", False)):
            ping = Ping("default", 100, source, *THEM, round(time.time() * 1000), None)
            asked = call(PING, CODEC.encode_request(ping))
            if permitted:
                assert (await channel.call(US, asked)).ok
            else:
                with pytest.raises(BadRequest, match="it says that it is 'c', and is ringpop://"):
                    await channel.call(US, asked)


async def test_an_answer_in_another_name_is_not_used(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    forged = Member("c", *THEM, round(time.time() * 1000))

    def join(_incoming: IncomingCall) -> Answer:
        ack = JoinAck("default", "c", forged.incarnation, None, (forged,))
        return Answer(ok=True, arg3=CODEC.encode_response(ack))

    async with caller(network, key, Role.MEMBER, "b") as channel:
        channel.serve(NODE_SERVICE, JOIN, join)
        config = Config(listen=US, cluster_key=key, hosts=(THEM,))
        async with open_ringpop(config, network=network, wait_ready=False) as node:
            with trio.fail_after(10):
                while not events_in(caplog, "peer-trouble"):
                    await trio.sleep(0.01)
            assert [member.name for member in node.members] == [str(US)]

    assert "it says that it is 'c', and is ringpop://default/member/b" in str(
        events_in(caplog, "peer-trouble")[0]
    )


@pytest.mark.parametrize("both_keys", [False, True], ids=["another key", "only we trust them"])
async def test_a_node_whose_key_no_host_trusts_ends_and_takes_nothing_over(
    key: str,
    tmp_path: Path,
    both_keys: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    network, store, other = MemoryNetwork(), MemoryStore(), str(tmp_path / "other")
    trusted = read_keys(key) if both_keys else ()
    write_keys(other, (new_key(), *trusted), replace=False)
    async with open_ringpop(Config(listen=US, cluster_key=key), network=network, store=store) as a:
        keyspace = await a.open_keyspace("k", partitions=4)
        await keyspace.put("key", 1)
        config = Config(listen=THEM, hosts=(US,), cluster_key=other)

        with pytest.raises(JoinRefused, match=r"10.0.0.1:3000 refuses this node: .* trust"):
            async with open_ringpop(config, network=network, store=store):
                pass

        assert [row.epoch for row in keyspace.table] == [1] * 4
        assert await keyspace.get("key") == 1


def client_hello(key: str) -> bytes:
    """The first bytes of a handshake, for which the other end computes keys and a signature."""
    context = KeyCredentials(key, Identity("", Role.CLIENT, "x")).context(server=False)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def test_strangers_that_begin_handshakes_and_stop_keep_no_member_out(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    network, hello = MemoryNetwork(), client_hello(key)
    config = Config(name="b", listen=THEM, hosts=(US,), cluster_key=key)
    async with (
        open_ringpop(Config(name="a", listen=US, cluster_key=key), network=network) as a,
        open_ringpop(config, network=network) as b,
    ):
        for node in (a, b):
            await node.wait_until(lambda node: len(node.ring) == 2)
        links, strangers = a.channel.links, []
        for number in range(200):
            stranger = await network.connect(US, origin=Address(f"10.1.0.{number}", 1))
            stranger.send_nowait(hello)
            strangers.append(stranger)
        with trio.fail_after(5):
            while links.refused_count < 200 - NEWCOMERS_MAX:
                await trio.sleep(0.01)
        assert len(links.newcomers) == NEWCOMERS_MAX
        assert await strangers[-1].receive() == b""  # closed, without a handshake

        before = [link for link in b.channel.links if link.address == US]  # both may have dialed
        assert before
        network.cut(US, THEM)  # the member has to connect again
        network.heal()
        with trio.fail_after(1):
            while not all(link.over for link in before):
                await trio.lowlevel.checkpoint()
            assert (await b.channel.call(US, call("/health"))).ok

        assert len(links.newcomers) == NEWCOMERS_MAX  # the strangers are still there
        assert links.refused_count == 200 - NEWCOMERS_MAX
        for stranger in strangers:
            stranger.close()
        with trio.fail_after(5):
            while links.newcomers:
                await trio.sleep(0.01)
    assert "that have not introduced themselves" in str(events_in(caplog, "peer-trouble")[0])
