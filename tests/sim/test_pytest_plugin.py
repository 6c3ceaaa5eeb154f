"""Users' tests: a cluster of their own, held to the invariants, and a command when one breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
from ringpop_sim import s

def test_a_crash_is_found(ringpop_sim):
    sim = ringpop_sim(nodes=3)
    sim.at(5 * s).crash(1)

    assert sim.run(until=30 * s).detected_s < 10
"""
BROKEN = """
import sys
import pytest
import ringpop_sim as r

class NeverAnything(r.Check):

    def fact(self, process, effect):
        self.broke("T1", f"{process.name} said something")

@pytest.fixture(autouse=True)
def never(monkeypatch):
    monkeypatch.setattr(sys.modules["ringpop_sim.runs.run"].Run, "ORACLES", (NeverAnything,))

def test_it_runs_what_was_not_run(ringpop_sim):
    ringpop_sim(nodes=2, settle_us=5 * r.s)
"""


def pytest_with(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_mine.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    plugin = ["-p", "ringpop_sim.pytest_plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_a_cluster_that_keeps_its_word_passes(tmp_path: Path) -> None:
    done = pytest_with(tmp_path, GOOD)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_broken_invariant_fails_the_test_and_says_how_to_see_it_again(tmp_path: Path) -> None:
    done = pytest_with(tmp_path, BROKEN, "--ringpop-sim-seed", "42")

    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "seed 42: broken: T1" in done.stdout
    assert "T1 at 0.000" in done.stdout
    assert "bin/ringpop-sim run - --seed 42 <<'END'" in done.stdout


def test_the_option_stands_in_the_help(tmp_path: Path) -> None:
    done = pytest_with(tmp_path, GOOD, "--help")

    assert "--ringpop-sim-seed=N" in done.stdout
