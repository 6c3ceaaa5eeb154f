"""Shrinking leaves the same invariant broken, and little else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_sim.plans.plan import Crash, Cut, Discovery, Link, Plan, Traffic
from ringpop_sim.runs.random_plans import random_plan
from ringpop_sim.runs.run import run
from ringpop_sim.runs.shrink import _without_nodes, shrink
from ringpop_sim.units import s

if TYPE_CHECKING:
    from ringpop_sim.checks import Check


def test_a_plan_shrinks_to_what_breaks_the_invariant(nobody_is_faulty: type[Check]) -> None:
    plan = random_plan(8)
    assert run(plan, 5).invariants == ("T1",)

    shrunk = shrink(plan, 8, "T1", budget_s=30)

    assert shrunk is not None
    assert len(shrunk.plan.operations) <= 2
    assert shrunk.plan.nodes <= 4
    assert shrunk.plan.link == Link()
    again = run(shrunk.plan, shrunk.seed, [nobody_is_faulty])
    assert again.broken[0] == shrunk.broken


def test_a_plan_that_does_not_break_does_not_shrink() -> None:
    assert shrink(Plan(nodes=2, until_us=2 * s), 1, "T1") is None


def test_the_time_is_kept(nobody_is_faulty: type[Check]) -> None:
    plan = random_plan(8)

    shrunk = shrink(plan, 8, "T1", budget_s=0.001, checks=[nobody_is_faulty])

    assert shrunk is not None
    assert not shrunk.finished
    assert shrunk.plan == plan


def test_without_some_nodes_the_others_move_up() -> None:
    cut = Cut(at_us=s, left=(0, 1), right=(2, 4))
    gone = Crash(at_us=s, nodes=(1,))
    lies = Discovery(at_us=0, nodes=(3,), listed=(1,))
    plan = Plan(nodes=5, operations=(cut, gone, lies), traffic=Traffic())

    smaller = _without_nodes(plan, [1, 2])

    assert smaller.nodes == 3
    assert smaller.operations == (
        Cut(at_us=s, left=(0,), right=(2,)),
        Discovery(at_us=0, nodes=(1,), listed=()),
    )
