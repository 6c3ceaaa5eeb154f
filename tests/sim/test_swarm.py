"""A swarm runs each seed once, survives its workers, and finds nothing in a sound core."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from ringpop_sim.cli import main
from ringpop_sim.runs import swarm as module
from ringpop_sim.runs.random_plans import random_plan
from ringpop_sim.runs.run import run
from ringpop_sim.runs.swarm import Shape, SwarmSummary, swarm

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from typing import Any

    from ringpop_sim.checks import Check

PLANS_COUNT = int(os.environ.get("RINGPOP_SIM_PLANS", "200"))
"""How many random plans each run of the tests goes through; fewer, to look at something else."""


@pytest.mark.swarm
@pytest.mark.timeout(900)
def test_no_invariant_breaks_in_many_random_plans(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["swarm", "--seeds", str(PLANS_COUNT), "--format", "json"])

    said = capsys.readouterr()
    assert code == 0, said.err
    value = json.loads(said.out)
    assert value["plans"] == PLANS_COUNT
    assert value["events"] > 500 * PLANS_COUNT


def test_a_swarm_ends_when_its_time_is_over() -> None:
    summary = swarm(for_s=0.5, cores=1)

    assert summary.plan_count >= 1
    assert summary.wall_s < 30


def test_a_worker_runs_what_one_would_run_oneself() -> None:
    summary = swarm(7, 2, cores=1)

    assert summary.ok
    assert summary.event_count == sum(run(random_plan(n), n).events for n in (7, 8))


def dies_at_1(pipe: Connection[Any, Any], _shape: Shape) -> None:
    while True:
        seed = pipe.recv()
        if seed == 1:
            raise SystemExit(9)
        pipe.send(run(random_plan(seed, 2, 1), seed))


def test_a_worker_that_dies_costs_its_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_work", dies_at_1)

    summary = swarm(0, 4, cores=1)

    assert summary.plan_count == 4
    assert summary.first == {"worker": [1]}
    assert summary.failures[0].broken[0].detail == "its process ended with exit code 9"


def hangs_at_1(pipe: Connection[Any, Any], _shape: Shape) -> None:
    while True:
        seed = pipe.recv()
        if seed == 1:
            pipe.recv()
        pipe.send(run(random_plan(seed, 2, 1), seed))


def test_a_worker_that_hangs_costs_its_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_work", hangs_at_1)
    monkeypatch.setattr(module, "SEED_S_MAX", 6.0)

    summary = swarm(0, 3, cores=1)

    assert summary.plan_count == 3
    assert summary.first == {"worker": [1]}


def test_a_summary_keeps_the_first_seeds_of_each_invariant(nobody_is_faulty: type[Check]) -> None:
    summary = SwarmSummary()
    for seed in range(12):
        summary.add(run(random_plan(seed), seed, [nobody_is_faulty]))

    assert not summary.ok
    assert summary.broken["T1"] == summary.failed_count > 5
    assert len(summary.first["T1"]) == 5
    assert [outcome.seed for outcome in summary.failures] == summary.first["T1"]


def test_what_is_of_a_keyspace_needs_whole_daemons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swarm", "--mode", "memory"]) != 0

    assert "give --whole, too" in capsys.readouterr().err
