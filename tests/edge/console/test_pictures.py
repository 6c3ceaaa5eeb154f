"""The statuses of members in time, and the events that have letters."""

from __future__ import annotations

from typing import Any

import pytest

from ringpop_py.edge.console.pictures import LANES_MAX, SPAN_S, STEP_S, marks_of, timeline


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


def test_a_timeline_moves_on_in_steps_and_has_so_many_lanes() -> None:
    events = [
        change(number, NOW - 60, f"m{number:03}", "alive", "suspect") for number in range(100)
    ]
    line = timeline(events, NOW + 1)
    assert timeline(events, NOW + STEP_S) == line
    assert timeline(events, NOW + STEP_S + 1) != line
    assert (len(line.lanes), line.left_out) == (LANES_MAX, 100 - LANES_MAX)


def test_events_by_which_members_go_or_come_back_have_letters_together_if_at_one_time() -> None:
    events = [
        change(1, 10.0, "a", "unknown", "alive"),
        change(2, 20.0, "a", "alive", "suspect"),
        change(3, 21.0, "a", "suspect", "faulty"),
        change(4, 22.5, "b", "suspect", "faulty"),
        change(5, 40.0, "c", "suspect", "faulty"),
        change(6, 40.0, "a", "faulty", "alive"),
        change(7, 41.0, "d", "suspect", "alive"),
        change(8, 50.0, "d", "alive", "leave"),
        change(9, 51.0, "d", "leave", "tombstone"),
        {"number": 10, "at": 52.0, "member": None, "before": None, "after": None, "text": ""},
        change(11, 53.0, "e", "faulty", "faulty"),
    ]

    marks = marks_of(events)

    assert [(mark["letter"], mark["at"], mark["numbers"]) for mark in marks] == [
        ("A", 21.0, [3, 4]),
        ("B", 40.0, [5]),
        ("C", 40.0, [6]),
        ("D", 50.0, [8]),
    ]
    assert marks[0]["text"] == "3; 4"


def test_there_are_so_many_letters_and_the_latest_events_have_them() -> None:
    marks = marks_of([change(n, 10.0 * n, "a", "alive", "faulty") for n in range(30)])
    assert [mark["letter"] for mark in marks] == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert marks[-1]["numbers"] == [29]
