"""`gossip`: how a driver maps the network's errors; no task waits for it in vain."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.errors import (
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
from ringpop_py.member.swim.effects import Announced, AnswerPeer
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import Asked, Disconnected, NameAck, NameReq
from ringpop_py.member.swim.node import Node
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.node.driver import INBOX_MAX, MICROSECONDS, NodeDriver, _reason_of
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from trio.testing import MockClock

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.messages import FailureReason, Input


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


async def test_a_caller_that_waits_for_a_driver_waits_behind_everything_submitted() -> None:
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


async def test_a_caller_is_refused_immediately_if_too_many_messages_wait() -> None:
    driver = a_driver()
    for _ in range(INBOX_MAX):
        driver.submit(lambda _now: [])

    with trio.fail_after(1), pytest.raises(PeerBusy, match="messages wait for this node already"):
        await driver.catch_up()
    assert len(driver._inbox) == INBOX_MAX


async def test_a_caller_that_waits_when_the_node_ends_is_told_so() -> None:
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


async def test_a_caller_that_comes_after_the_end_is_told_so_immediately() -> None:
    driver = a_driver()
    with trio.CancelScope() as driving:
        driving.cancel()
        await driver.run()

    with trio.fail_after(1), pytest.raises(PeerDeclined, match="this node is ending"):
        await driver.catch_up()


# What peers send, which is processed where it arrives.


class Bug(BaseException):
    """Not even an Exception."""


def arrives(driver: NodeDriver, port: int) -> None:
    """What a channel calls when a connection broke."""
    driver._channel.on_disconnect(Address("10.0.0.2", port))


@asynccontextmanager
async def an_owner_at_rest(driver: NodeDriver) -> AsyncIterator[trio.CancelScope]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await wait_all_tasks_blocked()
        yield nursery.cancel_scope
        nursery.cancel_scope.cancel()


def received(driver: NodeDriver, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports of what the node receives, in order."""
    ports: list[int] = []

    def receive(message: Input, _now: int) -> list[Effect]:
        assert isinstance(message, Disconnected)
        ports.append(message.address.port)
        return [Announced()]

    monkeypatch.setattr(driver.node, "receive", receive)
    return ports


async def test_messages_to_a_node_at_rest_are_processed_where_they_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = a_driver()
    ports = received(driver, monkeypatch)

    async with an_owner_at_rest(driver):
        arrives(driver, 1)
        assert ports == [1]
        arrives(driver, 2)
        assert ports == [1, 2]


async def test_an_input_never_runs_inside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, seen = a_driver(), list[str]()
    ports = received(driver, monkeypatch)

    def observe(_effects: Sequence[Effect]) -> None:
        number = ports[-1]
        seen.append(f"{number} begins")
        if number < 10:
            arrives(driver, 10 * number)
            driver.submit(lambda _now: seen.append(f"submitted by {number}") or [])  # type: ignore[func-returns-value]
            arrives(driver, 10 * number + 1)
        seen.append(f"{number} ends")

    monkeypatch.setattr(driver, "_observe", observe)
    async with an_owner_at_rest(driver):
        arrives(driver, 1)
        await driver.catch_up()

    assert seen == [
        "1 begins",
        "1 ends",
        "10 begins",
        "10 ends",
        "submitted by 1",
        "11 begins",
        "11 ends",
    ]


async def test_messages_of_peers_wait_behind_what_was_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, before = a_driver(), list[list[int]]()
    ports = received(driver, monkeypatch)

    async with an_owner_at_rest(driver):
        driver.submit(lambda _now: before.append(list(ports)) or [])  # type: ignore[func-returns-value]
        arrives(driver, 1)
        assert ports == []
        await driver.catch_up()

    assert before == [[]]
    assert ports == [1]


async def test_messages_of_peers_are_processed_before_what_is_due(
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    driver, turns = a_driver(), list[int]()
    ports = received(driver, monkeypatch)
    due_at: int | None = now_us() + 5 * MICROSECONDS

    def advance(_now: int) -> list[Effect]:
        nonlocal due_at
        due_at = None if turns else due_at
        turns.append(len(ports))
        return []

    monkeypatch.setattr(driver.node, "advance", advance)
    monkeypatch.setattr(Node, "next_deadline", property(lambda _node: due_at))
    async with an_owner_at_rest(driver):
        mock_clock.jump(10)
        await trio.lowlevel.checkpoint()  # it is woken, and lets others read
        arrives(driver, 1)
        assert ports == []
        await wait_all_tasks_blocked()

    assert turns == [0, 1]


async def test_a_bug_in_what_peers_cause_ends_the_node_and_not_who_brought_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, count = a_driver(), 0

    def receive(_message: Input, _now: int) -> list[Effect]:
        nonlocal count
        count += 1
        raise Bug

    monkeypatch.setattr(driver.node, "receive", receive)

    async def bring() -> None:
        async with an_owner_at_rest(driver):
            arrives(driver, 1)
            arrives(driver, 2)
            with pytest.raises(PeerDeclined):  # nobody waits for a node that has failed
                await driver.perform(lambda _now: [])
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as raised:
        await bring()
    assert raised.group_contains(Bug)
    assert count == 1


async def test_a_bug_is_not_lost_if_the_owner_is_cancelled_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = a_driver()

    async def bring() -> None:
        async with an_owner_at_rest(driver) as scope:

            def receive(_message: Input, _now: int) -> list[Effect]:
                scope.cancel()
                raise Bug

            monkeypatch.setattr(driver.node, "receive", receive)
            arrives(driver, 1)

    with pytest.raises(BaseExceptionGroup) as raised:
        await bring()
    assert raised.group_contains(Bug)


async def test_nothing_is_processed_for_an_owner_that_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = a_driver()
    ports = received(driver, monkeypatch)

    async with an_owner_at_rest(driver) as scope:
        arrives(driver, 1)
        scope.cancel()  # it has not run since
        arrives(driver, 2)

    arrives(driver, 3)
    assert ports == [1]


async def test_messages_processed_for_the_owner_do_not_join_the_trace_of_their_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = ContextVar("trace", default="none")
    driver, traces = a_driver(), list[str]()

    def receive(_message: Input, _now: int) -> list[Effect]:
        traces.append(trace.get())
        return []

    monkeypatch.setattr(driver.node, "receive", receive)
    async with an_owner_at_rest(driver):
        trace.set("of a caller")
        arrives(driver, 1)

    assert traces == ["none"]


# Whose machine is suspended.


def since_ms_of(driver: NodeDriver, now: int) -> int:
    """Return since when the node of *driver* says that it has run."""
    asked = NameReq("test", "x", *Address("10.0.0.2", 3000), 1, 1, joined=True)
    (effect,) = driver.node.receive(Asked(0, asked), now)
    assert isinstance(effect, AnswerPeer)
    assert isinstance(effect.response, NameAck)
    return effect.response.since_ms


async def test_a_node_suspended_with_its_machine_counts_from_when_it_went_on(
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
