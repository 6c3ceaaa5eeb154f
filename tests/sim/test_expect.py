"""What a plan expects of its run, besides the invariants."""

from __future__ import annotations

import pytest

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.expect import parse_expectation
from ringpop_sim.plans.plan import Crash, Plan, Traffic
from ringpop_sim.runs.run import run
from ringpop_sim.units import s


def _broken(*expect: str) -> list[str]:
    plan = Plan(
        nodes=5,
        until_us=30 * s,
        traffic=Traffic(per_second=20, from_us=5 * s),
        operations=(Crash(at_us=10 * s, nodes=(1,)),),
        expect=expect,
    )
    return [broken.detail for broken in run(plan, 1).broken if broken.invariant == "E"]


def test_an_expectation_that_comes_true_is_not_mentioned() -> None:
    assert not _broken(
        "deaths 1 == 1",
        "deaths 0,2-4 == 0",
        "suspects == 1",
        "left_out == 1",
        "running == 4",
        "damped == 0",
        "refuted == 0",
        "views == 1",
        "false_faulty == 0",
        "detected_s <= 20",
        "converged_s <= 20",
        "failed <= 0",
        "answered >= 300",
        "repeated == 0",
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("deaths == 0", "found 1"),
        ("left_out 0 == 1", "found 0"),
        ("running 0,1 == 2", "found 1"),
        ("answered <= 1", "found "),
        ("detected_s <= 0.1", "found "),
    ],
)
def test_an_expectation_that_does_not_come_true_is_broken(text: str, found: str) -> None:
    assert [detail.startswith(f"expected {text}, {found}") for detail in _broken(text)] == [True]


def test_a_figure_that_could_not_be_measured_is_not_as_expected() -> None:
    plan = Plan(nodes=3, until_us=5 * s, expect=("detected_s <= 1000",))

    assert [broken.detail for broken in run(plan, 1).broken] == [
        "expected detected_s <= 1000, found nothing"
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("deaths", "has the form"),
        ("deaths < 3", "has the form"),
        ("deaths == many", "has the form"),
        ("joy == 1", "must be one of suspects, deaths"),
        ("deaths 1- == 0", "nodes have the form"),
        ("deaths 5 == 0", r"there is no node \[5\]"),
    ],
)
def test_an_expectation_that_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        Plan(nodes=5, expect=(text,))


def test_nodes_under_other_numbers_are_still_the_ones_meant() -> None:
    expectation = parse_expectation("deaths 1,3-4 == 0")

    assert str(expectation.renumbered({1: 0, 3: 1, 4: 2})) == "deaths 0,1,2 == 0"
    assert expectation.renumbered({1: 0, 3: 1}) is None
