"""What whoever reaches a node's port may try against it, as it was tried; the node goes on."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.declared import replace
from ringpop_py.edge.cli.commands import table
from ringpop_py.member.swim.member import STORE_LABEL, Member, Status, checked_labels
from ringpop_py.member.swim.messages import Ack, MemberChange, Ping
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.net.wire.codec import PING, codec_for
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time

NATIVE: Final = dialect_named("native")
US: Final = Address("10.0.0.1", 3000)
LIAR: Final = Address("10.6.6.6", 666)
ESCAPES: Final = "\x1b]0;owned\a\x1b[2J"


class Liar:
    """Calls one node, as nobody in particular."""

    def __init__(self, channel: Channel, ringpop: Ringpop) -> None:
        self._channel = channel
        self.ringpop = ringpop

    async def ping(self, *rows: Member) -> Ack:
        """Send *rows* as changes, in the name of a member that does not exist."""
        changes = tuple(MemberChange(member=row, source="liar") for row in rows)
        ping = Ping("default", 100, "liar", *LIAR, now_ms(), None, changes)
        codec = codec_for(NATIVE)
        body = codec.encode_request(ping)
        call = Call(NODE_SERVICE, PING, b"", body, ttl_s=5.0, scheme="msgpack")
        answer = await self._channel.call(US, call)
        response = codec.decode_response(ping, answer.arg3, ok=answer.ok)
        assert isinstance(response, Ack)
        return response

    async def admin(self, endpoint: str, body: object) -> tuple[bool, Any]:
        """Whether it was done, and the answer."""
        data = json.dumps(body).encode()
        call = Call(NODE_SERVICE, endpoint, b"", data, ttl_s=5.0, scheme="json")
        answer = await self._channel.call(US, call)
        return answer.ok, json.loads(answer.arg3)


def now_ms() -> int:
    return round(time.time() * 1000)


@asynccontextmanager
async def lied_to(**options: Any) -> AsyncIterator[Liar]:  # noqa: ANN401 - as Config takes them
    network = MemoryNetwork()
    store = options.pop("store", None)
    channel = Channel(host_port=LIAR, process_name="liar", network=network)
    async with (
        trio.open_nursery() as nursery,
        open_ringpop(Config(listen=US, **options), network=network, store=store) as ringpop,
    ):
        await nursery.start(channel.run)
        yield Liar(channel, ringpop)
        nursery.cancel_scope.cancel()


async def test_a_forged_claim_to_its_name_ends_no_process() -> None:
    async with lied_to(name="x") as liar:
        nowhere = Member("x", "127.0.0.1", 9000, now_ms() + 20_000)
        for _ in range(3):
            await liar.ping(nowhere)
            await trio.sleep(5)

        assert liar.ringpop.readiness.name_lost is None
        own = liar.ringpop.node.local
        assert (own.address, own.status) == (US, Status.ALIVE)
        assert own.incarnation > nowhere.incarnation


async def test_an_incarnation_that_nobody_vouches_for_is_not_kept() -> None:
    async with lied_to() as liar:
        await liar.ping(Member("x", "10.0.0.9", 9, now_ms() + 3_600_000))
        await trio.sleep(10)

        assert [member.name for member in liar.ringpop.members] == [str(US)]


async def test_a_label_that_could_control_a_terminal_is_dropped() -> None:
    async with lied_to() as liar:
        labels = (("zone", "a"), ("title", ESCAPES), (ESCAPES, "key"))
        await liar.ping(Member("x", "10.0.0.9", 9, now_ms(), labels=labels))

        kept = {member.name: member.labels for member in liar.ringpop.members}
        assert kept["x"] == (("zone", "a"),)


def test_a_member_has_no_label_that_others_would_drop() -> None:
    with pytest.raises(ConfigError, match="is not printable"):
        checked_labels((("title", ESCAPES),))


def test_a_table_controls_no_terminal() -> None:
    assert "\x1b" not in table(("NAME",), [(ESCAPES,)])
    assert r"\x1b]0;owned\x07" in table(("NAME",), [(ESCAPES,)])


async def test_a_period_of_centuries_is_refused() -> None:
    async with lied_to() as liar:
        done, answer = await liar.admin("/admin/config/set", {"period_s": 2**39})

        assert not done
        assert answer["message"] == (
            "period_s is a number of seconds from 0.001 to 60, not 549755813888"
        )
        assert liar.ringpop.node.config.period_s < 1


@pytest.mark.parametrize(
    ("sink", "done"),
    [
        (US, True),
        (LIAR._replace(port=9), True),
        (Address("10.0.0.9", 22), False),
        (US._replace(port=22), False),
    ],
    ids=["a member", "the host that asks", "another host", "another port of a member"],
)
async def test_a_trace_calls_no_address_that_has_nothing_to_do_with_it(
    sink: Address, *, done: bool
) -> None:
    body = {
        "event": "membership.checksum.update",
        "sink": {
            "type": "tchannel",
            "hostPort": str(sink),
            "serviceName": "app",
            "endpoint": "/",
        },
    }
    async with lied_to() as liar:
        was_done, answer = await liar.admin("/trace/add", body)

    assert was_done is done
    assert done or f"{sink} is neither" in answer["message"]


async def test_more_changes_than_a_message_may_have_are_refused_at_once() -> None:
    async with lied_to() as liar:
        rows = [Member(f"m{number}", "10.0.0.9", 9, now_ms()) for number in range(4_097)]
        with pytest.raises(Exception, match="changes"):
            await liar.ping(*rows)

        assert len(liar.ringpop.members) == 1


async def test_a_member_with_another_store_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with lied_to(store=MemoryStore()) as liar:
        stranger = Member("x", "10.0.0.9", 9, now_ms(), labels=((STORE_LABEL, "0badcafe"),))
        for ahead_ms in range(3):
            await liar.ping(replace(stranger, incarnation=stranger.incarnation + ahead_ms))

    [event] = events_in(caplog, "stores-differ")
    assert event.fields["member"] == "x"
    assert event.fields["store"] == "0badcafe"


async def test_a_node_warns_of_the_address_that_it_binds_not_of_the_advertised_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = Config(
        listen=Address("0.0.0.0", 0),  # noqa: S104
        advertise=Address("127.0.0.1", 0),
        insecure=True,
    )
    async with open_ringpop(config):
        pass

    [event] = events_in(caplog, "no-authentication")
    assert str(event.fields["address"]).startswith("0.0.0.0:")
    assert len(events_in(caplog, "cluster-unnamed")) == 1


async def test_on_loopback_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with open_ringpop(Config()):
        pass

    assert [
        e for e in events_in(caplog) if e.name in ("no-authentication", "cluster-unnamed")
    ] == []


async def test_without_keys_no_node_serves_where_other_machines_may_reach_it() -> None:
    listen, advertise = Address("0.0.0.0", 0), Address("127.0.0.1", 0)  # noqa: S104

    with pytest.raises(ConfigError, match=r"other machines may reach 0\.0\.0\.0:\d+"):
        async with open_ringpop(Config(listen=listen, advertise=advertise)):
            pass
    with pytest.raises(ConfigError, match=r"--http 0\.0\.0\.0:\d+: other machines may reach"):
        async with open_ringpop(Config(http=listen)):
            pass
