"""`membership.answering`: helpers, digests, and requests that do not say all that they could."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.address import NOWHERE
from ringpop_py.base.dialect import RINGPOP
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import DigestDiffers
from ringpop_py.member.swim.messages import (
    Ack,
    Answered,
    Failed,
    FailureReason,
    Join,
    JoinAck,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
)
from tests.member.swim.test_node import US, A, B, ack_of, answer_in, ask, calls_in, lone, ping_from

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.node import Node


def asked(node: Node, now: int = 0) -> int:
    """Have B ask *node* to ping A. Returns: the id of that ping."""
    request = PingReq("test", B.name, *B.address, 1, node.members.checksum, A.name, *A.address)
    (ping,) = calls_in(ask(node, request, now))
    return ping.call_id


def test_a_helper_whose_connection_breaks_tries_a_fresh_one_in_the_time_that_is_left() -> None:
    node = lone(A, B)
    call_id = asked(node)

    (again,) = calls_in(node.receive(Failed(call_id, "lost"), 400_000))

    assert (again.to, again.timeout_us) == (A.address, 1_100_000)


@pytest.mark.parametrize("reason", ["refused", "lost", "timeout"])
def test_a_helper_answers_what_its_second_ping_finds(reason: FailureReason) -> None:
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
    node._core.judge_health(3, "test")

    asked(node)

    assert node.next_deadline == 1_500_000


def differences_in(effects: list[Effect]) -> list[DigestDiffers]:
    return [effect for effect in effects if isinstance(effect, DigestDiffers)]


def test_a_ping_carries_the_digest_that_the_driver_has_given() -> None:
    node = lone(A)
    node.digest = 2**64 - 1

    (call,) = calls_in(node.tick(0))

    assert isinstance(call.request, Ping)
    assert call.request.digest == 2**64 - 1


def test_the_ringpop_dialect_has_no_digests() -> None:
    node = lone(A, dialect=RINGPOP)
    node.digest = 7

    (call,) = calls_in(node.tick(0))

    assert isinstance(call.request, Ping)
    assert call.request.digest is None


@pytest.mark.parametrize(("digest", "differs"), [(0, True), (7, False), (8, True), (None, False)])
def test_that_a_pinger_has_another_digest_is_told_with_the_answer(
    digest: int | None,
    differs: bool,  # noqa: FBT001 - a parameter
) -> None:
    node = lone(A)
    node.digest = 7

    effects = ask(node, replace(ping_from(A), digest=digest))

    assert isinstance(answer_in(effects), Ack)
    expected = [DigestDiffers(A.name, digest)] if differs and digest is not None else []
    assert differences_in(effects) == expected


def test_the_digest_of_a_ping_that_is_refused_is_not_looked_at() -> None:
    node = lone(A)
    node.digest = 7
    stranger = replace(ping_from(A), cluster="another", digest=8)

    effects = ask(node, stranger)

    assert isinstance(answer_in(effects), Refusal)
    assert differences_in(effects) == []


# Who does not say who it is, or who is meant: in JSON, that is a missing field.


def test_a_ping_of_nobody_gets_the_whole_list_and_nobody_is_asked_for_its_own() -> None:
    node = lone(A, B, dialect=RINGPOP)

    effects = ask(node, Ping("test", None, "", *NOWHERE, 0, 0))

    ack = answer_in(effects)
    assert isinstance(ack, Ack)
    assert [change.member for change in ack.changes] == [US, A, B]
    assert calls_in(effects) == []


def test_a_join_of_nobody_gets_the_list() -> None:
    node = lone(A, dialect=RINGPOP)

    ack = answer_in(ask(node, Join("test", None, "", *NOWHERE, 0, 0)))

    assert isinstance(ack, JoinAck)
    assert ack.members == (US, A)


def test_a_ping_req_without_a_target_is_a_nack_and_nobody_is_pinged() -> None:
    node = lone(A, B, dialect=RINGPOP)
    request = PingReq(None, B.name, *B.address, 1, node.members.checksum, "", *NOWHERE)

    effects = ask(node, request)

    assert calls_in(effects) == []
    assert answer_in(effects) == PingReqAck("", ping_ok=False, failure="failed")
