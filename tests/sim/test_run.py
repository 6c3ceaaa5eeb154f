"""A run goes to the end of its plan, or to the calm before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringpop_sim.plans.plan import Cut, Plan
from ringpop_sim.runs.random_plans import random_plan
from ringpop_sim.runs.run import run
from ringpop_sim.units import s

CUT = Cut(at_us=5 * s, for_us=20 * s, left=(0, 1), right=(2, 3))
PLAN = Plan(nodes=4, until_us=300 * s, operations=(CUT,))


def test_a_run_lasts_until_the_plan_ends() -> None:
    assert run(PLAN, 1).virtual_s == 300


def test_a_plan_with_a_calm_ends_when_its_cluster_is_one_and_stays_it() -> None:
    result = run(replace(PLAN, calm_us=3 * s), 1)

    assert result.converged_s is not None
    assert 25 + result.converged_s + 3 <= result.virtual_s < 120


def test_a_cluster_that_does_not_become_one_goes_on_to_the_end() -> None:
    endless = replace(CUT, for_us=0)

    result = run(replace(PLAN, calm_us=3 * s, until_us=60 * s, operations=(endless,)), 1, [])

    assert result.virtual_s == 60


@pytest.mark.parametrize("seed", [1005688, 1005938, 2001038, 2003313])
def test_a_plan_that_once_broke_an_invariant_breaks_none(seed: int) -> None:
    assert run(random_plan(seed), seed).broken == []
