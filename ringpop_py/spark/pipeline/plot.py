"""A page of HTML about a job: its rows, how fast they came, and the owners of partitions over time.

Below that it says where the time went.

The page is self-contained: it has no script and fetches nothing. It follows the reader's light or
dark colour scheme.
"""

from __future__ import annotations

import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.pipeline.target import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ringpop_py.spark.pipeline.progress import Reading

WIDTH: Final = 860
LEFT: Final = 80
RIGHT: Final = 30
ROWS_TOP: Final = 30
ROWS_HEIGHT: Final = 180
RATE_TOP: Final = 250
RATE_HEIGHT: Final = 90
OWNERS_TOP: Final = 380
OWNERS_HEIGHT: Final = 160
HEIGHT: Final = 610
TICKS: Final = 5
COLOURS: Final = (
    *("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d"),
)
NOBODYS: Final = "#999"

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark; --ink: light-dark(#222, #ddd); --faint: light-dark(#ddd, #444);
}}
body {{
  font: 14px system-ui, sans-serif; margin: 2rem auto; max-width: {width}px; color: var(--ink);
}}
svg {{ width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--ink); }}
.grid {{ stroke: var(--faint); }} .rows {{ stroke: #4c78a8; stroke-width: 2; fill: none; }}
.event {{ stroke: #e45756; stroke-dasharray: 4 3; }} .end {{ text-anchor: end; }}
.middle {{ text-anchor: middle; }} td {{ padding: 2px 12px 2px 0; }} .seconds {{ text-align: end; }}
.bar {{ background: #4c78a8; height: 12px; }} .bars {{ width: 100%; }}
</style>
<h1>{title}</h1>
<p>{text}</p>
<svg viewBox="0 0 {width} {height}" role="img">
{body}
</svg>
{times}
</html>
"""
_TIMES: Final = {
    "read": "tasks wait for Spark's rows",
    "combine": "tasks make changes of rows",
    "stage": "tasks send changes",
    "apply": "owners apply them, after the last task",
}


def plot_page(
    title: str,
    text: str,
    readings: Sequence[Reading],
    events: Sequence[tuple[float, str]] = (),
    times: Mapping[str, float] | None = None,
) -> str:
    """Return a page about *readings*, which are in order of time.

    Args:
        events: the second of the job at which something happened, and a text about it.
        times: see `ringpop_py.spark.pipeline.run.PipelineSummary`.
    """
    # At least a millisecond: a job without readings must not be divided by zero.
    end_s = max([1e-3, *(reading.at_s for reading in readings), *(at for at, _ in events)])

    def x_of(at_s: float) -> float:
        return LEFT + at_s / end_s * (WIDTH - LEFT - RIGHT)

    base, ticks = OWNERS_TOP + OWNERS_HEIGHT, _ticks(end_s)
    parts = [
        *_rows_part(readings, x_of),
        *_rate_part(readings, x_of),
        *_owners_part(readings, x_of),
        *(_text(x_of(tick), base + 18, f"{tick:g} s", "middle") for tick in ticks if tick <= end_s),
        *(_event(x_of(at_s), text) for at_s, text in events),
    ]
    return _PAGE.format(
        title=escape(title),
        text=escape(text),
        body="\n".join(parts),
        times=_times_part(times or {}),
        width=WIDTH,
        height=HEIGHT,
    )


def check_page(file: Path) -> None:
    """Raise ConfigError if no page can be written to *file*, which stays as it is."""
    was_there = file.exists()
    try:
        with file.open("ab"):
            pass
    except OSError as error:
        raise ConfigError(f"--plot {file}: {error.strerror or error}") from None
    if not was_there:
        file.unlink()


def write_page(file: Path, page: str) -> str:
    """Write *page*; return a line that says so, or why not: the job has succeeded in any case."""
    try:
        file.write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        return f"plot: not written to {file}: {error.strerror or error}"
    return f"plot: {file}"


def _rows_part(readings: Sequence[Reading], x_of: Callable[[float], float]) -> list[str]:
    known = [(reading.at_s, reading.rows) for reading in readings if reading.rows is not None]
    most = max((rows for _, rows in known), default=0)
    ticks = _ticks(most)

    def y_of(rows: float) -> float:
        return ROWS_TOP + ROWS_HEIGHT * (1 - rows / ticks[-1])

    parts = [f'<text x="{LEFT}" y="{ROWS_TOP - 12}">rows</text>']
    for tick in ticks:
        parts += [_line(LEFT, y_of(tick), WIDTH - RIGHT, y_of(tick))]
        parts += [_text(LEFT - 8, y_of(tick) + 4, f"{tick:,}", "end")]
    points = " ".join(f"{x_of(at_s):.1f},{y_of(rows):.1f}" for at_s, rows in known)
    return [*parts, f'<polyline class="rows" points="{points}"/>']


def _rate_part(readings: Sequence[Reading], x_of: Callable[[float], float]) -> list[str]:
    # Between two readings; those that found nothing new are passed over, as Spark reports rows only
    # now and then.
    known = [(0.0, 0)]
    for reading in readings:
        if reading.rows is not None and reading.rows > known[-1][1] and reading.at_s > known[-1][0]:
            known.append((reading.at_s, reading.rows))
    rates = [
        (then_s, now_s, (now - then) / (now_s - then_s))
        for (then_s, then), (now_s, now) in pairwise(known)
    ]
    most = _ticks(max((rate for _, _, rate in rates), default=0))[-1]
    parts = [f'<text x="{LEFT}" y="{RATE_TOP - 12}">rows a second</text>']
    for share in (0.0, 0.5, 1.0):
        y = RATE_TOP + RATE_HEIGHT * (1 - share)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y)]
        parts += [_text(LEFT - 8, y + 4, f"{most * share:,.0f}", "end")]
    points = " ".join(
        f"{x_of(at_s):.1f},{RATE_TOP + RATE_HEIGHT * (1 - rate / most):.1f}"
        for then_s, now_s, rate in rates
        for at_s in (then_s, now_s)
    )
    return [*parts, f'<polyline class="rows" points="{points}"/>']


def _times_part(times: Mapping[str, float]) -> str:
    if not times:
        return ""
    most = max(1e-3, *times.values())
    rows = [
        f"<tr><td>{escape(_TIMES.get(name, name))}</td>"
        f'<td class="seconds">{seconds:,.1f} s</td>'
        f'<td class="bars"><div class="bar" style="width:{seconds / most:.1%}"></div></td></tr>'
        for name, seconds in times.items()
    ]
    return "\n".join(["<h2>Where the time went</h2>", "<table>", *rows, "</table>"])


def _owners_part(readings: Sequence[Reading], x_of: Callable[[float], float]) -> list[str]:
    # A band for each owner, as high as its share, which holds until the next reading: so in steps.
    known = [reading for reading in readings if reading.partitions]
    names = sorted({name for reading in known for name in reading.partitions})
    parts = [f'<text x="{LEFT}" y="{OWNERS_TOP - 12}">partitions, by owner</text>']
    for share in (0, 50, 100):
        y = OWNERS_TOP + OWNERS_HEIGHT * (1 - share / 100)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y), _text(LEFT - 8, y + 4, f"{share} %", "end")]
    for index, name in enumerate(names):
        below = [_share_before(reading.partitions, names[:index]) for reading in known]
        above = [_share_before(reading.partitions, names[: index + 1]) for reading in known]
        edges = [x_of(reading.at_s) for reading in known]
        upper, lower = _steps(edges, above), _steps(edges, below)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        colour = NOBODYS if name == NOBODY else COLOURS[index % len(COLOURS)]
        parts.append(f'<polygon points="{points}" fill="{colour}" opacity="0.85"/>')
        x, y = LEFT + 110 * (index % 7), OWNERS_TOP + OWNERS_HEIGHT + 50 + 18 * (index // 7)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(_text(x + 16, y, name))
    return parts


def _share_before(partitions: Mapping[str, int], names: Sequence[str]) -> float:
    return sum(partitions.get(name, 0) for name in names) / sum(partitions.values())


def _steps(edges: Sequence[float], shares: Sequence[float]) -> list[tuple[float, float]]:
    heights = [OWNERS_TOP + OWNERS_HEIGHT * (1 - share) for share in shares]
    points = [(edges[0], heights[0])]
    for x, before, after in zip(edges[1:], heights[:-1], heights[1:], strict=True):
        points += [(x, before), (x, after)]
    return points


def _event(x: float, text: str) -> str:
    line = _line(x, ROWS_TOP, x, OWNERS_TOP + OWNERS_HEIGHT, "event")
    # Near the right edge the text stands to the left of its line.
    beside = (x + 4, "") if x < WIDTH * 0.75 else (x - 4, "end")
    return line + _text(beside[0], ROWS_TOP + 12, text, beside[1])


def _ticks(most: float) -> list[float]:
    # Round numbers from 0 to *most*, or a little more.
    rough = max(most, 1) / TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    whole = int(step) if step >= 1 else step
    return [whole * index for index in range(math.ceil(max(most, 1) / whole) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
