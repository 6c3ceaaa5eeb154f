"""The last ten minutes: four charts that share one clock, and what each says in a sentence."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.edge.console.svg import (
    Finding,
    clock_axis,
    coordinate,
    duration,
    figure,
    joined,
    milliseconds,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from markupsafe import Markup

COLUMNS: Final = 120
"""The steps that a chart shows; a step that is not known is a gap."""
LEFT: Final = 16
"""The part of a chart's width, in percent, that has the labels of its lines."""
TOP, HEIGHT, FOOT = 14, 82, 16
NEAR: Final = 5
"""Events that are nearer than this, in percent of the width, share one label."""
FLOOR_MS: Final = 0.5
CEILING_MS: Final = 100.0
"""The least upper end of the scale of latencies."""
LEAST_COUNT: Final = 4
_DECADES_MS: Final = (1, 10, 100, 1_000, 10_000, 100_000)
_REQUESTS: Final = ("reads", "writes", "handlers", "others")

Column = list[float | None]


class Minutes(NamedTuple):
    """The answer of ``/admin/series``, by name.

    Attributes:
        step_s: how long each column is.
        ended_at: when the last one ended, by the wall clock.
        columns: `COLUMNS` values for each name, the oldest first, None where one is not known.
    """

    step_s: float
    ended_at: float
    columns: dict[str, Column]

    def of(self, name: str) -> Column:
        """Return the values of *name*: none are known if the node has no such series."""
        return self.columns.get(name, [None] * COLUMNS)

    def rates(self, name: str) -> Column:
        """Return what *name* counts per second."""
        return [None if value is None else value / self.step_s for value in self.of(name)]


class Line(NamedTuple):
    """A series in a chart: its word in the key, its name in the answer, its class."""

    word: str
    name: str
    tint: str


class Chart(NamedTuple):
    """What one of the four charts shows.

    Attributes:
        unit: of the figure beside the title.
        kind: ``stack`` and ``step`` pile areas up; ``log`` has lines alone.
        piled: the areas, the lowest first; with ``log``, the lines.
        lines: lines over the areas.
        named: what only the key has.
    """

    title: str
    unit: str
    kind: str
    piled: tuple[Line, ...]
    lines: tuple[Line, ...] = ()
    named: tuple[Line, ...] = ()


CHARTS: Final = (
    Chart(
        "Requests",
        "/s",
        "stack",
        (
            Line("reads", "reads", "pale"),
            Line("writes", "writes", "mid"),
            Line("handlers", "handlers", "deep"),
            Line("others", "others", "grey"),
        ),
        (Line("refused", "refused", "warn"), Line("failed", "failed", "crit")),
    ),
    Chart(
        "Latency",
        "p99",
        "log",
        (Line("p50", "p50_ms", "mid"), Line("p99", "p99_ms", "deep")),
    ),
    Chart(
        "Members not alive",
        "",
        "step",
        (Line("not alive", "not_alive", "crit"),),
        named=(Line("alive", "alive", "pale"),),
    ),
    Chart(
        "Partitions unserved",
        "",
        "step",
        (
            Line("unserved", "partitions_unserved", "crit"),
            Line("on their way", "partitions_moving", "info"),
        ),
    ),
)


def minutes_of(answer: Mapping[str, Any]) -> Minutes:
    """Return what ``/admin/series`` answered; a buffer that is not full yet has a gap before it."""
    rows = answer["columns"][-COLUMNS:]
    gap: Column = [None] * (COLUMNS - len(rows))
    columns = {name: gap + [row[at] for row in rows] for at, name in enumerate(answer["names"])}
    return Minutes(answer["step_s"], answer["ended_at"], columns)


def ten_minutes(
    answer: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    clock: Callable[[float], str],
) -> Markup:
    """Return the four charts.

    Args:
        events: what is marked by a letter: `at`, `letter`, `text`.
        clock: returns an instant as text.
    """
    minutes = minutes_of(answer)
    ends = [minutes.ended_at - ago * minutes.step_s for ago in range(COLUMNS)][::-1]
    times = joined(f"at {clock(end)}" for end in ends)
    until = tag("p", f"until {clock(minutes.ended_at)}", class_="at", data_values=times)
    cards = [_card(minutes, chart, events, clock) for chart in CHARTS]
    return tag("div", until, *cards, class_="charts")


