"""Dataflows under random schedules: each record of their sources counts once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ringpop_sim.cli import main
from ringpop_sim.flow.exchange.schedule import DATAFLOWS, run_schedule

if TYPE_CHECKING:
    import pytest

SCHEDULES: Final = 300
"""Each run of the tests has so many; ``ringpop-sim dataflows --schedules`` runs more."""


def test_every_record_counts_once_in_every_schedule() -> None:
    summary = DATAFLOWS.sweep(0, SCHEDULES, lambda: 0.0)

    assert summary.ok, [(outcome.seed, outcome.broken) for outcome in summary.failures]
    counts = summary.counts
    assert min(counts["killed"], counts["leaves"], counts["failed"], counts["cut"]) > SCHEDULES / 5
    assert min(counts["too late"], counts["complete"], counts["changes"]) > SCHEDULES * 2
    assert min(counts["runs"], counts["kept"]) > SCHEDULES * 2
    assert counts["records"] > SCHEDULES * 40


def test_a_trace_changes_nothing() -> None:
    plain, traced = (run_schedule(7, traced=traced) for traced in (False, True))

    assert plain.event_count == traced.event_count
    assert not plain.trace
    assert len(traced.trace) > 5


def test_the_command_says_what_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataflows", "--schedules", "5", "--first", "10", "--format", "json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["schedules"], said["failures"]) == (True, 5, [])
    assert said["records"] > 50
