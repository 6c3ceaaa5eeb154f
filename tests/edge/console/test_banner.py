"""The sentence at the top of the console, from the sections of the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any
from urllib.parse import unquote

import pytest

from ringpop_py.edge.console.banner import (
    ADVICE,
    CAUSES,
    CHECK,
    COLOURS,
    OTHER_ADVICE,
    SHAPES,
    STATES,
    WORDS,
    Banner,
    banner_of,
    command_of,
    icon_of,
)
from ringpop_py.edge.judge.problems import RANKS
from ringpop_py.member.swim.member import Status


def problem(cause: str, level: str = "warning", **more: object) -> dict[str, Any]:
    of = {"level": level, "cause": cause, "text": f"{cause}: n4", "members": ["n4"]}
    return {**of, "evidence": [], "next": "", "since": None, **more}


def said(*problems: dict[str, Any], **more: object) -> Banner:
    sections = {
        "head": {"counts": {"alive": 5}},
        "problems": list(problems),
        "events": [],
        **more,
    }
    return banner_of(sections, lambda at: f"{at:g} s")


def test_all_is_well_and_the_last_change_of_a_status_is_named() -> None:
    changes: list[dict[str, Any]] = [
        {"at": 1.0, "before": "faulty", "after": "alive", "text": "n2 faulty -> alive"},
        {"at": 2.0, "before": "alive", "after": "alive", "text": "n2 alive, new labels"},
        {"at": 3.0, "before": None, "after": None, "text": "health-changed"},
    ]

    well = said(events=changes, keyspaces=[{"moving": 0}])

    assert (well.level, well.word, well.count, well.command) == ("ok", "Healthy", 0, "")
    assert well.say == "All 5 members are up and agree, and every partition is served."
    assert well.advice == "Nothing to do. The last change, at 1 s: n2 faulty -> alive."
    assert well.title("shop") == "Healthy · shop"
    alone = said(head={"counts": {"alive": 1}})
    assert (alone.say, alone.advice) == ("The only member is up.", "Nothing to do.")


@pytest.mark.parametrize("cause", sorted(ADVICE.keys() - {"draining"}))
def test_each_cause_has_a_sentence_that_says_what_to_do(cause: str) -> None:
    banner = said(problem(cause), problem("views"))

    assert (banner.level, banner.word, banner.count) == ("warn", "Degraded", 2)
    assert banner.say == f"{cause}: n4"
    assert banner.advice == ADVICE[cause]
    assert banner.advice.endswith(".")
    assert banner.command == CHECK
    assert banner.shape == (cause if cause in SHAPES else "warn")
    assert banner.title("shop") == "(2) Degraded · shop"


def test_the_worst_problem_is_told_with_its_command_and_since_when() -> None:
    command, since = "ringpopctl why n4", 7.0
    worst = problem("killed", "critical", next=command, since=since)

    banner = said(worst, problem("clock"))

    assert (banner.level, banner.shape, banner.command) == ("crit", "killed", command)
    assert (banner.word, banner.since) == ("Critical", since)


def test_what_is_not_known_is_told_as_it_is() -> None:
    banner = said(problem("one-owner-per-key", "critical"))

    assert (banner.shape, banner.advice) == ("crit", OTHER_ADVICE)


def test_what_changes_on_purpose_is_no_trouble() -> None:
    draining = said(problem("draining", since=3.0))
    assert (draining.level, draining.word, draining.command) == ("info", "Changing", "")
    assert (draining.say, draining.since) == ("draining: n4", 3.0)
    assert draining.title("shop") == "(1) Changing · shop"

    moving = said(keyspaces=[{"moving": 2}, {"moving": 1}])
    assert moving.word == "Changing"
    assert moving.say == "3 partitions are on their way to their next owners."

    assert said(problem("draining"), problem("clock")).word == "Degraded"


def test_levels_statuses_and_causes_have_shapes_and_icons_are_pictures() -> None:
    shapes = {shape for _, shape in STATES.values()} | WORDS.keys() | CAUSES.keys() | {"draining"}
    assert shapes == SHAPES.keys()
    assert {level for level, _ in CAUSES.values()} <= WORDS.keys()
    assert STATES.keys() == {status.label for status in Status}
    assert CAUSES.keys() <= ADVICE.keys()
    assert len(set(SHAPES.values())) == len(SHAPES)
    for level in WORDS:
        kind, _, svg = icon_of(level).partition(",")
        assert kind == "data:image/svg+xml"
        assert ET.fromstring(unquote(svg)).attrib["fill"] == COLOURS[level]  # noqa: S314 - ours


def test_every_cause_that_the_judge_finds_has_its_advice() -> None:
    assert ADVICE.keys() == set(RANKS)


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("ringpopctl why n4; start it again, or ringpopctl force-leave n4", "ringpopctl why n4"),
        ("chronyc tracking, on n2", "chronyc tracking"),
        ("ringpopctl partitions --keyspace a", "ringpopctl partitions --keyspace a"),
        ("read their logs, restart them", ""),
        ("docs/limits.md", ""),
        ("", ""),
    ],
)
def test_only_a_command_is_shown_as_one(said: str, command: str) -> None:
    assert command_of(said) == command
