"""Slot logs under random schedules keep every promise; and a schedule is a function of its seed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from ringpop_sim.slotlog.schedule import SLOTLOG, run_schedule

CHUNK: Final = 500
PRINT_TRACES: Final = """
from ringpop_sim.slotlog.schedule import SLOTLOG, run_schedule
for seed in range(3):
    print(*run_schedule(seed, traced=True).trace, sep="\\n")
"""


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_every_invariant_holds_in_every_schedule(first: int) -> None:
    summary = SLOTLOG.sweep(first, CHUNK, lambda: 0.0)

    assert summary.ok, [(outcome.seed, outcome.broken) for outcome in summary.failures]


def test_schedules_are_no_idle_ones() -> None:
    summary = SLOTLOG.sweep(0, 100, lambda: 0.0)

    assert summary.counts["epochs"] > 300
    assert summary.counts["operations"] > 800


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_other_sizes_hold_as_well(nodes: int) -> None:
    summary = SLOTLOG.sweep(0, 100, lambda: 0.0, nodes=nodes)

    assert summary.ok, summary.failures


def test_several_processes_find_what_one_does() -> None:
    one, two = (SLOTLOG.sweep(0, 120, lambda: 0.0, jobs=jobs) for jobs in (1, 2))

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
    assert "Acquired" in traces.pop()


def test_a_trace_changes_nothing() -> None:
    plain, traced = (run_schedule(7, traced=traced) for traced in (False, True))

    assert plain.event_count == traced.event_count
    assert not plain.trace
    assert len(traced.trace) == 60
