"""The node's endpoints besides the protocol, as tools of Ringpop and our own call them."""

from __future__ import annotations

import json
import math
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import CLUSTERS, PRESETS
from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import BadRequest
from ringpop_py.base.values.declared import replace
from ringpop_py.edge.admin import keyspaces
from ringpop_py.edge.admin.endpoints import CHANGES, READS
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Ack, JoinAck, MemberChange, Ping
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.transport.serving import IncomingCall
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.net.wire.codec import JOIN, PING, codec_for
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from ringpop_py.base.config.settings import DialectName
    from ringpop_py.node.ringpop import Ringpop

US: Final = Address("10.0.0.1", 3000)
ASKED_NOTHING: Final = (
    "/health",
    "/admin/stats",
    "/admin/gossip",
    "/admin/gossip/start",
    "/admin/gossip/stop",
    "/admin/gossip/tick",
    "/admin/gossip/status",
    "/admin/tick",
    "/admin/member/leave",
    "/admin/member/join",
    "/admin/leave",
    "/admin/join",
    "/admin/reap",
    "/admin/healpartition/disco",
    "/admin/config/get",
    "/admin/debugSet",
    "/admin/debugClear",
)
"""Ringpop's endpoints whose callers have nothing to say."""


class Caller:
    """Asks one node in JSON."""

    def __init__(self, channel: Channel, network: MemoryNetwork) -> None:
        self.network = network
        self._channel = channel

    async def ask(self, endpoint: str, body: bytes = b"", scheme: str = "json") -> tuple[bool, Any]:
        """Whether it was done, and the answer. Raises CallError."""
        call = Call(NODE_SERVICE, endpoint, b"", body, ttl_s=5.0, scheme=scheme)
        answer = await self._channel.call(US, call)
        return answer.ok, json.loads(answer.arg3)


@asynccontextmanager
async def node_and_caller(
    dialect: DialectName = "ringpop",
    *,
    wait_ready: bool = True,
    **options: Any,  # noqa: ANN401 - as Config takes them
) -> AsyncIterator[tuple[Ringpop, Caller]]:
    network = MemoryNetwork()
    client = Channel(process_name="client", network=network)
    gossip = PRESETS["ringpop" if dialect == "ringpop" else "lan"]
    config = Config(listen=US, dialect=dialect, gossip=gossip, **options)
    async with (
        trio.open_nursery() as nursery,
        open_ringpop(config, network=network, wait_ready=wait_ready) as ringpop,
    ):
        await nursery.start(client.run)
        yield ringpop, Caller(client, network)
        nursery.cancel_scope.cancel()


# As Ringpop's tools ask.


@pytest.mark.parametrize("scheme", ["json", "raw"])
@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"new":[1e3]}', b" {} \n"])
async def test_a_caller_without_arguments_may_send_any_body_and_scheme(
    body: bytes, scheme: str, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with node_and_caller() as (_, caller):
        answers = [await caller.ask(endpoint, body, scheme) for endpoint in ASKED_NOTHING]

    assert [ok for ok, _ in answers] == [True] * len(ASKED_NOTHING)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b'{"key":null}',
        b'{"key":"k"}',
        b'{"KEY":"k","new":[]}',
        b'{"key":"j","key":"k"}',
        b'{"key":"\xff"}',
        b'{"key":"\\ud800"}',
    ],
)
async def test_a_lookup_is_read_as_go_reads_it(body: bytes, autojump_clock: MockClock) -> None:
    del autojump_clock
    async with node_and_caller() as (_, caller):
        assert await caller.ask("/admin/lookup", body) == (True, {"dest": str(US)})


@pytest.mark.parametrize("body", [b"[]", b'"k"', b'{"key":1}', b'{"key":["k"]}', b"{"])
async def test_a_lookup_that_go_refuses_is_refused(body: bytes, autojump_clock: MockClock) -> None:
    del autojump_clock
    async with node_and_caller() as (_, caller):
        with pytest.raises(BadRequest):
            await caller.ask("/admin/lookup", body)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"kye":"k"}', b'{"key":null}'])
