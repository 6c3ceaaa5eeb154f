"""`swim.calls`: each call ends once."""

from __future__ import annotations

import random

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE
from ringpop_py.member.swim.calls import Calls
from ringpop_py.member.swim.core import Core
from ringpop_py.member.swim.effects import CallPeer
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import Ping
from ringpop_py.member.swim.waits import CallDue, ExchangePing

US, PEER = Address("10.0.0.1", 3000), Address("10.0.0.2", 3000)
PING = Ping("test", 100, "a", *US, 1, None)
WHY = ExchangePing("b")


class Asking:
    """One call."""

    def __init__(self) -> None:
        self.core = Core(
            Member("a", *US, 1),
            cluster="test",
            ring_points=100,
            dialect=NATIVE,
            config=GossipConfig(),
            rng=random.Random(0),
            now=0,
        )
        self.calls = Calls(self.core)
        self.calls.open(PEER, PING, 1_500_000, WHY, 0)


def test_a_call_is_an_effect_with_its_own_id_and_time() -> None:
    asking = Asking()

    asking.calls.open(PEER, PING, 500_000, WHY, 0)

    assert asking.core.take_effects() == [
        CallPeer(1, PEER, PING, 1_500_000),
        CallPeer(2, PEER, PING, 500_000),
    ]


def test_a_call_ends_once_and_is_not_due_after_that() -> None:
    asking = Asking()

    ended = asking.calls.close(1), asking.calls.close(1)

    assert ended == (WHY, None)
    assert asking.core.timers.take(2_000_000) is None
    assert len(asking.calls) == 0


def test_a_call_that_nobody_ends_is_due_by_its_own_time() -> None:
    asking = Asking()

    assert asking.core.timers.take(1_499_999) is None
    assert asking.core.timers.take(1_500_000) == CallDue(1)
