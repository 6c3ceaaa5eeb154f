"""Who owns what: the partitions of a keyspace in a circle, and bars with a place per member."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.edge.console.svg import (
    NONE,
    Finding,
    coordinate,
    figure,
    joined,
    letter,
    milliseconds,
    short,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from markupsafe import Markup

SERVED, MOVING, UNSERVED = "smu"
"""The states of partitions."""
MARKS_MAX: Final = 256
"""With more partitions a mark stands for several, and shows the worst of them."""
STRIP_MAX: Final = 128
GAP: Final = 0.14
"""The part of a mark's place that stays empty."""
RADII: Final = {SERVED: (76, 94), MOVING: (71, 97), UNSERVED: (65, 101)}
"""From where to where a mark reaches: the worse, the longer."""
HEIGHTS: Final = {SERVED: 8, MOVING: 12, UNSERVED: 16}
"""How high a mark of a strip is."""
CLASSES: Final = {SERVED: "served", MOVING: "moving", UNSERVED: "unserved"}
BASE, HEAD, FOOT = 100, 14, 18
"""The heights of bars, and of the texts over and under them, in pixels."""
VALUED_MAX: Final = 6
"""With more bars, only the highest has its figure over it."""
EDGE: Final = 9.0
"""A text that is nearer to an edge than this, in percent of the width, ends or begins there."""
NAMED_MAX: Final = 15
"""With more bars, only some have a name."""
LETTERS: Final = 50
"""So many letters have room below all bars."""


class Owned(NamedTuple):
    """A keyspace.

    Attributes:
        owners: for each partition the number of its owner among the members; -1 if nobody is.
        states: for each partition `SERVED`, `MOVING` or `UNSERVED`.
    """

    name: str
    owners: Sequence[int]
    states: str


def owned_in(ownership: Sequence[Mapping[str, Any]]) -> list[Owned]:
    """Return the keyspaces of the section *ownership*."""
    return [Owned(**keyspace) for keyspace in ownership]


def ownership_finding(keyspaces: Sequence[Owned]) -> Finding:
    """Return whether all partitions are served, and how many are on their way."""
    total, unserved, moving = (
        sum(len(k.states) for k in keyspaces),
        sum(k.states.count(UNSERVED) for k in keyspaces),
        sum(k.states.count(MOVING) for k in keyspaces),
    )
    if not total:
        return Finding("ok", "There are no keyspaces")
    way = f"; {figure(moving)} on their way" if moving else ""
    if unserved:
        return Finding("crit", f"{figure(unserved)} of {figure(total)} partitions unserved{way}")
    return Finding("info" if moving else "ok", f"All {figure(total)} partitions are served{way}")


def worst_of(keyspaces: Sequence[Owned]) -> Owned | None:
    """Return the keyspace to show first: with unserved partitions, or with moving ones."""

    def trouble(keyspace: Owned) -> tuple[bool, bool]:
        return UNSERVED in keyspace.states, MOVING in keyspace.states

    return max(keyspaces, key=trouble, default=None)


