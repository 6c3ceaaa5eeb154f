"""`membership.probing`: probes from ping to verdict, in clusters that break in different ways."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.config.settings import PRESETS
from ringpop_py.base.dialect import NATIVE, Dialect
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import (
    CallPeer,
    HealthChanged,
    StatusChanged,
    SuspicionConfirmed,
)
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.messages import (
    Answered,
    Disconnected,
    Failed,
    MemberChange,
    Ping,
    PingReq,
    PingReqAck,
    Quiet,
)
from ringpop_sim.world.network import address_of
from tests.member.swim.nodes import World
from tests.member.swim.test_node import BOTH, A, B, C, ack_of, calls_in, gossiping, lone, status_of

if TYPE_CHECKING:
    from ringpop_py.member.swim.node import Node

LAN = dataclasses.replace(PRESETS["lan"], quiet=False)


def cluster(count: int, seed: int = 0) -> World:
    """A cluster of so many nodes that has come to rest."""
    world = World(NATIVE, seed, LAN)
    world.start_cluster(count)
    world.run(2)
    return world


def suspicions(world: World, subject: int) -> list[StatusChanged]:
    """Return the changes by which nodes began to suspect the one at *subject*."""
    return [
        effect
        for _, _, effect in world.trace
        if isinstance(effect, StatusChanged)
        and effect.after is not None
        and effect.after.status is Status.SUSPECT
        and effect.after.address == address_of(subject)
    ]


# Crashes and silence.


@pytest.mark.parametrize("count", [3, 30])
def test_after_a_kill_everybody_has_given_the_victim_up_within_a_second(count: int) -> None:
    world = cluster(count)

    world.crash(1)
    took_s = world.run_until(world.all_see(1, Status.FAULTY), within_s=1)

    assert took_s >= LAN.evidence_s


def test_a_suspicion_tells_what_the_probe_found_and_its_end_who_accused() -> None:
    world = cluster(5)

    world.crash(1)
    world.run_until(world.all_see(1, Status.FAULTY), within_s=1)

    probed = [s for s in suspicions(world, 1) if s.via == "probe"]
    reports = [s.probe for s in probed if s.probe is not None]
    ends = [
        effect
        for _, _, effect in world.trace
        if isinstance(effect, StatusChanged) and effect.via == "timer"
    ]
    assert len(reports) == len(probed) > 0
    assert all(report.strong and report.ping in ("refused", "lost") for report in reports)
    assert all(len(report.helpers) == LAN.ping_req_size for report in reports)
    assert ends
    assert all(end.accusers and end.waited_us >= 500_000 for end in ends)


def test_a_node_alone_with_its_verdict_does_not_wait_for_silent_helpers() -> None:
    node = lone(A, B, C, replace(C, name="d"))
    ping = next(c for c in iter(lambda: calls_in(node.tick(0))[0], None))
    target = next(m for m in (A, B, C) if m.address == ping.to)
    one, two, _ = calls_in(node.receive(Failed(ping.call_id, "refused"), 1))

    nack = PingReqAck(target.name, ping_ok=False, failure="refused")
    node.receive(Answered(one.call_id, nack), 2)
    before = status_of(node, target)
    node.receive(Answered(two.call_id, nack), 3)

    assert (before, status_of(node, target)) == (Status.ALIVE, Status.SUSPECT)
    assert node.next_deadline == 3 + 500_000


@BOTH
@pytest.mark.parametrize("yes_at", [0, 1, 2])
def test_one_helpers_yes_ends_the_probe_whatever_the_others_say(
    dialect: Dialect, yes_at: int
) -> None:
    node = lone(A, B, C, replace(C, name="d"), dialect=dialect)
    (ping,) = calls_in(node.tick(0))
    target = next(m for m in (A, B, C) if m.address == ping.to)
    helpers = calls_in(node.receive(Failed(ping.call_id, "timeout"), 1))
    order = [call.call_id for call in helpers]
    order.insert(yes_at, order.pop())

    for number, call_id in enumerate(order):
        ack = PingReqAck(target.name, number == yes_at, (), "" if number == yes_at else "timeout")
        node.receive(Answered(call_id, ack), 2)
        if number == yes_at:
            (next_ping,) = calls_in(node.tick(2))  # the round is over, and the next may begin

    assert len(order) == 3
    assert status_of(node, target) is Status.ALIVE
    assert isinstance(next_ping.request, Ping)
    assert next_ping.to != target.address


def test_a_member_that_comes_before_the_second_ping_is_asked_to_help() -> None:
    node = lone(A)
    (ping,) = calls_in(node.tick(0))
    node.receive(Failed(ping.call_id, "refused"), 1)
    node._rows.update(
        [MemberChange(member=B, source=B.name, source_incarnation=1)], 2, via="ping", told_by=B.name
    )
    (again,) = calls_in(node.advance(100_001))

    (helper,) = calls_in(node.receive(Failed(again.call_id, "refused"), 100_002))

    assert (helper.to, type(helper.request)) == (B.address, PingReq)
    assert status_of(node, A) is Status.ALIVE


def test_whose_turn_it_is_while_it_is_probed_out_of_turn_is_not_probed_twice() -> None:
    node = gossiping(A)
    node.receive(Disconnected(A.address), 10)

    assert calls_in(node.tick(11)) == []


def test_strong_evidence_shortens_a_suspicion_that_is_held_already() -> None:
    world = cluster(5)
    world.crash(1, silently=True)
    world.run_until(world.all_see(1, Status.SUSPECT), within_s=5)
    # Its machine is back, and refuses connections: the process is gone.
    world.sim.network.connect(1)

    took_s = world.run_until(world.all_see(1, Status.FAULTY), within_s=3)

    assert took_s < 2


# Out of turn.


def test_a_probe_that_waits_does_not_hold_up_those_in_doubt() -> None:
    node = gossiping(A, B, C)
    first = calls_in(node.receive(Disconnected(B.address), 10))

    second = calls_in(node.receive(Disconnected(C.address), 11))

    assert [call.to for call in first + second] == [B.address, C.address]


def test_only_so_many_in_doubt_are_probed_at_once_and_then_the_next() -> None:
    others = [replace(A, name=f"m{i}", host=address_of(10 + i).host) for i in range(5)]
    node = gossiping(*others)
    calls = [c for m in others for c in calls_in(node.receive(Disconnected(m.address), 10))]

    effects = node.receive(Answered(calls[0].call_id, ack_of(others[0])), 11)

    assert [call.to for call in calls] == [m.address for m in others[:3]]
    assert [call.to for call in calls_in(effects)] == [others[3].address]


# Who owes answers.


def _nacks(calls: list[CallPeer], target: str, at: int, node: Node) -> None:
    for call in calls:
        nack = PingReqAck(target, ping_ok=False, failure="timeout")
        node.receive(Answered(call.call_id, nack), at)


def test_a_peer_that_owes_answers_is_probed_with_helpers_and_is_silent_if_all_fail() -> None:
    node = gossiping(A, B, C)
    ping, *helping = calls_in(node.receive(Quiet(A.address), 10))
    _nacks(helping, A.name, 11, node)
    before = status_of(node, A), node.is_silent(A.name)

    node.receive(Failed(ping.call_id, "timeout"), 12)

    assert [ping.to, *sorted(call.to for call in helping)] == [A.address, B.address, C.address]
    assert [type(call.request) for call in helping] == [PingReq, PingReq]
    assert before == (Status.ALIVE, False), "its own ping may still be answered"
    assert (status_of(node, A), node.is_silent(A.name)) == (Status.SUSPECT, True)
    assert not node.is_silent(B.name)


@pytest.mark.parametrize("by", ["itself", "a helper"])
def test_a_peer_that_owes_answers_but_is_there_stays_alive(by: str) -> None:
    node = gossiping(A, B, C)
    ping, one, other = calls_in(node.receive(Quiet(A.address), 10))
    if by == "itself":
        node.receive(Answered(ping.call_id, ack_of(A)), 11)
        _nacks([one, other], A.name, 12, node)
    else:
        node.receive(Answered(one.call_id, PingReqAck(A.name, ping_ok=True)), 11)
        node.receive(Failed(ping.call_id, "timeout"), 12)

    assert (status_of(node, A), node.is_silent(A.name)) == (Status.ALIVE, False)


def test_without_helpers_the_ping_of_who_owes_answers_decides_as_ever() -> None:
    node = gossiping(A)
    (ping,) = calls_in(node.receive(Quiet(A.address), 10))

    node.receive(Failed(ping.call_id, "timeout"), 12)

    assert (status_of(node, A), node.is_silent(A.name)) == (Status.SUSPECT, False)


def test_a_peer_that_owes_answers_for_long_is_probed_once_a_period() -> None:
    node = gossiping(A, B)
    (ping, helping) = calls_in(node.receive(Quiet(A.address), 10))
    node.receive(Answered(ping.call_id, ack_of(A)), 11)

    assert node.receive(Quiet(A.address), 12) == []
    assert helping.to == B.address


def test_a_crash_that_is_found_while_answers_are_owed_is_evidence() -> None:
    node = gossiping(A, B, C)
    ping, *helping = calls_in(node.receive(Quiet(A.address), 10))
    for call in helping:
        nack = PingReqAck(A.name, ping_ok=False, failure="refused")
        node.receive(Answered(call.call_id, nack), 11)

    effects = node.receive(Failed(ping.call_id, "refused"), 12)

    (change,) = (effect for effect in effects if isinstance(effect, StatusChanged))
    assert change.probe is not None
    assert (change.probe.ping, change.probe.strong) == ("refused", True)


def test_a_suspicion_of_others_is_silence_once_our_own_probe_agrees() -> None:
    node = gossiping(A, B, C)
    accused = MemberChange(
        member=replace(A, status=Status.SUSPECT), source=B.name, source_incarnation=1
    )
    node._rows.update([accused], 9, via="ping", told_by=B.name)
    before = node.is_silent(A.name)
    ping, *helping = calls_in(node.doubt(A.name, 10))
    _nacks(helping, A.name, 11, node)

    effects = node.receive(Failed(ping.call_id, "timeout"), 12)

    assert (before, node.is_silent(A.name)) == (False, True)
    assert any(isinstance(effect, SuspicionConfirmed) for effect in effects)
    node._rows.update(
        [MemberChange(member=replace(A, incarnation=A.incarnation + 1))],
        13,
        via="ping",
        told_by=A.name,
    )
    assert not node.is_silent(A.name), "it has refuted"


# Our own slowness.


def test_a_node_that_considers_itself_slow_waits_longer_and_pings_less_often() -> None:
    world = cluster(3)
    node = world.sim.at[0].node
    calm = world.calls(0, Ping)[-1][1].timeout_us

    node._core.judge_health(2, "test")
    period_us = node.period_us
    ping = calls_in(node.tick(world.now))[0]

    assert (calm, ping.timeout_us) == (500_000, 1_500_000)
    assert period_us == 600_000


def test_probes_that_are_answered_heal() -> None:
    world = cluster(3)
    world.sim.at[0].node._core.judge_health(8, "test")

    world.run(10)

    assert world.sim.at[0].node._core.health.score == 0


def test_a_node_that_is_cut_off_from_all_takes_the_blame_and_not_the_others() -> None:
    world = cluster(5)
    world.split([0], range(1, 5))

    world.run(LAN.suspect_s)

    health = [e.score for _, e in world.effects(0, HealthChanged) if isinstance(e, HealthChanged)]
    accused = {
        e.member.name
        for at, e in world.effects(0, StatusChanged)
        if at > 2_000_000 and isinstance(e, StatusChanged) and e.member.status is Status.SUSPECT
    }
    assert max(health) >= 3
    assert accused == set()


@pytest.mark.parametrize("silently", [True, False])
def test_the_only_survivor_does_not_hold_the_dead_for_alive(silently: bool) -> None:  # noqa: FBT001
    world = cluster(5)

    for other in range(1, 5):
        world.crash(other, silently=silently)
    world.run_until(
        lambda: all(world.status(0, other) is Status.FAULTY for other in range(1, 5)), within_s=90
    )

    assert [member.name for member in world.nodes[0].members if member.status.reachable] == [
        world.nodes[0].local.name
    ]


# Pauses.


def test_after_a_pause_a_suspicion_goes_on_where_it_stopped() -> None:
    world = cluster(5)
    world.crash(1, silently=True)
    world.run_until(lambda: world.status(0, 1) is Status.SUSPECT, within_s=5)
    world.split([0], range(2, 5))

    world.sim.pause(world.sim.at[0])
    world.run(60)
    world.sim.resume(world.sim.at[0])
    world.run(LAN.suspect_s - 1)

    assert world.status(0, 1) is Status.SUSPECT


def test_a_helper_that_was_paused_does_not_nack_for_it() -> None:
    node = gossiping(A, B)
    request = PingReq("test", B.name, *B.address, 1, None, A.name, *A.address)
    asked = calls_in(node._core.take_effects())
    node._answerer.answer(request, 9, 2)
    (ping,) = calls_in(node._core.take_effects())

    effects = node.receive(Failed(ping.call_id, "timeout"), 30_000_000)

    (again,) = [c for c in calls_in(effects) if c.to == A.address]
    assert asked == []
    assert isinstance(again, CallPeer)
    assert again.call_id > ping.call_id


def test_nodes_do_not_rest_while_a_member_is_in_doubt() -> None:
    world = World(config=dataclasses.replace(PRESETS["lan"], quiet_period_s=5.0))
    world.start_cluster(5)
    world.run(60)

    world.crash(4, silently=True)
    suspected_s = world.run_until(
        lambda: any(world.status(i, 4) is Status.SUSPECT for i in range(4)), within_s=12
    )
    all_know_s = world.run_until(world.all_see(4, Status.FAULTY), within_s=20)

    assert suspected_s < 2 * 5 + 1.5
    assert all_know_s < 3 * 2.5
