"""Figures with a part and without it as rows, and that the experiments find what they look for."""

from __future__ import annotations

import argparse
from dataclasses import fields
from math import inf
from pathlib import Path

import pytest

from ringpop_py.base.config.settings import GossipConfig
from tests.bench.protocol import PARTS, UNITS, Wire, add_options, flapping, killed, rows_of
from tests.bench.report import Row


def test_durations_are_told_by_median_and_worst_and_counts_by_mean() -> None:
    with_it = [{"killed": 1.0, "loss.dead": 0}, {"killed": 3.0, "loss.dead": 1}]
    without = [{"killed": 4.0, "loss.dead": 2}, {"killed": inf, "loss.dead": 4}]

    assert list(rows_of("part", with_it, without)) == [
        Row("protocol.part.killed.median", 2.0, "s", "off", inf, inf),
        Row("protocol.part.killed.max", 3.0, "s", "off", inf, inf),
        Row("protocol.part.loss.dead.mean", 0.5, "living members", "off", 3.0, 6.0),
    ]


def test_a_crash_with_evidence_is_known_sooner_than_without() -> None:
    assert killed((), 1)["killed"] < 2 < killed((("evidence", False),), 1)["killed"]


def test_damping_keeps_a_flapper_out_of_the_rings() -> None:
    turns = flapping((), 1)["flap.turns"], flapping((("damping", False),), 1)["flap.turns"]

    assert turns[0] < turns[1] / 2


@pytest.mark.parametrize("settings", [(), (("delta_sync", False),)])
def test_lists_that_differ_become_one_with_delta_sync_and_without(
    settings: tuple[tuple[str, bool], ...],
) -> None:
    wire = Wire(settings, 100, 5)

    wire.exchange()

    assert len(wire.sizes) >= 4
    assert len({node.members.checksum for node in wire.nodes}) == 1


def test_a_part_that_does_not_exist_is_refused() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser)

    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["--parts", "luck"])


def test_each_figure_has_a_unit() -> None:
    assert killed((), 2).keys() <= UNITS.keys()


SWITCHES = [field.name for field in fields(GossipConfig) if field.type == "bool"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_of_the_protocol_is_measured_and_written_about(switch: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")

    assert (switch, False) in {setting for part in PARTS for setting in part.off}
    assert f"| `{switch}`" in page
