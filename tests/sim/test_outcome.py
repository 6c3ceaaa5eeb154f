"""What came of a run, an exception of the core included, is one value."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

from ringpop_sim.checks import Check
from ringpop_sim.plans.plan import Crash, Plan
from ringpop_sim.plans.planfile import file_command, parse_plan, replay_command
from ringpop_sim.runs.run import CRASH, run
from ringpop_sim.units import s

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.world.process import Process


class Raises(Check):
    def fact(self, _process: Process, _effect: Effect) -> None:
        raise ZeroDivisionError("of all things")


def test_an_exception_is_broken_as_an_invariant_is() -> None:
    outcome = run(Plan(nodes=2, until_us=2 * s), 1, [Raises])

    assert outcome.invariants == (CRASH,)
    assert outcome.broken[0].detail.startswith("ZeroDivisionError: of all things (in ")
    assert "test_outcome.py" in outcome.broken[0].detail


def test_an_outcome_says_what_was_done_and_whether_it_ended_well() -> None:
    crash = Crash(at_us=5 * s, for_us=2 * s, nodes=(1,))

    outcome = run(Plan(nodes=3, until_us=30 * s, operations=(crash,)), 1, [])

    assert outcome.kinds == ("crash",)
    assert outcome.converged_s is not None
    assert outcome.broken == []
    assert outcome.virtual_s == 30


def test_the_replay_command_hands_the_plan_over_to_a_shell() -> None:
    plan = Plan(name='it\'s "$HOME"', nodes=3, until_us=5 * s)
    command = replay_command(plan, 7)
    first, rest = command.split("\n", 1)
    assert first == "bin/ringpop-sim run - --seed 7 <<'END'"

    done = subprocess.run(
        ["sh", "-c", f"cat <<'END'\n{rest}\n"], capture_output=True, text=True, check=True
    )

    assert parse_plan(done.stdout) == plan


def test_a_path_is_quoted_for_a_shell() -> None:
    command = file_command("replay", "my cases/one.toml", 3)

    assert shlex.split(command) == [
        *("bin/ringpop-sim", "replay", "my cases/one.toml", "--seed", "3")
    ]
