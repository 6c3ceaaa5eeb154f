"""Scenarios by name: each keeps all invariants, and comes out as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import parse_plan, plan_text
from ringpop_sim.runs.run import run
from ringpop_sim.scenarios import SCENARIOS, about, scenario

SEEDS: Final = (1,)
"""Random plans draw more, and so does ``ringpop-sim run SCENARIO --seed``."""
SIZES: Final = {
    "deaf": 24,
    "flip-flop": 24,
    "join-storm": 20,
    "paused": 16,
    "rolling-restart": 8,
    "scale-down": 10,
    "steady": 8,
}
"""Of those that are large as they come: here they are as small as still makes the point."""
WHOLE: Final = ("partitions-killed", "copies-split", "requests-troubled")
"""Of whole daemons, which take long, those that are run in the dialect of Ringpop as well."""
IN_DIALECT: Final = [name for name in SCENARIOS if name in WHOLE or not scenario(name).is_whole]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_called_by_its_name_and_says_what_it_shows(name: str) -> None:
    assert scenario(name).name == name
    assert about(name).endswith(".")


def test_a_caller_that_asks_for_an_unknown_scenario_is_told_which_there_are() -> None:
    with pytest.raises(PlanError, match="there is no scenario 'x'; there is steady, crash, split"):
        scenario("x")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_a_plan_like_any_other(name: str) -> None:
    plan = scenario(name)

    assert parse_plan(plan_text(plan)) == plan


def test_a_scenario_that_needs_more_nodes_says_how_many() -> None:
    with pytest.raises(PlanError, match="needs 3 nodes or more, not 2"):
        scenario("three-way-cut", 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_keeps_every_invariant_and_comes_out_as_it_says(name: str, seed: int) -> None:
    result = run(scenario(name, SIZES.get(name)), seed)

    assert result.broken == []


@pytest.mark.parametrize("name", IN_DIALECT)
def test_a_scenario_breaks_no_invariant_where_all_nodes_speak_as_ringpop_does(name: str) -> None:
    plan = scenario(name, SIZES.get(name))

    result = run(replace(plan, dialect="ringpop", preset="ringpop", expect=()), 1)

    assert result.broken == []
