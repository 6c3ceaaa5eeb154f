"""The shapes of wheels and timelines."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from ringpop_py.edge.console.pictures import (
    HOLE,
    LANES_MAX,
    RADIUS,
    SPAN_S,
    STEP_S,
    timeline,
    wheel,
)


def points(path: str) -> list[tuple[float, float]]:
    """The ends of all pieces of a path."""
    numbers = [
        [float(n) for n in re.findall(r"-?[\d.]+", piece)] for piece in re.split("[MALZ]", path)
    ]
    return [(piece[-2], piece[-1]) for piece in numbers if piece]


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.5], [0.7, 0.2, 0.1], [1 / 500] * 500])
def test_arcs_go_round_once_and_each_begins_where_the_last_one_ended(shares: list[float]) -> None:
    arcs = wheel((str(number), share) for number, share in enumerate(shares))

    assert [arc.share for arc in arcs] == shares
    for arc in arcs:
        for x, y in points(arc.path):
            assert min(abs(math.hypot(x, y) - r) for r in (RADIUS, HOLE)) < 0.02
    if len(arcs) > 1:
        for arc, following in zip(arcs, [*arcs[1:], arcs[0]], strict=True):
            assert points(arc.path)[1] == pytest.approx(points(following.path)[0], abs=0.05)
    assert points(arcs[0].path)[0] == (0, -RADIUS)  # at the top


def test_neighbours_differ_and_small_arcs_have_no_name() -> None:
    arcs = wheel([("a", 0.98), ("b", 0.01), ("c", 0.01)])
    assert [arc.at is not None for arc in arcs] == [True, False, False]
    assert arcs[0].tint != arcs[1].tint != arcs[2].tint


def change(number: int, at: float, member: str, before: str | None, after: str) -> dict[str, Any]:
    return {
        "number": number,
        "at": at,
        "member": member,
        "before": before,
        "after": after,
        "text": f"{number}",
    }


NOW = 100 * SPAN_S


def test_a_status_lasts_until_the_next_one() -> None:
    line = timeline(
        [
            change(1, NOW - SPAN_S * 3 / 4, "b", "alive", "suspect"),
            change(2, NOW - SPAN_S / 4, "b", "suspect", "faulty"),
            {"number": 3, "at": NOW, "member": None, "before": None, "after": None, "text": ""},
        ],
        NOW,
    )
    assert (line.ends_at, line.span_s) == (NOW, SPAN_S)
    [(name, spans)] = line.lanes
    assert name == "b"
    assert [(s.status, s.start, s.end, s.number) for s in spans] == [
        ("alive", 0.0, 0.25, None),
        ("suspect", 0.25, 0.75, 1),
        ("faulty", 0.75, 1.0, 2),
    ]


def test_a_member_that_came_begins_there_and_one_that_did_not_change_is_left_out() -> None:
    line = timeline(
        [
            change(1, NOW - 2 * SPAN_S, "old", "alive", "suspect"),
            change(2, NOW - 1.9 * SPAN_S, "old", "suspect", "alive"),
            change(3, NOW - 2 * SPAN_S, "back", "alive", "faulty"),
            change(4, NOW - SPAN_S * 3 / 4, "back", "faulty", "alive"),
        ],
        NOW,
    )
    [(name, spans)] = line.lanes
    assert name == "back"
    assert [(s.status, s.start, s.end) for s in spans] == [("faulty", 0, 0.25), ("alive", 0.25, 1)]


@pytest.mark.parametrize(("ago_s", "span_s"), [(5, 120), (119, 120), (121, 300), (301, 600)])
def test_a_timeline_is_as_long_as_what_has_happened(ago_s: float, span_s: float) -> None:
    line = timeline([change(1, NOW - ago_s, "new", "unknown", "alive")], NOW)
    assert line.span_s == span_s
    [(_, [span])] = line.lanes  # nothing is known of before
    assert span.start == pytest.approx(1 - ago_s / span_s)
    assert [seconds for _, seconds in line.ticks] == [span_s * part / 5 for part in range(6)]


def test_a_timeline_moves_on_in_steps_and_has_so_many_lanes() -> None:
    events = [
        change(number, NOW - 60, f"m{number:03}", "alive", "suspect") for number in range(100)
    ]
    line = timeline(events, NOW + 1)
    assert timeline(events, NOW + STEP_S) == line
    assert timeline(events, NOW + STEP_S + 1) != line
    assert (len(line.lanes), line.left_out) == (LANES_MAX, 100 - LANES_MAX)
