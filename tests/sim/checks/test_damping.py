"""L5: wrong scores, verdicts without grounds, and the damped who never come back are found."""

from __future__ import annotations

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.damper import Damper
from ringpop_py.member.swim.effects import DampVoted, StatusChanged
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.scores import Scores
from ringpop_sim.checks.damped import DampingIsFair
from ringpop_sim.checks.placement import EqualListsEqualRings
from ringpop_sim.plans.plan import Plan, Rumour
from ringpop_sim.runs.run import Run
from ringpop_sim.units import s

CHECKS = (DampingIsFair, EqualListsEqualRings)
FLAPS = tuple(
    Rumour(at_us=(10 + i) * s, nodes=(0, 1, 2, 3, 5, 6, 7), about=4, status="suspect")
    for i in range(14)
)
PLAN = Plan(nodes=8, until_us=300 * s, settings=(("damp_half_life_s", 20.0),), operations=FLAPS)


def dampings(under_way: Run) -> list[int]:
    """The verdicts on the flapping node at the others."""
    processes = under_way.world.running
    rows = [process.node.members.get("n4") for process in processes if process.number != 4]
    return [row.damping if row is not None else -1 for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_a_flapping_member_is_damped_and_comes_back(seed: int) -> None:
    under_way = Run(PLAN, seed, CHECKS)

    under_way.advance(35 * s)
    assert dampings(under_way) == [1] * 7
    result = under_way.finish()

    assert dampings(under_way) == [2] * 7
    assert result.broken == []


def test_a_score_that_never_decays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(scores: Scores, name: str, _now: int) -> int:
        return scores._points_at.get(name, (0, 0))[0]

    monkeypatch.setattr(Scores, "of", of)

    assert {broken.invariant for broken in Run(PLAN, 1, CHECKS).finish().broken} == {"L5"}


def test_a_member_that_never_comes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Damper, "look", lambda *_: None)

    assert {broken.invariant for broken in Run(PLAN, 1, CHECKS).finish().broken} == {"L5"}


def test_a_verdict_against_which_somebody_spoke_is_found() -> None:
    under_way = Run(PLAN, 1, CHECKS)
    under_way.advance(5 * s)
    process = under_way.world.numbered[0]
    check = next(c for c in under_way.world.checks if isinstance(c, DampingIsFair))

    check.fact(process, DampVoted("n4", 0, (("n1", 6000), ("n2", 10)), damped=True))

    assert [broken.invariant for broken in check.broken] == ["L5"]


def test_a_planned_change_costs_no_penalty() -> None:
    under_way = Run(PLAN, 1, CHECKS)
    under_way.advance(5 * s)
    process = under_way.world.numbered[0]
    row = process.node.members.get("n4")
    assert row is not None
    left = replace(row, status=Status.LEAVE, incarnation=row.incarnation + 1)
    check = next(c for c in under_way.world.checks if isinstance(c, DampingIsFair))

    check.fact(process, StatusChanged(row, left, "ping", "n4", "n4"))
    check.fact(process, DampVoted("n4", 0, (), damped=False))

    assert check.broken == []