def findings(answer: Mapping[str, Any]) -> list[Finding]:
    """Return what each of the charts says."""
    return [finding(answer) for finding in _FINDINGS]


def requests_finding(answer: Mapping[str, Any]) -> Finding:
    """Return how many requests there are, and how many failed."""
    minutes = minutes_of(answer)
    total, failed = _total(minutes)[-1], minutes.rates("failed")[-1]
    if total is None:
        return Finding("info", "No data yet")
    text = f"{figure(total)} requests/s, {figure(failed or 0)} failed"
    sum_ = sum(value or 0 for value in minutes.of("failed"))
    if not failed and sum_:
        text += f"; {figure(sum_)} in {duration(minutes.step_s * COLUMNS)}"
    return Finding("crit" if failed else "ok", text)


def latency_finding(answer: Mapping[str, Any]) -> Finding:
    """Return how long requests take."""
    minutes = minutes_of(answer)
    half, most = minutes.of("p50_ms")[-1], minutes.of("p99_ms")[-1]
    if half is None and most is None:
        return Finding("ok", f"No request has ended in the last {duration(minutes.step_s)}")
    return Finding("ok", f"p50 {milliseconds(half)}, p99 {milliseconds(most)}")


def members_finding(answer: Mapping[str, Any]) -> Finding:
    """Return how many members are not alive, and for how long there have been any."""
    minutes = minutes_of(answer)
    alive, away = minutes.of("alive")[-1], minutes.of("not_alive")[-1]
    if alive is None or away is None:
        return Finding("info", "No data yet")
    if not away:
        return Finding("ok", f"All {figure(alive)} alive")
    for_ = _lasting(minutes, "not_alive")
    return Finding("warn", f"{figure(away)} of {figure(alive + away)} not alive for {for_}")


def partitions_finding(answer: Mapping[str, Any]) -> Finding:
    """Return how many partitions are unserved, for how long, and how many are on their way."""
    minutes = minutes_of(answer)
    unserved, moving = minutes.of("partitions_unserved")[-1], minutes.of("partitions_moving")[-1]
    if unserved is None:
        return Finding("info", "No data yet")
    way = f"; {figure(moving)} on their way" if moving else ""
    if not unserved:
        return Finding("info" if moving else "ok", f"All partitions are served{way}")
    lasting = _lasting(minutes, "partitions_unserved")
    return Finding("crit", f"{figure(unserved)} partitions unserved for {lasting}{way}")


_FINDINGS: Final = (requests_finding, latency_finding, members_finding, partitions_finding)


def _lasting(minutes: Minutes, name: str) -> str:
    """Return for how long *name* has not been 0, as far as this is known."""
    steps = 0
    for value in reversed(minutes.of(name)):
        if not value:
            break
        steps += 1
    at_least = "at least " if steps == COLUMNS or minutes.of(name)[-steps - 1] is None else ""
    return f"{at_least}{duration(steps * minutes.step_s)}"


def _total(minutes: Minutes) -> Column:
    return _sums([minutes.of(name) for name in _REQUESTS], 1 / minutes.step_s)


def _sums(columns: Sequence[Column], factor: float = 1.0) -> Column:
    """Return the sum of each step, None where no part of it is known."""
    return [
        None if all(value is None for value in step) else factor * sum(v or 0 for v in step)
        for step in zip(*columns, strict=True)
    ]


