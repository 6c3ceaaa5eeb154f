"""S15: names given up to the wrong process are found, and hard faults raise no false alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.member.swim.effects import AnswerPeer, NameTaken
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import NameAck, NameReq
from ringpop_sim.checks.liveness import agree
from ringpop_sim.checks.names import NamesKept
from ringpop_sim.plans.plan import Crash, Cut, Pause, Plan, Twin
from ringpop_sim.runs.run import Run
from ringpop_sim.units import s
from ringpop_sim.world.network import STRANGERS, address_of
from ringpop_sim.world.process import OpenCall
from ringpop_sim.world.world import WALL_MS

if TYPE_CHECKING:
    from ringpop_sim.world.process import Process


def two_of_one_name(plan: Plan | None = None) -> tuple[Run, Process, Process]:
    """A cluster under way, the first process n1 in it, and a second one that has just started."""
    under_way = Run(plan or Plan(nodes=3, until_us=60 * s), 1, (NamesKept,))
    under_way.advance(20 * s)
    world = under_way.world
    first = world.numbered[1]
    second = world.start(1, world.network.new_machine(), second=True)
    return under_way, first, second


def vouch(under_way: Run, who: Process, to: Process, *, joined: bool = True) -> None:
    """Have the oracles see *who* answer for its name to *to*."""
    local = who.node.local
    request = NameReq("", to.name, *to.address, 1, 1, joined=True)
    who.answering[0] = OpenCall(to, 0, who.machine, request)
    ack = NameAck(local.name, *local.address, local.incarnation, local.incarnation, joined)
    for check in under_way.world.checks:
        check.duty(who, AnswerPeer(0, ack))


def lose(under_way: Run, loser: Process, to: Member, since_ms: int | None = WALL_MS) -> None:
    """Have the oracles hear that *loser* has lost its name."""
    for check in under_way.world.checks:
        check.fact(loser, NameTaken(loser.node.local, to, lost=True, since_ms=since_ms))


def broken_in(under_way: Run) -> list[str]:
    return [broken.detail.split(", ", 1)[1] for broken in under_way.broken]


def test_a_name_that_is_lost_to_nobody_is_found() -> None:
    under_way, first, _ = two_of_one_name()

    lose(under_way, first, Member("n1", *address_of(STRANGERS), 1))

    assert broken_in(under_way) == ["where nobody has it"]


def test_a_name_that_is_lost_to_one_that_did_not_answer_for_it_is_found() -> None:
    under_way, first, second = two_of_one_name()

    lose(under_way, first, second.node.local)

    assert broken_in(under_way) == ["which it had not asked"]


def test_a_name_that_is_lost_to_a_newcomer_is_found() -> None:
    under_way, first, second = two_of_one_name()

    vouch(under_way, second, first, joined=False)
    lose(under_way, first, second.node.local)

    assert broken_in(under_way) == ["which had not joined yet"]


def test_a_name_that_is_lost_to_one_that_has_run_for_less_is_found() -> None:
    under_way, first, second = two_of_one_name()

    vouch(under_way, second, first)
    lose(under_way, first, second.node.local)

    since = f"not {WALL_MS}"
    (said,) = broken_in(under_way)
    assert said.startswith("which has run since")
    assert said.endswith(since)


def test_two_that_lose_a_name_to_each_other_are_found() -> None:
    under_way, first, second = two_of_one_name()

    vouch(under_way, first, second)
    lose(under_way, second, first.node.local)
    vouch(under_way, second, first)
    lose(under_way, first, second.node.local)

    assert "which lost it to that one" in broken_in(under_way)


def test_a_newcomer_may_lose_on_a_helpers_word_to_one_that_lives() -> None:
    under_way, first, second = two_of_one_name()

    lose(under_way, second, first.node.local, since_ms=None)
    assert broken_in(under_way) == []

    under_way.world.end(first)
    under_way.advance(50 * s)
    third = under_way.world.start(1, under_way.world.network.new_machine())
    lose(under_way, third, first.node.local, since_ms=None)

    assert broken_in(under_way) == ["which ended 30.0 s before"]


def test_one_that_was_stopped_for_long_is_right_to_lose() -> None:
    plan = Plan(
        nodes=3, until_us=60 * s, operations=(Pause(at_us=2 * s, for_us=50 * s, nodes=(1,)),)
    )
    under_way, first, second = two_of_one_name(plan)
    under_way.advance(53 * s)

    vouch(under_way, second, first)
    lose(under_way, first, second.node.local)

    assert broken_in(under_way) == []


def test_two_processes_of_one_name_are_no_agreement() -> None:
    under_way, *_ = two_of_one_name()

    assert not agree(under_way.world.running, wholly=False)


@pytest.mark.parametrize("seed", range(3))
def test_hard_faults_break_nothing(seed: int) -> None:
    plan = Plan(
        nodes=6,
        until_us=150 * s,
        operations=(
            Twin(at_us=5 * s, for_us=60 * s, about=0, again_us=s),
            Cut(at_us=10 * s, for_us=15 * s, left=(0, 1, 2), right=(3, 4, 5)),
            Twin(at_us=15 * s, for_us=80 * s, about=1, beside=3, again_us=s),
            Pause(at_us=40 * s, for_us=8 * s, nodes=(2,)),
            Twin(at_us=43 * s, about=2),
            Crash(at_us=50 * s, for_us=10 * s, nodes=(4,), memory="kept", silent=True),
            Twin(at_us=52 * s, about=4),
            Crash(at_us=60 * s, for_us=3 * s, nodes=(5,), moves=True, clock_us=-3600 * s),
        ),
    )

    under_way = Run(plan, seed)

    assert under_way.finish().broken == []
    assert agree(under_way.world.running, wholly=True)
