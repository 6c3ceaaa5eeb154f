"""L7: what is left of an evicted member is found, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.member.swim.dissemination import Dissemination
from ringpop_py.member.swim.scores import Scores
from ringpop_py.member.swim.waits import Due
from ringpop_sim.checks.forgotten import EvictedForgotten, places_of
from ringpop_sim.plans.plan import Crash, Cut, Link, Plan
from ringpop_sim.runs.run import Run
from ringpop_sim.units import s

if TYPE_CHECKING:
    from ringpop_py.member.swim.timers import Timers

PLAN = Plan(
    nodes=4,
    until_us=150 * s,
    settings=(("faulty_s", 20.0), ("tombstone_s", 5.0)),
    operations=(Crash(at_us=5 * s, nodes=(1,)),),
)


def broken_in(plan: Plan, seed: int = 1) -> list[str]:
    found = Run(plan, seed, (EvictedForgotten,)).finish().broken
    return [f"{broken.invariant}: {broken.detail}" for broken in found]


def test_a_change_that_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dissemination, "forget", lambda *_: None)
    monkeypatch.setattr(Dissemination, "count_sent", lambda *_: None)

    assert any("dissemination" in broken for broken in broken_in(PLAN))


def test_a_score_that_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scores, "forget", lambda *_: None)

    assert any("_scores" in broken for broken in broken_in(PLAN))


def test_timers_that_are_never_swept_out_are_found() -> None:
    under_way = Run(PLAN, 1, (EvictedForgotten,))
    under_way.advance(40 * s)
    timers: Timers = under_way.world.numbered[0].node._core.timers

    for _ in range(2000):
        timers.set(1 << 50, Due.PERIOD)

    assert any("timers" in broken.detail for broken in under_way.finish().broken)


def test_a_member_that_is_known_stands_in_many_places() -> None:
    under_way = Run(PLAN, 1, (EvictedForgotten,))
    under_way.advance(4 * s)

    places = places_of(under_way.world.numbered[0].node, "n1")

    assert any("_rotation" in place for place in places)
    assert any("_members" in place for place in places)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_hard_faults_leave_nothing_behind(seed: int, dialect: str) -> None:
    plan = Plan(
        nodes=8,
        until_us=200 * s,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(loss=0.05),
        settings=(("faulty_s", 20.0), ("tombstone_s", 5.0)),
        operations=(
            Cut(at_us=10 * s, for_us=70 * s, left=(0, 1, 2), right=(3, 4, 5)),
            Crash(at_us=12 * s, for_us=20 * s, nodes=(1, 4), moves=True),
            Crash(at_us=40 * s, nodes=(7,)),
        ),
    )

    assert broken_in(plan, seed) == []
