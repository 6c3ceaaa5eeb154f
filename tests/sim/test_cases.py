"""A case keeps a plan, a seed and what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import read_plan
from ringpop_sim.runs.cases import Case, case_of, case_text, read_case, write_case
from ringpop_sim.runs.random_plans import random_plan
from ringpop_sim.runs.run import run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_case_is_read_as_it_was_written(tmp_path: Path) -> None:
    case = Case(random_plan(5), 7, "0123456789abcdef", ("L1", "S4"))
    path = tmp_path / "case.toml"

    write_case(case, path)

    assert read_case(path) == case


def test_a_case_is_a_plan(tmp_path: Path) -> None:
    case = Case(random_plan(5), 7, "0123456789abcdef")
    path = tmp_path / "case.toml"

    write_case(case, path)

    assert read_plan(path) == case.plan


def test_a_replayed_case_goes_as_it_went() -> None:
    plan = random_plan(2)
    case = case_of(plan, run(plan, 2))

    again = run(case.plan, case.seed)

    assert (again.digest, again.invariants) == (case.digest, case.broken)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes = 3", "this is not a case"),
        ("[case]\nseed = '1'", "this is not a case"),
        ("[case]\nseed = 1\nbroken = 'S1'", "broken a list of invariants"),
        ("nodes = 0\n[case]\nseed = 1", "a plan has 1 to 20000 nodes"),
    ],
)
def test_a_wrong_case_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "case.toml"
    path.write_text(text)

    with pytest.raises(PlanError, match=said):
        read_case(path)


def test_a_case_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    case = Case(random_plan(5), 7, "0")

    with pytest.raises(PlanError, match="none"):
        write_case(case, tmp_path / "none" / "case.toml")


def test_the_text_of_a_case_says_what_broke() -> None:
    assert 'seed = 7\ndigest = "0"\nbroken = ["S1"]' in case_text(
        Case(random_plan(5), 7, "0", ("S1",))
    )
