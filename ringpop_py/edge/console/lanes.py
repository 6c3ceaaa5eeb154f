"""The statuses of the members that changed: a lane each, thicker the worse the status is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.edge.console.svg import Finding, clock_axis, coordinate, duration, short, tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from ringpop_py.edge.console.pictures import Span, Timeline

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
