"""docs/simulator.md: its plan is one, and its programs do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ringpop_sim.plans.plan import OPERATIONS
from ringpop_sim.plans.planfile import parse_plan
from ringpop_sim.runs.run import run

GUIDE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_plans_of_the_guide_run_and_keep_their_promise(text: str) -> None:
    assert run(parse_plan(text), 7).broken == []


def test_the_program_of_the_guide_runs() -> None:
    program, _, _ = blocks("python")

    exec(compile(program, "docs/simulator.md", "exec"), {})  # noqa: S102 - it is ours


def test_the_history_of_the_guide_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    *_, program = blocks("python")

    exec(compile(program, "docs/simulator.md", "exec"), {})  # noqa: S102 - it is ours

    assert "there is no place for\n  5 to 6: get(None) -> 1" in capsys.readouterr().out


@pytest.mark.parametrize("kind", OPERATIONS)
def test_each_fault_has_a_row(kind: str) -> None:
    assert f"\n| `{kind}` |" in GUIDE