def ring(keyspace: Owned) -> Markup:
    """Return the partitions of *keyspace* in a circle, clockwise from the top."""
    total = len(keyspace.states)
    size = -(-total // MARKS_MAX) or 1
    marks = _marks(keyspace.states, size)
    counts = {state: keyspace.states.count(state) for state in CLASSES}
    circles = [
        _circle(marks, state, *RADII[state], class_=CLASSES[state])
        for state in CLASSES
        if state in marks
    ]
    # The script writes the dashes: those of the member at whose bar somebody points.
    pointed = tag(
        "circle",
        r=104,
        class_="pointed",
        pathLength=total,
        transform="rotate(-90)",
        stroke_dasharray=f"0 {total}",
    )
    serves = counts[SERVED] + counts[MOVING]
    says = f"{figure(serves)} of {figure(total)} partitions served"
    says += f", {counts[MOVING]} on their way, {counts[UNSERVED]} unserved"
    picture = tag(
        "svg",
        *circles,
        pointed,
        tag("text", short(keyspace.name, 14), y=-24, class_="middle title"),
        tag("text", figure(serves), y=3, class_="middle big"),
        tag("text", f"of {figure(total)} served", y=19, class_="middle"),
        class_="pic ring",
        viewBox="-108 -108 216 216",
        role="img",
        aria_label=f"{keyspace.name}: {says}",
        data_owners="".join(letter(owner + 1) for owner in keyspace.owners),
    )
    each = "a partition" if size == 1 else f"{size} partitions"
    long = "; a long red one is unserved" if counts[UNSERVED] else ""
    long += "; a blue one is on its way" if counts[MOVING] else ""
    note = tag("p", f"A mark stands for {each}{long}.", class_="dim")
    return tag("figure", picture, note, class_="ringed")


def strip(keyspace: Owned) -> Markup:
    """Return the partitions of *keyspace* in a line, for a row of a table."""
    marks = _marks(keyspace.states, -(-len(keyspace.states) // STRIP_MAX) or 1)
    lines = [
        tag(
            "path",
            d=f"M0 8h{len(marks)}",
            class_=CLASSES[state],
            stroke_width=HEIGHTS[state],
            stroke_dasharray=_dashes(marks, state),
        )
        for state in CLASSES
        if state in marks
    ]
    return tag(
        "svg",
        *lines,
        class_="pic strip",
        viewBox=f"0 0 {len(marks)} 16",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _marks(states: str, size: int) -> str:
    groups = (states[at : at + size] for at in range(0, len(states), size))
    return "".join(
        next(state for state in (UNSERVED, MOVING, SERVED) if state in group) for group in groups
    )


def _circle(marks: str, state: str, inner: int, outer: int, *, class_: str) -> Markup:
    return tag(
        "circle",
        r=(inner + outer) / 2,
        class_=class_,
        stroke_width=outer - inner,
        pathLength=len(marks),
        transform="rotate(-90)",
        stroke_dasharray=_dashes(marks, state),
        stroke_dashoffset=-GAP / 2,
    )


def _dashes(marks: str, state: str) -> str:
    """Return the dashes of a stroke that shows the marks with *state*, each of length 1."""
    mark, gap = f"{1 - GAP:g}", GAP
    if set(marks) == {state}:
        return f"{mark} {gap:g}"
    found: list[str] = []
    waits = 0.0
    for one, group in groupby(marks):
        length = len(list(group))
        if one != state:
            waits += length
            continue
        # Dashes and gaps take turns, and the first is a dash, which may have no length.
        found += [f"{waits:g}"] if found else ["0", f"{waits:g}"]
        found += [mark, f"{gap:g}"] * (length - 1) + [mark]
        waits = gap
    return " ".join([*found, f"{waits:g}"])


# ---- Bars


class Metric(NamedTuple):
    """What bars show of each member: its title, the name in a member's row, and how it is said."""

    title: str
    name: str
    say: Callable[[float | None], str]


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f} %"


def _share(value: float | None) -> str:
    return _percent(None if value is None else 100 * value)


METRICS: Final = {
    "share": Metric("share of the ring", "share", _share),
    "partitions": Metric("partitions", "partitions", figure),
    "requests": Metric("requests/s", "requests_s", figure),
    "p99": Metric("p99 latency", "p99_ms", milliseconds),
    "processor": Metric("processor", "cpu_percent", _percent),
}


def bars(members: Sequence[Mapping[str, Any]], metric: str) -> Markup:
    """Return a bar for each member, in the order given, which is that of the owners' numbers.

    Args:
        members: `name`; `dead` if it does not answer; `share` (0 to 1), `partitions`,
            `requests_s`, `p99_ms` and `cpu_percent`, None where a figure is not known.
        metric: one of `METRICS`.
    """
    title, name, say = METRICS[metric]
    if not members:
        nobody = tag("p", "Nobody is here.", class_="dim")
        return tag("figure", nobody, class_="by-member", data_metric=metric)
    values = [None if row["dead"] else row.get(name) for row in members]
    known = [value for value in values if value is not None]
    count, most = len(members), 1.12 * max(known, default=0) or 1.0
    mean = sum(known) / len(known) if known else None
    shapes = "".join(
        f"M{at + 0.11:g} {BASE}V{coordinate(BASE * (1 - value / most))}h.78V{BASE}z"
        for at, value in enumerate(values)
        if value
    )
    view = tag(
        "svg",
        tag("path", d=shapes, class_="bar"),
        y=HEAD,
        width="100%",
        height=BASE,
        viewBox=f"0 0 {count} {BASE}",
        preserveAspectRatio="none",
    )
    texts = _names(members)
    if mean is not None:
        y = coordinate(HEAD + BASE * (1 - mean / most))
        texts.append(tag("line", x2="100%", y1=y, y2=y, class_="event"))
    texts += _values(members, values, most, say)
    words = f"By member: {title}; dashed: the mean, {say(mean)}"
    picture = tag(
        "svg",
        view,
        *texts,
        class_="pic bars",
        width="100%",
        height=HEAD + BASE + FOOT,
        tabindex=0,
        role="img",
        aria_label=words,
    )
    read = tag("p", words, class_="read", data_rest=words)
    return tag("figure", read, picture, class_="by-member", data_metric=metric)


def all_bars(members: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the bars of all metrics; an element around them says which of them is seen."""
    words = joined(_told(row) for row in members)
    return tag("div", *(bars(members, metric) for metric in METRICS), data_words=words)


def _told(row: Mapping[str, Any]) -> str:
    if row["dead"]:
        return f"{row['name']}: ✕ does not answer"
    figures = (f"{title} {say(row.get(name))}" for title, name, say in METRICS.values())
    return f"{row['name']}: {', '.join(figures)}"


def _place(at: int, count: int) -> tuple[str, str]:
    """Return the middle of a bar, and where a text there ends, so that no text is cut off."""
    edge = count > NAMED_MAX
    if edge and at == 0:
        return "0", "start"
    if edge and at == count - 1:
        return "100%", "end"
    return f"{100 * (at + 0.5) / count:.2f}%", "middle"


def _names(members: Sequence[Mapping[str, Any]]) -> list[Markup]:
    count = len(members)
    step = next((s for s in (1, 5, 10, 20, 50, 100) if count <= NAMED_MAX * s), count)
    letters = max(4, LETTERS // min(count, 10))
    found: list[Markup] = []
    for at, row in enumerate(members):
        if row["dead"]:
            x = f"{100 * (at + 0.5) / count:.2f}%"
            found.append(tag("text", "✕", x=x, y=HEAD + BASE - 5, class_="middle gone"))
        if at and ((at + 1) % step or at < step):
            continue
        x, class_ = _place(at, count)
        name = short(row["name"], letters)
        gone = " gone" if row["dead"] else ""
        found.append(tag("text", name, x=x, y=HEAD + BASE + 13, class_=f"{class_}{gone}"))
    return found


def _values(
    members: Sequence[Mapping[str, Any]],
    values: Sequence[float | None],
    most: float,
    say: Callable[[float | None], str],
) -> list[Markup]:
    """Return figures over the bars: over each of a few, otherwise over the highest."""
    count = len(values)
    highest = max(range(count), key=lambda at: values[at] or 0)
    found: list[Markup] = []
    for at, value in enumerate(values):
        if not value or (at != highest and count > VALUED_MAX):
            continue
        x, class_, text = 100 * (at + 0.5) / count, "middle", say(value)
        if count > VALUED_MAX:
            text = f"{members[at]['name']} {text}"
            class_ = "start" if x < EDGE else "end" if x > 100 - EDGE else "middle"
        y = coordinate(HEAD + BASE * (1 - value / most) - 3)
        found.append(tag("text", text, x=f"{x:.2f}%", y=y, class_=f"{class_} value"))
    return found
