"""Samples of several products as rows, and what can be chosen on the command line."""

from __future__ import annotations

import argparse
import math

import pytest

from tests.bench.gossip import add_options, plan, rows, samples_of
from tests.bench.report import Row


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser)
    return parser.parse_args(arguments)


def test_samples_are_gathered_by_figure() -> None:
    output = '{"figure": "crash", "value": 1.5}\n{"figure": "crash", "value": Infinity}\n'

    assert samples_of(output) == {"crash": [1.5, math.inf]}


def test_medians_and_the_worst_are_compared_with_goals_and_with_each_peer() -> None:
    ours = {"crash": [1.0, 2.0, 4.0]}
    theirs = {"serf": {"crash": [6.0, 6.0, 8.0]}, "kinship": None}

    assert list(rows(ours, theirs, 30)) == [
        Row("gossip.crash.30.median", 2.0, "s", "goal", 2.0, 1.0, 1.0, ok=True),
        Row("gossip.crash.30.median", 2.0, "s", "serf", 6.0, 3.0),
        Row("gossip.crash.30.median", 2.0, "s", "kinship: not installed"),
        Row("gossip.crash.30.max", 4.0, "s", "goal", 3.0, 0.75, 1.0, ok=False),
        Row("gossip.crash.30.max", 4.0, "s", "serf", 8.0, 2.0),
        Row("gossip.crash.30.max", 4.0, "s", "kinship: not installed"),
    ]


def test_a_peer_that_does_not_tell_of_a_figure_has_no_row() -> None:
    ours, theirs = {"suspected": [0.1]}, {"serf": {"crash": [6.0]}}

    assert list(rows(ours, theirs, 3)) == [Row("gossip.suspected.3", 0.1, "s")]


def test_nothing_counted_is_the_best_of_all() -> None:
    ours, theirs = {"condemned_4": [0.0]}, {"kinship": {"condemned_4": [27.0]}}

    goal, kinship = rows(ours, theirs, 30)

    assert (goal.ratio, goal.ok) == (None, True)
    assert (kinship.peer_value, kinship.ratio) == (27.0, None)


def test_a_figure_that_was_not_reached_in_time_misses_its_goal() -> None:
    (row,) = rows({"heal_40": [math.inf]}, {}, 10)

    assert (row.name, row.ok) == ("gossip.heal_40.10", False)


def test_a_failure_is_a_row_that_misses_its_goal() -> None:
    (row,) = rows({"failed_crash": [1.0]}, {}, 30)

    assert (row.name, row.ok) == ("gossip.failed_crash.30", False)


def test_a_figure_that_only_tells_of_progress_has_no_row() -> None:
    assert list(rows({"lost_15": [50.0]}, {}, 10)) == []


def test_sizes_are_chosen_where_an_experiment_leaves_the_choice() -> None:
    options = parsed("--only", "heal,crash,pause", "--nodes", "3,10")

    assert list(plan(options.only, options.nodes)) == [
        ("crash", 3),
        ("crash", 10),
        ("heal", 10),
        ("pause", 10),
    ]


def test_no_peer_is_a_choice() -> None:
    assert parsed("--peers", "none").peers == ()


@pytest.mark.parametrize("wrong", [("--only", "crush"), ("--nodes", "1"), ("--runs", "0")])
def test_arguments_that_cannot_be_carried_out_are_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parsed(*wrong)
