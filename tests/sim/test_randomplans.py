"""Random plans are functions of their seeds, and leave nothing out."""

from __future__ import annotations

import pytest

from ringpop_sim.plans.plan import OPERATIONS, Cut
from ringpop_sim.plans.planfile import parse_plan, plan_text
from ringpop_sim.runs.random_plans import random_plan, with_expiry
from ringpop_sim.units import s

SEEDS = range(400)


def test_a_seed_gives_one_plan_and_another_gives_another() -> None:
    plans = [random_plan(seed) for seed in (1, 1, 2)]

    assert plans[0] == plans[1] != plans[2]


def test_every_kind_of_fault_is_drawn() -> None:
    plans = [
        random_plan(seed, keyspaces=keyspaces) for seed in SEEDS for keyspaces in (False, True)
    ]

    plans += [with_expiry(plan, seed) for seed, plan in enumerate(plans) if plan.keyspace]

    # Processes for shuffles are in scenarios alone.
    drawn = {o.kind for plan in plans for o in plan.operations}
    assert drawn == set(OPERATIONS) - {"shuffler", "away"}


def test_cuts_of_every_shape_are_drawn() -> None:
    cuts = [o for seed in SEEDS for o in random_plan(seed).operations if isinstance(o, Cut)]

    assert {(cut.one_way, cut.refuse) for cut in cuts} == {
        (one_way, refuse) for one_way in (False, True) for refuse in (False, True)
    }
    assert {len(cut.left) + len(cut.right) for cut in cuts} >= {2, 5, 8}
    assert any(len(cut.left) == 1 and len(cut.right) == 7 for cut in cuts)


def test_a_plan_has_five_faults_and_then_a_quiet_time() -> None:
    for seed in SEEDS:
        plan = random_plan(seed)

        assert len(plan.operations) >= 5
        assert plan.until_us >= plan.quiet_at_us + plan.settle_us
        assert plan.quiet_at_us < 25 * s
        assert plan.calm_us > 0


@pytest.mark.parametrize("nodes", [2, 3, 5, 20])
def test_a_plan_has_as_many_nodes_as_are_asked_for(nodes: int) -> None:
    for seed in range(100):
        assert random_plan(seed, nodes).nodes == nodes


def test_a_random_plan_survives_its_text() -> None:
    for seed in range(50):
        for keyspaces in (False, True):
            plan = random_plan(seed, keyspaces=keyspaces)

            assert parse_plan(plan_text(plan)) == plan