async def test_in_the_native_dialect_a_lookup_names_its_key(
    body: bytes, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with node_and_caller("native") as (_, caller):
        with pytest.raises(BadRequest, match="key is missing"):
            await caller.ask("/admin/lookup", body)


@pytest.mark.parametrize("body", [b"{}", b'"all"', b"null"])
async def test_settings_are_all_shown_to_who_names_none(
    body: bytes, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with node_and_caller() as (_, caller):
        _, everything = await caller.ask("/admin/config/get", body)
        _, one = await caller.ask("/admin/config/get", b'["period_s"]')

    assert one == {"period_s": everything["period_s"]}
    assert len(everything) > 20


@pytest.mark.parametrize("expires", ["", ',"expiresIn":null', ',"expiresIn":1000'])
async def test_a_trace_ends_by_itself_unless_it_says_when(
    expires: str, autojump_clock: MockClock
) -> None:
    del autojump_clock
    body = f'{{"event":"membership.checksum.update","sink":{{"type":"log"}}{expires}}}'.encode()

    async with node_and_caller() as (_, caller):
        assert await caller.ask("/trace/add", body) == (True, {"status": "ok"})


async def test_a_request_for_a_change_is_logged_with_its_caller_and_a_read_is_not(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    del autojump_clock
    caplog.set_level("INFO", "ringpop")
    async with node_and_caller("native") as (_, caller):
        for endpoint in sorted(READS | keyspaces.READS):
            with suppress(BadRequest):
                await caller.ask(endpoint, b"{}")
        told_of_reads = events_in(caplog, "change-asked")
        await caller.ask("/admin/config/set", b'{"period_s": 0.5}')
        await caller.ask("/admin/member/leave")

    assert told_of_reads == []
    told = [event.fields for event in events_in(caplog, "change-asked")]
    assert [(fields["endpoint"], fields["asked"]) for fields in told] == [
        ("/admin/config/set", "{'period_s': 0.5}"),
        ("/admin/member/leave", "None"),
    ]
    assert all(fields["caller"] for fields in told)


CHANGING = re.compile(
    r"/((?:force-)?leave|join|drain|undrain|clear|reap|disco|reload|set|debugSet|debugClear|stop|start|gossip)$"
)


def test_each_endpoint_that_changes_nothing_is_one() -> None:
    changing = {path for path in READS | CHANGES if CHANGING.search(path)}
    assert changing == CHANGES.keys()


# Healing by hand.


@pytest.mark.parametrize("dialect", ["native", "ringpop"])
async def test_healing_by_hand_reads_the_hosts_first_and_says_what_was_done(
    dialect: DialectName, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{US}\n")
    other = Address("10.0.0.2", 3000)
    async with node_and_caller(dialect, hosts_file=str(hosts)) as (ringpop, caller):
        nothing = await caller.ask("/admin/healpartition/disco")
        async with open_ringpop(
            Config(listen=other, dialect=dialect, gossip=ringpop.config.gossip),
            network=caller.network,
        ):
            hosts.write_text(f"{US}\n{other}\n")
            healed = await caller.ask("/admin/healpartition/disco")
            again = await caller.ask("/admin/healpartition/disco")
            members = [member.name for member in ringpop.members]

    nobody = {
        "targets": [],
        "healed": False,
        "merged": [],
        "failed": [],
        "error": "",
        "silent_hosts": {},
    }
    assert nothing == again == (True, nobody)
    assert healed == (
        True,
        {**nobody, "targets": [str(other)], "healed": True, "merged": [str(other)]},
    )
    assert members == [str(US), str(other)]


async def test_healing_by_hand_with_hosts_that_cannot_be_read_takes_those_known_and_says_so(
    tmp_path: Path,
) -> None:
    hosts, absent = tmp_path / "hosts", Address("10.0.0.2", 3000)
    hosts.write_text(f"{US}\n{absent}\n")
    async with node_and_caller("native", hosts_file=str(hosts)) as (_, caller):
        hosts.write_text("nonsense\n")
        ok, answer = await caller.ask("/admin/healpartition/disco")

    assert ok
    assert f"hosts file {hosts}: line 1" in answer["error"]
    assert (answer["healed"], answer["targets"], answer["failed"]) == (False, [], [str(absent)])


# What a read shows, while others talk to the node on connections of their own.

PEER: Final = Address("10.0.0.2", 3000)
ROUNDS: Final = 200
READING: Final = ("/admin/stats", "/admin/members", "/admin/lookup")


class Peer:
    """A node that says what it is told to, and nothing by itself."""

    def __init__(self, dialect: DialectName, channel: Channel) -> None:
        self.scheme = dialect_named(dialect).scheme
        self.codec = codec_for(dialect_named(dialect))
        self.cluster = CLUSTERS[dialect]
        self.channel = channel
        self._joins, self._asked = trio.open_memory_channel[IncomingCall](math.inf)
        channel.serve(NODE_SERVICE, JOIN, self._joins.send_nowait)
        channel.serve(NODE_SERVICE, PING, lambda _: Answer(ok=True, arg3=self._ack()))

    def _ack(self) -> bytes:
        return self.codec.encode_response(Ack(str(PEER), 1, 7))

    def ping(self, member: Member) -> None:
        """Send a ping that brings *member*, now."""
        change = MemberChange(member=member, source=str(PEER), source_incarnation=1)
        body = self.codec.encode_request(
            Ping(self.cluster, None, str(PEER), *PEER, 1, 7, (change,))
        )
        call = Call(NODE_SERVICE, PING, b"", body, ttl_s=1.0, scheme=self.scheme)
        self.channel.begin(US, call, lambda _: None)

    async def list(self, member: Member) -> None:
        """Await a join, and answer it with *member*, now."""
        incoming = await self._asked.receive()
        list_ = JoinAck(self.cluster, str(PEER), 1, 7, (member,))
        incoming.answer(Answer(ok=True, arg3=self.codec.encode_response(list_)))
        for link in self.channel.links:
            link.writer.flush()


@asynccontextmanager
async def node_peer_and_caller(
    dialect: DialectName,
) -> AsyncIterator[tuple[Ringpop, Peer, Caller]]:
    """A node whose one host is a peer that it does not know yet, and a caller; all connected."""
    async with node_and_caller(dialect, hosts=(PEER,), wait_ready=False) as (ringpop, caller):
        channel = Channel(host_port=PEER, process_name="peer", network=caller.network)
        peer = Peer(dialect, channel)
        await channel.listen(PEER)
        async with trio.open_nursery() as nursery:
            await nursery.start(channel.run)
            await peer.list(member(0))  # it is ready now
            await peer.channel.call(US, Call(NODE_SERVICE, "/health", ttl_s=1.0))
            await caller.ask("/health")
            ringpop.driver.submit(ringpop.node.stop_gossip)
            yield ringpop, peer, caller
            nursery.cancel_scope.cancel()


def member(number: int) -> Member:
    """A member as it is after *number* changes: it leaves and comes back by turns."""
    address = Address("10.0.0.3", 3000)
    status = Status.LEAVE if number % 2 else Status.ALIVE
    return Member(str(address), *address, 1_000_000 + number, status)


async def shows(caller: Caller, row: Member) -> bool:
    """Whether a read that is sent now is answered with *row*, or with a ring of it."""
    endpoint = READING[row.incarnation % len(READING)]
    _, answer = await caller.ask(endpoint, b'{"key":"k","n":9}')
    if "dests" in answer:
        return (row.name in answer["dests"]) == row.status.reachable
    return str(row.incarnation) in str(answer)


@pytest.mark.parametrize("dialect", ["native", "ringpop"])
async def test_a_read_shows_what_a_ping_has_brought_on_another_connection_before_it(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with node_peer_and_caller(dialect) as (_, peer, caller):
        shown = []
        for number in range(1, ROUNDS):
            peer.ping(member(number))
            shown.append(await shows(caller, member(number)))

    assert shown == [True] * (ROUNDS - 1)


async def test_a_read_shows_what_the_answer_to_a_join_has_brought_before_it(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    async with node_peer_and_caller("ringpop") as (ringpop, peer, caller):
        shown = []
        for number in range(1, ROUNDS):
            ringpop.driver.submit(ringpop.node.heal)
            await peer.list(member(number))
            shown.append(await shows(caller, member(number)))
            await ringpop.wait_until(lambda ringpop: not ringpop.node.healing)

    assert shown == [True] * (ROUNDS - 1)


@pytest.mark.parametrize("status", [Status.FAULTY, Status.SUSPECT, Status.LEAVE])
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
async def test_one_member_that_is_gone_is_forced_out_and_no_other(
    dialect: DialectName, status: Status, autojump_clock: MockClock
) -> None:
    del autojump_clock
    other = Address("10.0.0.4", 3000)
    gone = replace(member(0), incarnation=2_000_000, status=status)
    body = json.dumps({"name": gone.name}).encode()
    async with node_peer_and_caller(dialect) as (ringpop, peer, caller):
        peer.ping(Member(str(other), *other, 1_000_000, Status.FAULTY))
        peer.ping(gone)
        _, reapable = await caller.ask("/admin/reapable")
        dry = await caller.ask("/admin/member/force-leave", b'{"dry_run":true,' + body[1:])
        before = ringpop.node.members.get(gone.name)
        done, answer = await caller.ask("/admin/member/force-leave", body)
        after = ringpop.node.members.get(gone.name)
        again, refused = await caller.ask("/admin/member/force-leave", body)
        _, reaped = await caller.ask("/admin/reap")

    may_go = dialect == "native" or status is not Status.LEAVE
    by_reap = status is Status.FAULTY or (status is Status.LEAVE and dialect == "native")
    assert [row["name"] for row in reapable["members"]] == [gone.name] * by_reap + [str(other)]
    assert before == gone
    assert dry == (done, answer)
    assert done == may_go
    if may_go:
        assert answer["member"]["status"] == status.label
        assert after == replace(gone, status=Status.TOMBSTONE)
    ends_as = "tombstone" if may_go else "leave"
    assert not again
    assert refused["message"] == f"{gone.name} no longer counts: its status is {ends_as}"
    assert reaped["reaped"] == 1


async def test_a_member_that_is_alive_is_not_forced_out(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with node_peer_and_caller("native") as (ringpop, _, caller):
        body = json.dumps({"name": member(0).name}).encode()
        done, answer = await caller.ask("/admin/member/force-leave", body)
        nobody, unknown = await caller.ask("/admin/member/force-leave", b'{"name":"nobody"}')
        row = ringpop.node.members.get(member(0).name)

    assert not done
    assert answer["message"] == (
        f"{member(0).name} is alive and would come back; `ringpopctl leave {member(0).name}` takes "
        "it out of the ring"
    )
    assert (nobody, unknown["message"]) == (False, "no member is called 'nobody'")
    assert row == member(0)


@pytest.mark.parametrize(
    ("endpoint", "body", "text"),
    [
        ("/admin/why", b'{"name":5}', "request: name: Expected `str`, got `int`"),
        ("/admin/events", b"[]", "request: Expected `object`, got `array`"),
        ("/admin/keyspaces/show", b"{}", "request: Object missing required field `name`"),
        ("/trace/add", b"{}", "trace: Object missing required field `event`"),
    ],
)
async def test_a_malformed_body_is_refused_in_words_of_its_sender(
    endpoint: str, body: bytes, text: str, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with node_and_caller("native") as (_, caller):
        with pytest.raises(BadRequest) as caught:
            await caller.ask(endpoint, body)

    assert text in str(caught.value)
