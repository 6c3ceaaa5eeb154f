"""Journals under random schedules keep every promise; and a schedule is a function of its seed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from ringpop_sim.state.journal.schedule import JOURNAL, run_schedule

SCHEDULES: Final = 300
"""Each run of the tests has so many; ``ringpop-sim journal --schedules`` runs more."""
PRINT_TRACES: Final = """
from ringpop_sim.state.journal.schedule import run_schedule
for seed in range(3):
    print(*run_schedule(seed, traced=True).trace, sep="\\n")
"""


def test_every_invariant_holds_in_every_schedule() -> None:
    summary = JOURNAL.sweep(0, SCHEDULES, lambda: 0.0)

    assert summary.ok, [(outcome.seed, outcome.broken) for outcome in summary.failures]


@pytest.mark.parametrize("seed", [278_020])
def test_a_late_put_in_the_place_of_a_lost_checkpoint_is_not_a_deletion(seed: int) -> None:
    """A checkpoint is lost, a late put of an earlier one takes its place, its base is deleted."""
    assert run_schedule(seed).broken is None


def test_schedules_are_no_idle_ones() -> None:
    counts = JOURNAL.sweep(0, 100, lambda: 0.0).counts

    assert counts["epochs"] > 1500
    assert counts["operations"] > 2500
    assert counts["releases"] > 1000
    assert counts["seals"] > 200
    assert counts["fences"] > 40  # owners that lived when their journal was sealed
    assert counts["reclaims"] > 25
    assert counts["lies"] > 1  # seals in slots that had been deleted
    assert counts["checkpoints"] > 1500
    assert counts["marks"] > 700
    assert counts["deleted"] > 1500
    assert counts["unmet"] > 100  # conditions that did not hold


@pytest.mark.parametrize("nodes", [1, 7])
def test_other_sizes_hold_as_well(nodes: int) -> None:
    summary = JOURNAL.sweep(0, 50, lambda: 0.0, nodes=nodes)

    assert summary.ok, summary.failures


def test_several_processes_find_what_one_does() -> None:
    one, two = (JOURNAL.sweep(0, 60, lambda: 0.0, jobs=jobs) for jobs in (1, 2))

    assert one == two


def test_equal_seeds_have_equal_traces_whatever_the_hashing_of_strings() -> None:
    traces = {
        subprocess.run(
            [sys.executable, "-c", PRINT_TRACES],
            env={
                **os.environ,
                "PYTHONHASHSEED": hashing,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        for hashing in ("0", "1")
    }

    assert len(traces) == 1
    assert "PutSlot(" in traces.pop()


def test_a_trace_changes_nothing() -> None:
    plain, traced = (run_schedule(7, traced=traced) for traced in (False, True))

    assert plain.event_count == traced.event_count
    assert not plain.trace
    assert len(traced.trace) == 60
