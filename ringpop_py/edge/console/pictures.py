"""What has happened: the statuses of members in time, with a lane each, and events with letters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.edge.console.svg import (
    Finding,
    clock_axis,
    coordinate,
    duration,
    natural,
    short,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

LANES_MAX: Final = 30
SPANS_S: Final = (120.0, 300.0, 600.0)
"""The possible lengths of a timeline: the first that holds all events, otherwise the last."""
SPAN_S: Final = SPANS_S[-1]
UNKNOWN: Final = "unknown"
STEP_S: Final = 10.0
"""The step in which a timeline moves on, so that that of a quiet cluster stays the same."""
TOGETHER_S: Final = 2.0
"""Changes to one status that are not further apart have one letter."""
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MARKED: Final = ("faulty", "leave")
"""The statuses whose beginning and end have a letter."""


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
    """

    ends_at: float
    span_s: float
    lanes: list[tuple[str, list[Span]]]
    left_out: int


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
    lines = [(name, seen[name]) for name in shown]
    return Timeline(ends_at, span_s, lines, len(seen) - len(shown))


def marks_of(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of *events* that have letters in pictures and in the list.

    They are changes by which members went or came back; those that happened together have one.

    Returns:
        Of each, `at`, `letter`, `text`, and the `numbers` of the events.
    """
    found: list[dict[str, Any]] = []
    after: str | None = None
    for event in events:
        ends = event["before"] in MARKED and event["after"] == "alive"
        if event["before"] == event["after"] or not (ends or event["after"] in MARKED):
            continue
        if after == event["after"] and event["at"] - found[-1]["at"] <= TOGETHER_S:
            found[-1]["numbers"].append(event["number"])
            found[-1]["text"] += f"; {event['text']}"
        else:
            after = event["after"]
            found.append({"at": event["at"], "text": event["text"], "numbers": [event["number"]]})
    last = found[-len(LETTERS) :]
    return [{**each, "letter": letter} for letter, each in zip(LETTERS, last, strict=False)]


LEFT: Final = 16
"""The part of the width, in percent, that has the names."""
NAME_LETTERS: Final = 10
LANE: Final = 18
THICK: Final = {"alive": 4, "suspect": 9, "leave": 9, "faulty": 14, "tombstone": 2}
NAMED_PART: Final = 0.25
"""A status that lasted for so much of the time has its word in its bar, if that is thick enough."""


def lanes_finding(line: Timeline) -> Finding:
    """Return how many members have changed."""
    count, when = len(line.lanes) + line.left_out, f"in the last {duration(line.span_s)}"
    if not count:
        return Finding("ok", "No member has changed its status")
    return Finding("ok", f"{count} {'member' if count == 1 else 'members'} changed {when}")


def lanes(line: Timeline, events: Sequence[Mapping[str, Any]] = ()) -> Markup:
    """Return the lanes of *line*.

    Args:
        events: what is marked by a letter: `at`, `letter`, `text`.
    """
    if not line.lanes:
        text = "Every member kept its status. A member that changes it has a lane here."
        return tag("p", text, class_="dim")
    bottom = LANE * len(line.lanes)
    parts: list[Markup] = []
    for number, (name, spans) in enumerate(line.lanes):
        y = LANE * number + LANE / 2
        short_name = short(name, NAME_LETTERS)
        parts.append(tag("text", short_name, x=f"{LEFT}%", dx=-8, y=y + 4, class_="end name"))
        parts += [_bar(name, span, y) for span in spans]
    for event in events:
        part = 1 - (line.ends_at - event["at"]) / line.span_s
        if 0 <= part <= 1:
            x = _percent(part)
            title = tag("title", f"{event['letter']}: {event['text']}")
            parts.append(tag("line", title, x1=x, x2=x, y1=0, y2=bottom, class_="event"))
    parts += clock_axis(line.span_s, LEFT, bottom + 13)
    picture = tag(
        "svg",
        *parts,
        class_="pic lanes",
        width="100%",
        height=bottom + 18,
        role="img",
        aria_label=f"Statuses: {lanes_finding(line).text}",
    )
    more = f" {line.left_out} more members have changed." if line.left_out else ""
    note = "Thin is alive, thicker suspect or away, thickest faulty."
    return tag("figure", picture, tag("p", f"{note}{more}", class_="dim"))


def _bar(name: str, span: Span, y: float) -> Markup:
    thick = THICK.get(span.status, 4)
    bar = tag(
        "rect",
        tag("title", f"{name} {span.status}: {span.text}"),
        x=_percent(span.start),
        y=coordinate(y - thick / 2),
        width=f"{(100 - LEFT) * max(span.end - span.start, 0.004):.2f}%",
        height=thick,
        class_=f"span {span.status}",
    )
    if span.number is not None:
        bar = tag("a", bar, href=f"#event-{span.number}")
    if thick < THICK["faulty"] or span.end - span.start < NAMED_PART:
        return bar
    word = tag("text", span.status, x=_percent(span.start), dx=5, y=y + 4, class_="in")
    return bar + word


def _percent(part: float) -> str:
    return f"{LEFT + (100 - LEFT) * part:.2f}%"
