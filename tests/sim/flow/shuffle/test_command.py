"""``ringpop-sim shuffle``: one answer on standard output, and an exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ringpop_sim.cli import main

if TYPE_CHECKING:
    import pytest


def test_it_says_in_json_what_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["shuffle", "--schedules", "5", "--first", "10", "--format", "json"])

    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (said["ok"], said["schedules"], said["failures"]) == (True, 5, [])
    assert said["frames"] > 50


def test_it_runs_a_part_of_all_deaths(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["shuffle", "--deaths", "--schedules", "10", "--first", "1000", "--trace"])

    said = capsys.readouterr()
    assert code == 0
    assert "10 schedules" in said.out
    assert "every invariant held in every schedule" in said.out
    assert "is killed" in said.err


def test_it_runs_shuffles_with_a_store_and_not_both_kinds_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["shuffle", "--store", "--schedules", "5"]) == 0
    assert "every invariant held in every schedule" in capsys.readouterr().out
    assert main(["shuffle", "--store", "--deaths"]) != 0
    assert "--deaths or --store, not both" in capsys.readouterr().err
