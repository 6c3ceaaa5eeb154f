"""Shuffles under random schedules keep every promise, and so does one with every death."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from ringpop_sim.flow.shuffle.deaths import DEATHS, DISTURBANCES, cases
from ringpop_sim.flow.shuffle.schedule import SHUFFLE, STORED, run_schedule

SCHEDULES: Final = 200
STORED_SCHEDULES: Final = 100
"""Each run of the tests has so many; ``ringpop-sim shuffle --schedules`` runs more."""
CASE_STEP: Final = 151
"""Of all deaths, each run of the tests has every so manieth; ``--deaths`` runs them all."""
PRINT_TRACES: Final = """
from ringpop_sim.flow.shuffle.schedule import run_schedule
for seed in range(3):
    print(*run_schedule(seed, traced=True).trace, sep="\\n")
"""


def test_every_invariant_holds_in_every_schedule() -> None:
    summary = SHUFFLE.sweep(0, SCHEDULES, lambda: 0.0)

    assert summary.ok, [(outcome.seed, outcome.broken) for outcome in summary.failures]
    counts = summary.counts
    assert counts["kills"] > SCHEDULES
    assert counts["suspected"] > SCHEDULES / 10
    assert counts["get"] > SCHEDULES * 0.8
    assert counts["frames"] > SCHEDULES * 15
    assert counts["answers"] > SCHEDULES * 8
    assert min(counts["refused"], counts["deleted"], counts["damaged"]) > SCHEDULES / 100


def test_every_invariant_holds_with_frames_in_the_store_though_all_may_die_at_once() -> None:
    summary = STORED.sweep(0, STORED_SCHEDULES, lambda: 0.0)

    assert summary.ok, [(outcome.seed, outcome.broken) for outcome in summary.failures]
    assert summary.counts["kills"] > STORED_SCHEDULES * 1.2
    assert summary.counts["get"] > STORED_SCHEDULES * 0.8
    assert not summary.counts["damaged"]


def test_no_death_of_a_member_loses_a_row_and_no_two_deaths_do_so_in_silence() -> None:
    # A step that has no factor in common with the number of members or of kinds of deaths.
    assert len(DISTURBANCES) * 3 % CASE_STEP
    outcomes = [DEATHS.run(case) for case in range(0, len(cases()), CASE_STEP)]

    assert not [(outcome.seed, outcome.broken) for outcome in outcomes if outcome.broken]
    assert len(outcomes) > 160


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
    assert "Record(" in traces.pop()


def test_a_trace_changes_nothing() -> None:
    plain, traced = (run_schedule(7, traced=traced) for traced in (False, True))

    assert plain.event_count == traced.event_count
    assert not plain.trace
    assert len(traced.trace) > 10