def _card(
    minutes: Minutes,
    chart: Chart,
    events: Sequence[Mapping[str, Any]],
    clock: Callable[[float], str],
) -> Markup:
    read = minutes.rates if chart.kind == "stack" else minutes.of
    said = milliseconds if chart.kind == "log" else figure
    head = _total(minutes) if chart.kind == "stack" else read(_headline(chart).name)
    unit = chart.unit
    if chart.title.startswith("Members"):
        everyone = _sums([minutes.of("alive"), minutes.of("not_alive")])[-1]
        unit = "" if everyone is None else f"of {figure(everyone)}"
    values = [said(value) for value in head]
    now = tag("output", values[-1], data_values=joined(values))
    title = tag("figcaption", tag("b", chart.title), tag("span", now, " ", tag("small", unit)))
    lines = chart.lines if chart.kind != "log" else chart.piled
    key = tag(
        "p",
        *(
            _key(line, [said(value) for value in read(line.name)], line in lines)
            for line in (*chart.piled, *chart.lines, *chart.named)
        ),
        class_="key",
    )
    columns = {line.name: read(line.name) for line in (*chart.piled, *chart.lines)}
    label = f"{chart.title}, the last {duration(minutes.step_s * COLUMNS)}: now {values[-1]} {unit}"
    known = [(value, at) for at, value in enumerate(head) if value is not None]
    if known:
        most, at = max(known)
        when = clock(minutes.ended_at - (COLUMNS - 1 - at) * minutes.step_s)
        label += f"; most {said(most)} at {when}"
    return tag("figure", title, key, _plot(chart, columns, minutes, events, label), class_="chart")


def _headline(chart: Chart) -> Line:
    return chart.piled[-1] if chart.kind == "log" else chart.piled[0]


def _key(line: Line, values: list[str], is_line: bool) -> Markup:  # noqa: FBT001 - of one caller
    figures = tag("output", values[-1], data_values=joined(values))
    mark = tag("i", class_=f"{line.tint} line" if is_line else line.tint)
    return tag("span", mark, f"{line.word} ", figures)


def _plot(
    chart: Chart,
    columns: Mapping[str, Column],
    minutes: Minutes,
    events: Sequence[Mapping[str, Any]],
    label: str,
) -> Markup:
    known = [value for column in columns.values() for value in column if value is not None]
    scale, grid = _scale(chart, columns)
    inner: list[Markup] = []
    drawn = known if chart.kind == "log" else [value for value in known if value]
    if drawn:
        inner = [*_areas(chart, columns, scale), *_lines(chart, columns, scale)]
    bottom = TOP + HEIGHT
    outer = [_level(scale(value), text) for value, text in (grid if drawn else [])]
    outer.append(_level(HEIGHT, ""))
    if not drawn:
        idle = "none" if known else "no data yet"
        if known:
            idle += f" in these {duration(minutes.step_s * COLUMNS)}"
        middle = f"{(100 + LEFT) / 2:g}%"
        outer.append(tag("text", idle, x=middle, y=TOP + HEIGHT / 2 + 4, class_="middle"))
    outer += clock_axis(minutes.step_s * COLUMNS, LEFT, bottom + 13)
    view = tag(
        "svg",
        *inner,
        tag("path", class_="cross"),
        x=f"{LEFT}%",
        y=TOP,
        width=f"{100 - LEFT}%",
        height=HEIGHT,
        viewBox=f"0 0 {COLUMNS} {HEIGHT}",
        preserveAspectRatio="none",
    )
    return tag(
        "svg",
        view,
        *outer,
        *_letters(minutes, events),
        class_="pic plot",
        width="100%",
        height=bottom + FOOT,
        tabindex=0,
        role="img",
        aria_label=label,
        data_left=LEFT,
        data_columns=COLUMNS,
    )


def _scale(
    chart: Chart, columns: Mapping[str, Column]
) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """Return how far from the top a value is, and the values that have a line with its label."""
    known = [value for column in columns.values() for value in column if value is not None]
    if chart.kind == "log":
        low = math.log10(FLOOR_MS)
        high = math.log10(1.15 * max([CEILING_MS, *known]))

        def of_log(value: float) -> float:
            return HEIGHT * (high - math.log10(max(value, FLOOR_MS))) / (high - low)

        decades = [value for value in _DECADES_MS if math.log10(value) < high]
        names = [f"{v} ms" if v < _DECADES_MS[3] else f"{v // 1000} s" for v in decades]
        return of_log, list(zip(map(float, decades), names, strict=True))
    piled = _sums([columns[line.name] for line in chart.piled])
    most = max([value for value in (*piled, *known) if value is not None], default=0)
    top = _ceiling(max(most, LEAST_COUNT))
    return lambda value: HEIGHT * (1 - value / top), [
        (top / 2, _thousands(top / 2)),
        (top, _thousands(top)),
    ]


