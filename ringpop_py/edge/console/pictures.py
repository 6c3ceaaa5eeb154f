"""Pictures of a cluster, as shapes that a template writes as SVG: pure, and without colours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.edge.console.svg import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RADIUS, HOLE = 100.0, 58.0
LABELLED_SHARE: Final = 0.025
"""The least share whose arc has room for a name; a smaller arc has the name in its title."""
TINTS: Final = 8
LANES_MAX: Final = 30
SPANS_S: Final = (120.0, 300.0, 600.0)
"""The possible lengths of a timeline: the first that holds all events, otherwise the last."""
SPAN_S: Final = SPANS_S[-1]
TICKS: Final = 5
UNKNOWN: Final = "unknown"
STEP_S: Final = 10.0
"""The step in which a timeline moves on, so that that of a quiet cluster stays the same."""


class Arc(NamedTuple):
    """A member's part of the wheel.

    Attributes:
        path: its outline, in a square from -100 to 100.
        at: where its name is written; None if there is no room.
        tint: tells neighbours apart, from 0 on.
    """

    name: str
    share: float
    path: str
    at: tuple[float, float] | None
    tint: int


def wheel(shares: Iterable[tuple[str, float]]) -> list[Arc]:
    """Return an arc for each member, as large as its share; clockwise from the top."""
    arcs: list[Arc] = []
    angle = 0.0
    for number, (name, share) in enumerate(shares):
        turn = 2 * math.pi * share
        path = _ring() if share > 1 - 1e-9 else _sector(angle, angle + turn)
        middle = _point(angle + turn / 2, (RADIUS + HOLE) / 2)
        at = middle if share >= LABELLED_SHARE else None
        arcs.append(Arc(name, share, path, at, number % TINTS))
        angle += turn
    return arcs


def _point(angle: float, radius: float) -> tuple[float, float]:
    return round(radius * math.sin(angle), 2), round(-radius * math.cos(angle), 2)


def _sector(start: float, end: float) -> str:
    (ax, ay), (bx, by) = _point(start, RADIUS), _point(end, RADIUS)
    (cx, cy), (dx, dy) = _point(end, HOLE), _point(start, HOLE)
    large = int(end - start > math.pi)
    outer = f"M{ax} {ay}A{RADIUS:g} {RADIUS:g} 0 {large} 1 {bx} {by}"
    return f"{outer}L{cx} {cy}A{HOLE:g} {HOLE:g} 0 {large} 0 {dx} {dy}Z"


def _ring() -> str:
    """Return a whole turn: two arcs, as the ends of a single one would be the same point."""
    return "".join(
        f"M0 {-radius:g}A{radius:g} {radius:g} 0 1 {sweep} 0 {radius:g}"
        f"A{radius:g} {radius:g} 0 1 {sweep} 0 {-radius:g}Z"
        for radius, sweep in ((RADIUS, 1), (HOLE, 0))
    )


class Span(NamedTuple):
    """How long a member had a status: from *start* to *end*, each 0 (left) to 1 (now).

    Attributes:
        number: that of the event that began it; None if that event is no longer known.
        text: the text of that event.
    """

    status: str
    start: float
    end: float
    number: int | None
    text: str


class Timeline(NamedTuple):
    """The statuses of members that have changed recently.

    Attributes:
        ends_at: the right end, by the wall clock.
        span_s: how long it is.
        lanes: by member, in the order of names.
        left_out: how many more members have changed.
        ticks: the places of the vertical lines, and how many seconds before the end each is.
    """

    ends_at: float
    span_s: float
    lanes: list[tuple[str, list[Span]]]
    left_out: int
    ticks: list[tuple[float, int]]


def timeline(events: Sequence[dict[str, Any]], now: float) -> Timeline:
    """Return the timeline of *events*: `number`, `at`, `member`, `before`, `after`, `text`."""
    ends_at = math.ceil(now / STEP_S) * STEP_S
    changes = [event for event in events if event["member"] and event["after"]]
    late = [event["at"] for event in changes if event["at"] >= ends_at - SPAN_S]
    reaches_s = ends_at - min(late, default=ends_at)
    span_s = next(span for span in SPANS_S if span >= reaches_s)
    begins_at = ends_at - span_s
    lanes: dict[str, list[Span]] = {}
    for event in changes:
        name = event["member"]
        at = max(0.0, (event["at"] - begins_at) / span_s)
        spans = lanes.setdefault(name, [])
        if spans:
            spans[-1] = spans[-1]._replace(end=at)
        elif event["before"] not in (None, UNKNOWN):
            spans.append(Span(event["before"], 0.0, at, None, "before what this node remembers"))
        spans.append(Span(event["after"], at, 1.0, event["number"], event["text"]))
    seen = {
        name: [span for span in spans if span.end > 0]
        for name, spans in lanes.items()
        if any(span.start > 0 for span in spans)
    }
    shown = sorted(seen, key=natural)[:LANES_MAX]
    ticks = [(1 - part / TICKS, int(span_s * part / TICKS)) for part in range(TICKS + 1)]
    lines = [(name, seen[name]) for name in shown]
    return Timeline(ends_at, span_s, lines, len(seen) - len(shown), ticks)
