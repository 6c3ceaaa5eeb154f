"""Crash points and directed schedules: small scenes in which nothing is left to chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.state.journal.crashes import SCENES, crash_points, event_count
from tests.sim.state.journal.directed import DIRECTED, run_directed

if TYPE_CHECKING:
    from tests.sim.state.journal.scripts import Scene


def _name(scene: Scene) -> str:
    return scene.__name__


@pytest.mark.parametrize("scene", SCENES, ids=_name)
def test_a_crash_or_a_pause_before_any_event_breaks_nothing(scene: Scene) -> None:
    broken = [
        (where, outcome.broken)
        for where, outcome in crash_points(scene)
        if outcome.broken is not None
    ]

    assert not broken, broken[:3]


@pytest.mark.parametrize("scene", SCENES, ids=_name)
def test_a_scene_has_events_to_crash_before(scene: Scene) -> None:
    assert event_count(scene) > 20


@pytest.mark.parametrize("scene", DIRECTED, ids=_name)
def test_a_directed_schedule_holds(scene: Scene) -> None:
    outcome = run_directed(scene)

    assert outcome.broken is None


@pytest.mark.parametrize(
    ("name", "happens"),
    [
        ("late_reader", {"seals": 1, "fences": 1}),
        ("running_commit", {"seals": 1, "fences": 1, "reclaims": 1}),
        ("open_outcome", {"lies": 1, "fences": 1, "deleted": 1}),
        ("deleted_group", {"releases": 5, "deleted": 1}),
        ("late_seal", {"lies": 1, "deleted": 1}),
        ("fenced_twice", {"fences": 2, "reclaims": 2}),
        ("late_checkpoint", {"checkpoints": 1, "reclaims": 1}),
        ("late_trim", {"seals": 1, "fences": 1, "checkpoints": 2}),
    ],
)
def test_a_directed_schedule_is_what_its_name_says(name: str, happens: dict[str, int]) -> None:
    [scene] = [scene for scene in DIRECTED if scene.__name__ == name]

    counts = run_directed(scene).counts

    assert {what: counts.get(what) for what in happens} == happens
