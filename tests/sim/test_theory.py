"""The figures of simulated clusters are those of theory, but for chance."""

from __future__ import annotations

import pytest

from ringpop_sim.theory import Row, false_suspicion, first_detection, rotation, spread


def _wrong(rows: list[Row]) -> list[dict[str, object]]:
    return [row.as_json() for row in rows if not row.ok]


def test_a_row_is_as_good_as_its_ratio() -> None:
    assert Row("law", "here", 2.0, 2.1, 0.06, 1).ok
    assert not Row("law", "here", 2.0, 2.2, 0.06, 1).ok
    assert not Row("law", "here", 2.0, 1.8, 0.06, 1).ok


def test_a_live_member_is_suspected_as_seldom_as_it_should_be() -> None:
    assert _wrong(false_suspicion(1, probes=8_000)) == []


def test_a_crash_is_first_detected_after_two_periods() -> None:
    assert _wrong(first_detection(1, sizes=(10, 30), runs=25)) == []


def test_everybody_is_probed_in_every_round() -> None:
    assert _wrong(rotation(1, sizes=(5, 10))) == []


@pytest.mark.parametrize("nodes", [10, 30, 100])
def test_a_rumour_reaches_everybody_in_logarithmic_time(nodes: int) -> None:
    assert _wrong(spread(1, sizes=(nodes,), runs=8)) == []
