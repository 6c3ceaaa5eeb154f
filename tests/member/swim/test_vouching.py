"""Incarnations far ahead of our clock, which only their own process can vouch for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.dialect import RINGPOP
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import AnswerPeer, CallPeer, PeerTrouble, StatusChanged
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import (
    Answered,
    Asked,
    Failed,
    MemberChange,
    NameAck,
    NameReq,
    Ping,
    Refusal,
    Response,
)
from ringpop_py.member.swim.vouching import AHEAD_MS_MAX, ASKED_MAX
from ringpop_sim.world.world import WALL_MS
from tests.member.swim.nodes import World
from tests.member.swim.test_node import A, B, D, ack_of, calls_in, lone, ping_from, row, status_of

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.node import Node

NEAR_MS = WALL_MS + AHEAD_MS_MAX
FAR_MS = NEAR_MS + 1
HOUR_MS = 3_600_000
STRANGER = row(9, FAR_MS)


def told(node: Node, *rows: Member, now: int = 0) -> list[Effect]:
    """Return the effects of a ping that carries *rows*, except its answer."""
    changes = (MemberChange(member=member, source="d", source_incarnation=1) for member in rows)
    effects = node.receive(Asked(0, ping_from(replace(D, name="d"), *changes)), now)
    return [effect for effect in effects if not isinstance(effect, AnswerPeer)]


def rumour(claim: Member, node: Node, now: int) -> list[Effect]:
    return told(node, claim, now=now)


def asked_in(effects: list[Effect]) -> list[CallPeer]:
    return [call for call in calls_in(effects) if isinstance(call.request, NameReq)]


def name_ack(member: Member) -> NameAck:
    return NameAck(member.name, *member.address, member.incarnation, WALL_MS, joined=True)


def test_a_near_incarnation_is_believed_as_it_comes() -> None:
    node = lone(A)

    effects = told(node, replace(A, incarnation=NEAR_MS, status=Status.SUSPECT))

    assert asked_in(effects) == []
    assert status_of(node, A) is Status.SUSPECT


@pytest.mark.parametrize("claim", [replace(A, incarnation=FAR_MS, status=Status.FAULTY), STRANGER])
def test_a_far_incarnation_is_believed_once_its_process_says_the_same(claim: Member) -> None:
    node = lone(A)
    before = node.members.get(claim.name)

    effects = told(node, claim)

    [call] = asked_in(effects)
    assert call.to == claim.address
    assert node.members.get(claim.name) == before
    effects = node.receive(Answered(call.call_id, name_ack(claim)), 0)
    assert node.members.get(claim.name) == claim
    assert [e.after for e in effects if isinstance(e, StatusChanged)] == [claim]
    assert claim in [change.member for change in node._rows.dissemination.pending()]


@pytest.mark.parametrize(
    "answer",
    [
        name_ack(replace(A, incarnation=FAR_MS - 1)),
        name_ack(replace(B, incarnation=FAR_MS)),
        Refusal("leaving", "ends"),
        None,
    ],
    ids=["an earlier incarnation", "another name", "a refusal", "nobody"],
)
def test_a_far_incarnation_is_dropped_if_its_process_does_not_confirm_it(
    answer: Response | None,
) -> None:
    node = lone(A)
    [call] = asked_in(told(node, replace(A, incarnation=FAR_MS, status=Status.FAULTY)))

    reply = Failed(call.call_id, "refused") if answer is None else Answered(call.call_id, answer)
    effects = node.receive(reply, 0)

    assert status_of(node, A) is Status.ALIVE
    [trouble] = [effect for effect in effects if isinstance(effect, PeerTrouble)]
    assert f"no process of that name at {A.address} confirms it" in trouble.reason
    assert node.counts.incarnations_refused == 1
    assert node.under_way["inquiries"] == 0


def test_a_process_is_asked_once_at_a_time_and_not_all_are_asked_together() -> None:
    node = lone(A)
    many = [row(index, FAR_MS) for index in range(10, 10 + 2 * ASKED_MAX)]

    effects = told(node, *many, *many)

    assert [call.to for call in asked_in(effects)] == [m.address for m in many[:ASKED_MAX]]
    assert len(node.members) == 2


def test_a_later_row_of_a_member_that_is_far_ahead_needs_no_confirmation() -> None:
    node = lone(A)
    [call] = asked_in(told(node, STRANGER))
    node.receive(Answered(call.call_id, name_ack(STRANGER)), 0)

    effects = told(node, replace(STRANGER, status=Status.SUSPECT))

    assert asked_in(effects) == []
    assert status_of(node, STRANGER) is Status.SUSPECT


def test_of_a_stranger_that_is_gone_nothing_has_to_be_confirmed() -> None:
    node = lone(A)

    assert asked_in(told(node, replace(STRANGER, status=Status.FAULTY))) == []
    assert status_of(node, STRANGER) is Status.FAULTY


def test_the_ringpop_dialect_cannot_ask_and_believes() -> None:
    node = lone(A, dialect=RINGPOP)
    stranger = replace(STRANGER, name=str(STRANGER.address))

    told(node, stranger)

    assert status_of(node, stranger) is Status.ALIVE


@pytest.mark.parametrize("clock_ms", [-HOUR_MS, HOUR_MS])
def test_a_member_whose_clock_is_wrong_is_a_member(clock_ms: int) -> None:
    world = World()
    world.start_cluster(4)

    world.start(5, range(4), clock_ms=clock_ms)

    world.run_until(world.converged, within_s=5)
    world.start(6, range(4))
    world.run_until(world.converged, within_s=5)
    world.crash(5, silently=True)
    world.run_until(world.all_see(5, Status.FAULTY), within_s=30)
    world.start(5, range(4), clock_ms=clock_ms + 60_000)
    world.run_until(world.converged, within_s=5)


def test_a_member_whose_clock_is_wrong_refutes() -> None:
    world = World()
    nodes = [world.start(index, range(3), clock_ms=HOUR_MS * (index == 2)) for index in range(3)]
    world.run_until(world.converged, within_s=20)
    accusation = replace(nodes[2].local, status=Status.FAULTY)

    world.do(0, lambda node, now: told(node, accusation, now=now))

    world.run_until(lambda: nodes[2].local.incarnation > accusation.incarnation, within_s=10)
    world.run_until(world.converged, within_s=5)


def test_a_liar_raises_no_incarnation_far() -> None:
    world = World()
    nodes = world.start_cluster(3)

    for ahead_ms in range(HOUR_MS, 50 * HOUR_MS, HOUR_MS):
        claim = replace(nodes[1].local, incarnation=WALL_MS + ahead_ms, status=Status.FAULTY)
        world.do(0, partial(rumour, claim))
        world.run(0.5)

    assert world.converged()
    assert max(node.local.incarnation for node in nodes) < WALL_MS + world.now // 1000


def test_a_member_first_said_to_be_faulty_is_not_moved_by_the_next_row_either() -> None:
    node = lone(A)
    gone = replace(A, incarnation=WALL_MS + 1, status=Status.FAULTY)
    moved = replace(A, host="10.6.6.6", incarnation=WALL_MS + 2)

    effects = told(node, gone, moved)

    assert [call.to for call in asked_in(effects)] == [moved.address]
    held = node.members.get(A.name)
    assert held is not None
    assert held.address == A.address
    pings = [call for call in calls_in(effects) if isinstance(call.request, Ping)]
    assert [call.to for call in pings] == [A.address]  # it has the last word


def test_a_flood_of_moves_keeps_no_member_from_being_asked() -> None:
    node = lone(A)
    moves = [replace(A, host=f"10.6.6.{n}", incarnation=FAR_MS + n) for n in range(2 * ASKED_MAX)]
    told(node, *moves)

    effects = told(node, replace(A, incarnation=FAR_MS))

    assert [call.to for call in asked_in(effects)] == [A.address]
    assert node.under_way["inquiries"] == ASKED_MAX + 1


def test_a_members_own_answer_confirms_its_incarnation() -> None:
    node = lone(A)
    (ping,) = calls_in(node.tick(0))
    itself = replace(A, incarnation=FAR_MS)

    effects = node.receive(
        Answered(ping.call_id, ack_of(A, MemberChange(member=itself, source=A.name))), 0
    )

    assert asked_in(effects) == []
    assert node.members.get(A.name) == itself
