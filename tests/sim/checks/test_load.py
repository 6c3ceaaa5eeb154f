"""S12 and S13: messages that are too full, and nodes that talk for nothing, are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.dissemination import Dissemination
from ringpop_py.member.swim.effects import AnswerPeer, CallPeer
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import Ack, JoinAck, MemberChange, Ping, SyncAck
from ringpop_sim.checks.load import ENCODED_EACH, MessagesBounded, RestIsQuiet
from ringpop_sim.plans.plan import Crash, Cut, Impair, Link, Pause, Plan, Stop
from ringpop_sim.runs.run import Run
from ringpop_sim.units import s
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from ringpop_sim.world.process import Process

CHECKS = (MessagesBounded, RestIsQuiet)
ROWS = tuple(Member(f"m{i}", *address_of(i), i) for i in range(600))
CHANGES = tuple(MemberChange(member=row) for row in ROWS)


def broken_in(plan: Plan, seed: int = 1) -> set[str]:
    return {broken.invariant for broken in Run(plan, seed, CHECKS).finish().broken}


def told() -> tuple[Process, MessagesBounded]:
    """A process, and the oracle that is told what it sends."""
    under_way = Run(Plan(nodes=2, until_us=5 * s), 1, CHECKS)
    under_way.advance(5 * s)
    check = next(c for c in under_way.world.checks if isinstance(c, MessagesBounded))
    return under_way.world.numbered[0], check


def test_messages_that_are_too_full_are_found() -> None:
    process, check = told()
    ping = Ping(CLUSTER, 100, "n0", *process.address, 1, 1, CHANGES[:257])

    check.duty(process, CallPeer(1, process.address, ping, 1))
    check.duty(process, AnswerPeer(1, SyncAck("n0", 1, 0, 1, (), ROWS[:513])))
    check.duty(process, AnswerPeer(1, JoinAck(CLUSTER, "n0", 1, 1, ROWS[:513])))

    assert len(check.broken) == 3


def test_messages_that_are_full_are_not_found() -> None:
    process, check = told()

    check.duty(process, AnswerPeer(1, Ack("n0", 1, 1, CHANGES[:256])))
    check.duty(process, AnswerPeer(1, SyncAck("n0", 1, 0, 1, (), ROWS[:512])))

    assert check.broken == []


def test_a_message_with_more_bytes_than_its_rows_account_for_is_found() -> None:
    process, check = told()
    row = replace(ROWS[0], labels=(("k", "v" * 10_000),))

    for _ in range(ENCODED_EACH):
        check.duty(process, AnswerPeer(1, Ack("n0", 1, 1, (MemberChange(member=row),))))

    assert any("bytes" in broken.detail for broken in check.broken)


def test_a_change_that_rides_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dissemination, "count_sent", lambda *_: None)

    assert broken_in(Plan(nodes=4, until_us=120 * s)) == {"S12", "S13"}


def test_a_node_that_syncs_at_rest_is_found() -> None:
    under_way = Run(Plan(nodes=4, until_us=120 * s), 1, CHECKS)
    under_way.advance(92 * s)

    under_way.world.numbered[0].node.counts.delta_syncs += 1

    assert {broken.invariant for broken in under_way.finish().broken} == {"S13"}


def test_a_load_that_is_too_high_for_a_cluster_at_rest_is_found() -> None:
    under_way = Run(Plan(nodes=4, until_us=120 * s), 1, CHECKS)
    under_way.advance(92 * s)

    under_way.world.exchange.message_count += 1000

    assert {broken.invariant for broken in under_way.finish().broken} == {"S13"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_hard_faults_break_nothing(seed: int, dialect: str) -> None:
    plan = Plan(
        nodes=8,
        until_us=300 * s,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(loss=0.05 * seed),
        settings=(("faulty_s", 20.0), ("tombstone_s", 5.0)),
        operations=(
            Cut(at_us=10 * s, for_us=15 * s, left=(0, 1, 2), right=(3, 4, 5)),
            Crash(at_us=12 * s, for_us=20 * s, nodes=(1, 4), clock_us=-3600 * s),
            Impair(at_us=30 * s, for_us=9 * s, nodes=(5,), loss_in=0.8, duplicate=0.5),
            Pause(at_us=40 * s, for_us=8 * s, nodes=(2,)),
            Stop(at_us=42 * s, nodes=(3,)),
        ),
    )

    assert broken_in(plan, seed) == set()
