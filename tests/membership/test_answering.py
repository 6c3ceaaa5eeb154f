"""`membership.answering`: what a helper does before it says that it reached nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.membership.messages import (
    Answered,
    Failed,
    FailureReason,
    PingReq,
    PingReqAck,
)
from tests.membership.test_node import A, B, ack_of, answer_in, ask, calls_in, lone

if TYPE_CHECKING:
    from ringpop_py.membership.node import Node


def asked(node: Node, now: int = 0) -> int:
    """Have B ask *node* to ping A. Returns: the id of that ping."""
    request = PingReq("test", B.name, B.address, 1, node.members.checksum, A.name, A.address)
    (ping,) = calls_in(ask(node, request, now))
    return ping.call_id


def test_a_helper_whose_connection_breaks_tries_a_fresh_one_in_the_time_that_is_left() -> None:
    node = lone(A, B)
    call_id = asked(node)

    (again,) = calls_in(node.receive(Failed(call_id, "lost"), 400_000))

    assert (again.to, again.timeout_us) == (A.address, 1_100_000)


@pytest.mark.parametrize("reason", ["refused", "lost", "timeout"])
def test_what_the_second_ping_finds_is_said(reason: FailureReason) -> None:
    node = lone(A, B)
    (again,) = calls_in(node.receive(Failed(asked(node), "lost"), 1))

    effects = node.receive(Failed(again.call_id, reason), 2)

    assert calls_in(effects) == []
    assert answer_in(effects) == PingReqAck(A.name, ping_ok=False, failure=reason)


def test_a_broken_connection_to_a_living_target_is_no_nack() -> None:
    node = lone(A, B)
    (again,) = calls_in(node.receive(Failed(asked(node), "lost"), 1))

    effects = node.receive(Answered(again.call_id, ack_of(A)), 2)

    assert answer_in(effects) == PingReqAck(A.name, ping_ok=True)


def test_a_helper_that_holds_itself_for_slow_answers_in_time_all_the_same() -> None:
    node = lone(A, B)
    node._core.health.worse(3, "test")

    asked(node)

    assert node.next_deadline == 1_500_000
