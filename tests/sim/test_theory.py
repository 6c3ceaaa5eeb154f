"""The figures of simulated clusters are those of theory, but for chance."""

from __future__ import annotations

import json

import pytest

from ringpop_sim.cli import main
from ringpop_sim.runs.theory import (
    TheoryRow,
    false_suspicion,
    first_detection,
    flapping,
    healing,
    rotation,
    spread,
    suspicion,
)


def _wrong(rows: list[TheoryRow]) -> list[dict[str, object]]:
    return [row.as_json() for row in rows if not row.ok]


def test_a_row_is_as_good_as_its_ratio() -> None:
    assert TheoryRow("law", "here", 2.0, 2.1, 0.06, 1).ok
    assert not TheoryRow("law", "here", 2.0, 2.2, 0.06, 1).ok
    assert not TheoryRow("law", "here", 2.0, 1.8, 0.06, 1).ok
    assert TheoryRow("law", "here", 2.0, 0.1, 0.0, 1, is_limit=True).ok
    assert not TheoryRow("law", "here", 2.0, 2.1, 0.0, 1, is_limit=True).ok


def test_a_live_member_is_suspected_as_seldom_as_it_should_be() -> None:
    assert _wrong(false_suspicion(1, 0.25)) == []


def test_a_crash_is_first_detected_after_two_periods() -> None:
    assert _wrong(first_detection(1, 0.6, sizes=(10, 30))) == []


def test_everybody_is_probed_in_every_round() -> None:
    assert _wrong(rotation(1, sizes=(5, 10))) == []


@pytest.mark.parametrize("nodes", [10, 30, 100])
def test_a_rumour_reaches_everybody_in_logarithmic_time(nodes: int) -> None:
    assert _wrong(spread(1, 0.7, sizes=(nodes,))) == []


def test_the_time_to_refute_is_lifeguards() -> None:
    assert _wrong(suspicion(1, sizes=(4, 12))) == []


def test_the_score_of_a_flapper_settles() -> None:
    assert _wrong(flapping(1)) == []


def test_halves_are_one_within_the_limit() -> None:
    assert _wrong(healing(1, 0.25, sizes=(2, 10))) == []


def test_the_command_prints_rows_and_says_whether_all_are_in_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["theory", "rotation", "--sizes", "5", "--format", "json"])

    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert said["ok"]
    assert [row["at"] for row in said["rows"]] == ["n = 5", "n = 5"]


def test_an_unknown_law_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "gravity"]) == 2
    assert "no law 'gravity'; there are false-suspicion" in capsys.readouterr().err
