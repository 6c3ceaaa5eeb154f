"""Clusters of real processes under random faults: nothing is lost, doubled or torn."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.e2e.state.network import why_no_cuts
from tests.e2e.state.plans import FREE_OF_CUTS, KINDS, Fault, random_plan
from tests.e2e.state.run import NODES, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_acknowledged_writes_hold_through_random_faults(tmp_path: Path) -> None:
    kinds = FREE_OF_CUTS if why_no_cuts() else KINDS
    plan = random_plan(random.Random(1), nodes=NODES, duration_s=4.0, kinds=kinds)

    outcome = run(tmp_path, 1, plan, 4.0)

    assert outcome.problems == []
    assert outcome.done_count > 100


def test_a_store_that_fails_takes_nothing_along(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to mount a small disk takes root")
    plan = [
        Fault("full", 0, 0.4, 0.6),
        Fault("kill", 1, 0.7, 0.6),
        Fault("store", 0, 1.5, 0.4),
        Fault("pause", 2, 1.8, 0.7),
    ]

    outcome = run(tmp_path, 7, plan, 3.0)

    assert outcome.problems == []
    assert outcome.done_count > 100


def test_acknowledged_writes_hold_while_nodes_are_cut_off(tmp_path: Path) -> None:
    reason = why_no_cuts()
    if reason is not None:
        pytest.skip(reason)
    kinds = ("isolate", "deafen", "pause")
    plan = random_plan(random.Random(3), nodes=NODES, duration_s=3.0, kinds=kinds)

    outcome = run(tmp_path, 3, plan, 3.0)

    assert outcome.problems == []
    assert outcome.done_count > 100