def _ceiling(value: float) -> float:
    """Return a round number that is not below *value*, and whose half is round as well."""
    power = 10 ** math.floor(math.log10(value))
    return float(next(power * step for step in (1, 2, 3, 4, 6, 8, 10) if power * step >= value))


def _thousands(value: float) -> str:
    for power, unit in ((1e6, " M"), (1e3, " k")):
        if value >= power:
            return f"{value / power:g}{unit}"
    return f"{value:g}"


def _level(y: float, text: str) -> Markup:
    at = coordinate(TOP + y)
    line = tag("line", x1=f"{LEFT}%", x2="100%", y1=at, y2=at, class_="grid")
    if not text:
        return line
    name = tag("text", text, x=f"{LEFT}%", dx=-5, y=coordinate(TOP + y + 4), class_="end")
    return line + name


def _areas(
    chart: Chart, columns: Mapping[str, Column], scale: Callable[[float], float]
) -> list[Markup]:
    if chart.kind == "log":
        return []
    found: list[Markup] = []
    below: Column = [0.0] * COLUMNS
    gaps = [value is None for value in _sums([columns[line.name] for line in chart.piled])]
    for line in chart.piled:
        above = [
            None if gap else (low or 0) + (value or 0)
            for gap, low, value in zip(gaps, below, columns[line.name], strict=True)
        ]
        if any(columns[line.name]):
            path = "".join(
                f"M{_through(above, run, chart.kind, scale)}L"
                f"{_through(below, run, chart.kind, scale, back=True)}Z"
                for run in _runs(above)
            )
            found.append(tag("path", d=path, class_=f"area {line.tint}"))
        below = above
    return found


def _lines(
    chart: Chart, columns: Mapping[str, Column], scale: Callable[[float], float]
) -> list[Markup]:
    found: list[Markup] = []
    for line in chart.piled if chart.kind == "log" else chart.lines:
        column = columns[line.name]
        path = "".join(f"M{_through(column, run, chart.kind, scale)}" for run in _runs(column))
        if any(column):
            found.append(tag("path", d=path, class_=f"line {line.tint}"))
    return found


def _runs(column: Column) -> list[range]:
    """Return the stretches of steps that are known."""
    found: list[range] = []
    for known, steps in groupby(range(COLUMNS), lambda at: column[at] is not None):
        if known:
            all_ = list(steps)
            found.append(range(all_[0], all_[-1] + 1))
    return found


def _through(
    column: Column, run: range, kind: str, scale: Callable[[float], float], *, back: bool = False
) -> str:
    """Return the points of a line through *run*: stairs, or from middle to middle of the steps."""
    heights = [coordinate(scale(column[at] or 0)) for at in run]
    points: list[str] = [f"{run[0]} {heights[0]}"]
    for at, height in zip(run, heights, strict=True):
        if kind == "step":
            points += [f"{at} {height}", f"{at + 1} {height}"]
        else:
            points.append(f"{at}.5 {height}")
    points.append(f"{run[-1] + 1} {heights[-1]}")
    return " ".join(reversed(points) if back else points)


def _letters(minutes: Minutes, events: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Return a dashed line for each event that is not too old, with its letter above."""
    span_s = minutes.step_s * COLUMNS
    placed = sorted(
        (LEFT + (100 - LEFT) * (1 - (minutes.ended_at - event["at"]) / span_s), event["letter"], at)
        for at, event in enumerate(events)
        if 0 <= minutes.ended_at - event["at"] <= span_s
    )
    found: list[Markup] = []
    labels: list[tuple[float, str]] = []
    for place, letter, at in placed:
        x = f"{place:.2f}%"
        title = tag("title", f"{letter}: {events[at]['text']}")
        found.append(tag("line", title, x1=x, x2=x, y1=TOP, y2=TOP + HEIGHT, class_="event"))
        if labels and place - labels[-1][0] < NEAR:
            labels[-1] = (labels[-1][0], f"{labels[-1][1]} {letter}")
        else:
            labels.append((place, letter))
    for place, text in labels:
        end = "end" if place > 100 - NEAR else "middle"
        found.append(tag("text", text, x=f"{place:.2f}%", y=TOP - 3, class_=end))
    return found
