"""`gossip`: what a driver makes of the network's errors; who waits for it never waits in vain."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.address import Address
from ringpop_py.config.settings import GossipConfig
from ringpop_py.dialect import NATIVE
from ringpop_py.errors import (
    BadRequest,
    CallError,
    CallTimeout,
    ConnectBroke,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    ConnectTooSlow,
    PeerBusy,
    PeerDeclined,
    PeerSilent,
)
from ringpop_py.node.driver import INBOX_MAX, MICROSECONDS, NodeDriver, _reason_of
from ringpop_py.swim.effects import AnswerPeer
from ringpop_py.swim.member import Member
from ringpop_py.swim.messages import Asked, NameAck, NameReq
from ringpop_py.swim.node import Node
from ringpop_py.testing import MemoryNetwork
from ringpop_py.transport.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trio.testing import MockClock

    from ringpop_py.swim.effects import Effect
    from ringpop_py.swim.messages import FailureReason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectRefused(""), "refused"),
        (ConnectBroke(""), "lost"),
        (ConnectionLost(""), "lost"),
        (PeerSilent(""), "timeout"),
        (ConnectTooSlow(""), "timeout"),
        (CallTimeout(""), "timeout"),
        (PeerDeclined(""), "declined"),
        (ConnectFailed("no route to host"), "failed"),
        (BadRequest(""), "failed"),
    ],
)
def test_only_what_the_peers_machine_says_is_told_as_a_refusal_or_a_loss(
    error: CallError, reason: FailureReason
) -> None:
    assert _reason_of(error) == reason


# Who waits for the driver.


def a_driver(suspended_us: Callable[[], int] = lambda: 0) -> NodeDriver:
    local = Member("a", *Address("10.0.0.1", 3000), 1)
    node = Node(
        local,
        cluster="test",
        ring_points=100,
        dialect=NATIVE,
        config=GossipConfig(),
        rng=random.Random(0),
        now=0,
    )
    channel = Channel(process_name="a", network=MemoryNetwork())
    return NodeDriver(node, channel, ignore, suspended_us=suspended_us)


def ignore(_effects: Sequence[Effect]) -> None:
    pass


async def test_who_waits_for_a_driver_waits_behind_all_that_was_submitted() -> None:
    driver, done = a_driver(), list[int]()

    def note(number: int, _now: int) -> list[Effect]:
        done.append(number)
        return []

    for number in range(3):
        driver.submit(partial(note, number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await driver.catch_up()
        nursery.cancel_scope.cancel()

    assert done == [0, 1, 2]


async def test_who_would_wait_behind_too_many_is_refused_at_once() -> None:
    driver = a_driver()
    for _ in range(INBOX_MAX):
        driver.submit(lambda _now: [])

    with trio.fail_after(1), pytest.raises(PeerBusy, match="messages wait for this node already"):
        await driver.catch_up()
    assert len(driver._inbox) == INBOX_MAX


async def test_who_waits_when_the_node_ends_is_told_so() -> None:
    driver = a_driver()

    async def read() -> None:
        with pytest.raises(PeerDeclined, match="this node is ending"):
            await driver.catch_up()

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            with trio.CancelScope() as driving:
                async with trio.open_nursery() as inner:
                    inner.start_soon(driver.run)
                    while not driver._waiting:
                        await trio.lowlevel.checkpoint()
                    driving.cancel()


async def test_who_comes_after_the_end_is_told_so_at_once() -> None:
    driver = a_driver()
    with trio.CancelScope() as driving:
        driving.cancel()
        await driver.run()

    with trio.fail_after(1), pytest.raises(PeerDeclined, match="this node is ending"):
        await driver.catch_up()


# Whose machine is suspended.


def since_ms_of(driver: NodeDriver, now: int) -> int:
    """Since when the node of *driver* says that it has run."""
    asked = NameReq("test", "x", *Address("10.0.0.2", 3000), 1, 1, joined=True)
    (effect,) = driver.node.receive(Asked(0, asked), now)
    assert isinstance(effect, AnswerPeer)
    assert isinstance(effect.response, NameAck)
    return effect.response.since_ms


async def test_who_was_suspended_with_its_machine_counts_from_when_it_went_on(
    mock_clock: MockClock,
) -> None:
    suspended_us = 10_000 * MICROSECONDS  # before the process started
    driver, since_ms = a_driver(lambda: suspended_us), list[int]()

    def note(now: int) -> list[Effect]:
        since_ms.append(since_ms_of(driver, now))
        return []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await driver.perform(note)
        suspended_us += MICROSECONDS  # too short for anybody to be given up
        await driver.perform(note)
        suspended_us += 3600 * MICROSECONDS
        mock_clock.jump(1)
        await driver.perform(note)
        nursery.cancel_scope.cancel()

    assert since_ms == [1, 1, 1 + 3602 * 1000]
