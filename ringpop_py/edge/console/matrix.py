"""Who reaches whom: a square of cells, a row for each member that pings, and its finding."""

from __future__ import annotations

import re
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.edge.console.svg import (
    Finding,
    coordinate,
    figure,
    joined,
    letter,
    milliseconds,
    natural,
    short,
    some,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from markupsafe import Markup

    Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]

LABELS_MAX: Final = 100
"""The most rows; with more members, a row stands for several."""
SLOW_MS: Final = 100.0
LOSSY: Final = 0.1
"""The least share of lost pings of a path that loses pings."""
CUT: Final = 0.9
"""The least share of lost pings of a path that fails, if TCP does not say more."""
WORDS_MAX: Final = 500
"""The most different texts of cells that are sent; further ones only name the state."""
SELF, NONE, SILENT, WELL, SLOW, LOSES, FAILS = ".012345"
"""The states of cells: the worse, the larger, so that `max` is what several paths show."""
STATES: Final = {SLOW: "slow", LOSES: "loses", FAILS: "fails", NONE: "none", SELF: "self"}
"""The classes of what is drawn over the ground of what is well."""
TCP: Final = {
    "refused": "TCP is refused: the process is gone",
    "accepted": "TCP is accepted: the process stands still",
    "silent": "no answer to TCP either",
}
REST: Final = "A row pings a column, in milliseconds. Point at a cell, or use the arrow keys."
SIDE, SIDE_MAX = 348.0, 58.0
"""The width of all cells, and the most of one, in pixels."""
LETTER: Final = 6.4
"""The width of a letter of a label, in pixels."""
LABEL_LETTERS: Final = 16
ROOM: Final = 11.5
"""The least distance of labels, in pixels."""
FIGURES_MAX, CROSSES_MAX, GRID_MAX = 12, 40, 40
"""With more rows there are no figures in cells, no crosses, and no lines between the cells."""


class Paths(NamedTuple):
    """The paths between members.

    Attributes:
        names: of all members, in the order in which they are shown.
        rows: the states of the paths from a member: one for each member, in the same order.
        cells: what senders say about receivers.
    """

    names: tuple[str, ...]
    rows: tuple[str, ...]
    cells: Cells
    dead: frozenset[str]
    zones: Mapping[str, str]
    by_zone: bool

    def between(self, chosen: Sequence[int]) -> str:
        """Return the states of the paths between the members with these numbers."""
        if len(chosen) < 2:  # noqa: PLR2004 - one member has no path
            return ""
        picked = itemgetter(*chosen)
        return "".join("".join(picked(self.rows[at])) for at in chosen).replace(SELF, "")

    @property
    def live(self) -> list[int]:
        """The numbers of those who say whom they reach."""
        return [at for at, name in enumerate(self.names) if name not in self.dead]


def paths_of(
    names: Iterable[str],
    cells: Cells,
    dead: Iterable[str],
    zones: Mapping[str, str],
    *,
    by_zone: bool = False,
) -> Paths:
    """Return the states of all paths.

    Args:
        cells: by sender and receiver: `ms`, the round trip, or None; `lost`, the share of the last
            pings that were late or lost, or None; `failure`, why the last one failed, or ``""``;
            `tcp`, how TCP went then: ``refused``, ``accepted``, ``silent`` or ``""``.
        dead: the members that answer nobody: whom they reach is not known.
        by_zone: put members of one zone side by side.
    """
    gone = frozenset(dead)

    def key(name: str) -> tuple[object, ...]:
        return (natural(zones.get(name, "")) if by_zone else (), natural(name))

    ordered = tuple(sorted(names, key=key))
    rows = tuple(_row(name, ordered, cells.get(name, {}), gone) for name in ordered)
    return Paths(ordered, rows, cells, gone, zones, by_zone)


def paths_in(pings: Mapping[str, Any]) -> Paths:
    """Return the paths of the section *pings*; if members say their zones, these are together."""
    return paths_of(**pings, by_zone=len({*pings["zones"].values()}) > 1)


def _row(
    sender: str,
    names: Sequence[str],
    cells: Mapping[str, Mapping[str, Any]],
    dead: frozenset[str],
) -> str:
    if sender in dead:
        return "".join(SELF if name == sender else SILENT for name in names)
    return "".join(
        SELF if name == sender else FAILS if name in dead else _state(cells.get(name))
        for name in names
    )


def _state(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return NONE
    lost = cell["lost"] or 0.0
    if cell["failure"]:
        # A path that loses some pings fails now and then, and works: TCP says so.
        lossy = LOSSY <= lost < CUT and cell["tcp"] in ("accepted", "")
        return LOSES if lossy else FAILS
    if lost >= LOSSY:
        return LOSES
    if cell["ms"] is None:
        return NONE
    return SLOW if cell["ms"] >= SLOW_MS else WELL


# ---- The finding


def paths_finding(paths: Paths) -> Finding:
    """Return what is wrong with the paths, the worst first, or how long the slowest takes."""
    if len(paths.names) < 2:  # noqa: PLR2004 - one member has no path
        return Finding("ok", "Nobody else is here")
    for rule in (_sides, _unreached, _failing, _losing, _slow):
        found = rule(paths)
        if found:
            return Finding("crit" if rule in (_sides, _unreached, _failing) else "warn", found)
    states = paths.between(paths.live)
    known = states.count(WELL)
    if not known:
        return Finding("info", "No ping has ended yet")
    slowest = max(ms for _, _, ms in _trips(paths))
    return Finding("ok", f"{_all_work(states, '')}; the slowest takes {milliseconds(slowest)}")


def _all_work(states: str, which: str) -> str:
    """Return how many of the paths with these *states* work, as a sentence."""
    total = len(states)
    paths = f"{which}path" if total == 1 else f"{which}paths"
    for state, one, more in ((FAILS, "fails", "fail"), (LOSES, "loses pings", "lose pings")):
        if bad := states.count(state):
            return f"{figure(bad)} of {figure(total)} {paths} {one if bad == 1 else more}"
    if unknown := states.count(NONE):
        known, is_ = figure(total - unknown), "is" if unknown == 1 else "are"
        return f"{known} of {figure(total)} {paths} work, {figure(unknown)} {is_} not known yet"
    every = {1: "1", 2: "Both"}.get(total, f"All {figure(total)}")
    return f"{every} {paths} {'works' if total == 1 else 'work'}"


def _others(states: str) -> str:
    """Return a further clause about the other paths, or nothing."""
    said = _all_work(states, "other ")
    return f"; {said[0].lower()}{said[1:]}" if states else ""


def _trips(paths: Paths) -> list[tuple[str, str, float]]:
    """Return the paths that work: from, to, and the round trip in milliseconds."""
    return [
        (sender, receiver, paths.cells[sender][receiver]["ms"])
        for sender, row in zip(paths.names, paths.rows, strict=True)
        for receiver, state in zip(paths.names, row, strict=True)
        if state in (WELL, SLOW)
    ]


def _sides(paths: Paths) -> str:
    """Return the sides of a cut: members of different sides reach each other in no direction."""
    rows, left = paths.rows, paths.live
    if not any(FAILS in rows[at] for at in left):
        return ""
    sides: list[list[int]] = []
    while left:
        side, frontier = [], [left[0]]
        left = left[1:]
        while frontier:
            one = frontier.pop()
            side.append(one)
            near = [at for at in left if rows[one][at] != FAILS or rows[at][one] != FAILS]
            frontier += near
            left = [at for at in left if at not in near]
        sides.append(sorted(side))
    if sum(len(side) > 1 for side in sides) < 2:  # noqa: PLR2004 - otherwise some are alone
        return ""
    many = {2: "Two", 3: "Three"}.get(len(sides), str(len(sides)))
    return f"{many} sides: {' | '.join(some([paths.names[at] for at in side]) for side in sides)}"


def _unreached(paths: Paths) -> str:
    live = paths.live
    columns = zip(*(paths.rows[at] for at in live), strict=True)
    seen = [set(column) - {SELF, NONE} for column in columns]
    gone = [at for at, states in enumerate(seen) if states == {FAILS}]
    if not gone:
        return ""
    rest = paths.between([at for at in live if at not in gone])
    return f"Nobody reaches {some([paths.names[at] for at in gone])}{_others(rest)}"


def _failing(paths: Paths) -> str:
    if not any(FAILS in paths.rows[at] for at in paths.live):
        return ""
    failing = [
        (paths.names[a], paths.names[b])
        for a in paths.live
        for b in paths.live
        if paths.rows[a][b] == FAILS
    ]
    senders = list(dict.fromkeys(sender for sender, _ in failing))
    receivers = list(dict.fromkeys(receiver for _, receiver in failing))
    states = paths.between(paths.live)
    if len(senders) > 1 and len(receivers) > 1:
        return f"{figure(len(failing))} of {figure(len(states))} paths fail"
    does = "does" if len(senders) == 1 else "do"
    rest = states.replace(FAILS, "")
    return f"{some(senders)} {does} not reach {some(receivers)}{_others(rest)}"


def _losing(paths: Paths) -> str:
    names, live = paths.names, paths.live
    if not any(LOSES in row for row in paths.rows):
        return ""
    losing = [(a, b) for a in live for b in live if paths.rows[a][b] == LOSES]
    lost = sum(paths.cells[names[a]][names[b]]["lost"] for a, b in losing) / len(losing)
    share = f"{100 * lost:.0f} %"
    paths_count = len(live) * (len(live) - 1)
    if len(losing) == paths_count:
        return f"{share} of all pings are lost"
    # Who is part of all lossy paths, and loses on nearly all of its own?
    for at in live:
        if all(at in path for path in losing) and len(losing) >= LOSSY_PATHS * (len(live) - 1):
            return f"{share} of the pings between {names[at]} and all others are lost"
    if len(losing) == 1:
        [(a, b)] = losing
        return f"{share} of the pings from {names[a]} to {names[b]} are lost"
    which = f"{figure(len(losing))} of {figure(paths_count)} paths"
    return f"{share} of the pings on {which} are lost"


LOSSY_PATHS: Final = 1.5
"""From how many lossy paths on, as a multiple of the other members, a member loses pings at all
others: there are two to each, of which some may not have lost enough yet."""


def _slow(paths: Paths) -> str:
    if not any(SLOW in row for row in paths.rows):
        return ""
    slow = sorted(
        ((ms, sender, receiver) for sender, receiver, ms in _trips(paths) if ms >= SLOW_MS),
        reverse=True,
    )
    most, sender, receiver = slow[0]
    if len(slow) == 1:
        return f"{sender} → {receiver} takes {milliseconds(most)}"
    total = figure(len(paths.between(paths.live)))
    least, slowest = milliseconds(SLOW_MS), milliseconds(most)
    return f"{figure(len(slow))} of {total} paths take {least} or more; the slowest takes {slowest}"


# ---- The picture


class _Square(NamedTuple):
    """The cells that are drawn: of members, or of groups of members.

    Attributes:
        side: the width of a cell.
        left, top: the room of the labels.
    """

    labels: list[str]
    rows: list[str]
    loud: list[int]
    zones: list[str]
    side: float
    left: float
    top: float


def matrix(paths: Paths) -> Markup:
    """Return the square, the line in which a cell is read out, and the key of the states."""
    if len(paths.names) < 2:  # noqa: PLR2004 - as above
        return tag("p", "Nobody else is here.", class_="dim")
    size = -(-len(paths.names) // LABELS_MAX)
    square = _square(paths, size)
    count = len(square.labels)
    width, height = square.left + count * square.side, square.top + count * square.side
    place = f"translate({square.left:g} {square.top:g}) scale({square.side:.4g})"
    texts, codes = _words(paths, square.rows, size)
    picture = tag(
        "svg",
        _HATCH,
        tag(
            "g",
            tag("rect", class_="well", width=count, height=count),
            *_marks(square),
            transform=place,
        ),
        *_figures(paths, square, size),
        *_labels(square, by_zone=paths.by_zone),
        tag("rect", class_="chosen", width=0, height=0),
        class_="pic square",
        width=coordinate(width + 1),
        height=coordinate(height + 1),
        viewBox=f"0 0 {coordinate(width + 1)} {coordinate(height + 1)}",
        tabindex=0,
        role="img",
        aria_label="Who reaches whom. Arrow keys read single paths.",
        data_names=joined(square.labels),
        data_words=joined(texts),
        data_cells=codes,
        data_place=f"{square.left:g} {square.top:g} {square.side:.4g}",
    )
    rest = REST if size == 1 else f"{REST} Each stands for up to {size} members."
    read = tag("p", rest, class_="read", data_rest=rest)
    return tag("figure", read, picture, _KEY, class_="reach")


_HATCH: Final = tag(
    "defs",
    tag(
        "pattern",
        tag("rect", width=5, height=5, class_="ground"),
        tag("path", d="M0 0V5", class_="stripe"),
        id="silent",
        width=5,
        height=5,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    ),
)
_KEY: Final = tag(
    "p",
    *(
        tag("span", tag("i", class_=state), word)
        for state, word in (
            ("well", "answers"),
            ("slow", "100 ms or more"),
            ("loses", "loses 10 % or more"),
            ("fails", "✕ fails"),
            ("silent", "gives no figures"),
            ("none", "no ping yet"),
        )
    ),
    class_="key",
)


def _square(paths: Paths, size: int) -> _Square:
    names = paths.names
    groups = [range(at, min(at + size, len(names))) for at in range(0, len(names), size)]
    rows = [
        row if size == 1 else _worst_of(paths.rows[group[0] : group[-1] + 1], groups)
        for group, row in zip(groups, paths.rows, strict=False)
    ]
    ends = [(names[group[0]], names[group[-1]]) for group in groups]
    labels = [a if a == b else f"{a} … {b}" for a, b in ends]
    dead = [any(names[at] in paths.dead for at in group) for group in groups]
    letters = max(len(short(label, LABEL_LETTERS)) for label in labels)
    side = min(SIDE_MAX, SIDE / len(labels))
    room = letters * LETTER
    step = _step(len(labels), ROOM if room > side else side, side)
    upright = room > side * step - 4
    return _Square(
        labels=labels,
        rows=rows,
        loud=[at for at, gone in enumerate(dead) if gone],
        zones=[paths.zones.get(first, "") for first, _ in ends],
        side=side,
        left=round(room + 22),
        top=round(room + 10) if upright else 20,
    )


def _worst_of(rows: Sequence[str], groups: Sequence[range]) -> str:
    return "".join(max("".join(row[group[0] : group[-1] + 1] for row in rows)) for group in groups)


def _step(count: int, room: float, side: float) -> int:
    """Return of how many members one has a label, so that labels are *room* apart."""
    return next((step for step in (1, 2, 5, 10, 20, 50) if step * side >= room), count)


def _marks(square: _Square) -> list[Markup]:
    """Return one path for each state, in units of cells; rows of equal states are one stroke."""
    count = len(square.rows)
    found: list[Markup] = []
    for state, class_ in STATES.items():
        path = "".join(
            f"M{run.start()} {at}.5h{run.end() - run.start()}"
            for at, row in enumerate(square.rows)
            for run in re.finditer(rf"{re.escape(state)}+", row)
        )
        if path:
            found.append(tag("path", d=path, class_=class_))
    if count <= GRID_MAX:
        lines = "".join(f"M{at} 0v{count}M0 {at}h{count}" for at in range(1, count))
        found.append(tag("path", d=lines, class_="grid"))
    if count <= CROSSES_MAX:
        for state, class_ in ((FAILS, "cross"), (SILENT, "faint")):
            path = "".join(
                f"M{column}.3 {at}.3l.4 .4m0-.4l-.4 .4"
                for at, row in enumerate(square.rows)
                for column, found_state in enumerate(row)
                if found_state == state
            )
            if path:
                found.append(tag("path", d=path, class_=class_))
    return found


def _figures(paths: Paths, square: _Square, size: int) -> list[Markup]:
    """Return what is not in units of cells: hatched rows, and figures if cells are large."""
    side, left, top = square.side, square.left, square.top
    gap = 2 if len(square.rows) <= GRID_MAX else 0
    hatched = "".join(
        f"M{coordinate(left + run.start() * side)} {coordinate(top + at * side)}"
        f"h{coordinate((run.end() - run.start()) * side)}v{coordinate(side - gap)}"
        f"h{coordinate((run.start() - run.end()) * side)}z"
        for at, row in enumerate(square.rows)
        for run in re.finditer(f"{SILENT}+", row)
    )
    found = [tag("path", d=hatched, fill="url(#silent)")] if hatched else []
    if len(square.rows) > FIGURES_MAX or size > 1:
        return found
    for at, row in enumerate(square.rows):
        for column, state in enumerate(row):
            text = _short_figure(paths, at, column, state)
            if text:
                x, y = left + (column + 0.5) * side, top + (at + 0.5) * side + 4
                class_ = f"value {STATES.get(state, 'well')}"
                found.append(
                    tag("text", text, x=coordinate(x), y=coordinate(y), class_=f"on {class_}")
                )
    return found


def _short_figure(paths: Paths, at: int, column: int, state: str) -> str:
    if state not in (WELL, SLOW, LOSES):
        return ""
    cell = paths.cells[paths.names[at]][paths.names[column]]
    if state == LOSES:
        return f"{100 * cell['lost']:.0f}%"
    return f"{cell['ms']:.1f}" if cell["ms"] < 10 else f"{cell['ms']:.0f}"  # noqa: PLR2004 - digits


def _labels(square: _Square, *, by_zone: bool) -> list[Markup]:
    """Return names of rows and columns, as many as have room; those that do not answer first."""
    side, left, top, count = square.side, square.left, square.top, len(square.labels)
    upright = top > 20  # noqa: PLR2004 - the room of one line
    letters = max(len(short(label, LABEL_LETTERS)) for label in square.labels) * LETTER
    found: list[Markup] = []
    for at in _labelled(square, ROOM):
        gone = at in square.loud
        name = f"{'✕ ' if gone else ''}{short(square.labels[at], LABEL_LETTERS)}"
        y = coordinate(top + (at + 0.5) * side + 4)
        found.append(tag("text", name, x=left - 6, y=y, class_=f"name end{' gone' * gone}"))
    for at in _labelled(square, ROOM if upright else max(letters + 4, side)):
        gone = at in square.loud
        x, y = coordinate(left + (at + 0.5) * side), coordinate(top - 6)
        name = short(square.labels[at], LABEL_LETTERS)
        turn = f"translate({coordinate(left + (at + 0.5) * side + 4)} {y}) rotate(-90)"
        place = {"transform": turn} if upright else {"x": x, "y": y}
        class_ = f"name{'' if upright else ' middle'}{' gone' * gone}"
        found.append(tag("text", name, class_=class_, **place))
    if by_zone:
        ends = [at for at, (a, b) in enumerate(pairwise(square.zones), 1) if a != b]
        size = coordinate(count * side)
        lines = "".join(
            f"M{coordinate(left + at * side - 1)} {top:g}v{size}"
            f"M{left:g} {coordinate(top + at * side - 1)}h{size}"
            for at in ends
        )
        if lines:
            found.append(tag("path", d=lines, class_="border"))
    return found


def _labelled(square: _Square, room: float) -> list[int]:
    """Return which labels are shown, *room* pixels apart."""
    count = len(square.labels)
    step = _step(count, room, square.side)
    chosen: list[int] = []
    for at in (*square.loud, 0, *range(step - 1, count, step)):
        if all(abs(at - other) * square.side >= room for other in chosen):
            chosen.append(at)
    return sorted(chosen)


def _words(paths: Paths, rows: Sequence[str], size: int) -> tuple[list[str], str]:
    """Return the different texts of cells, and for each cell a letter: the number of its text."""
    numbers: dict[str, int] = {}
    codes: list[str] = []
    say = _said if size == 1 else _said_of_group
    for at, row in enumerate(rows):
        for column, state in enumerate(row):
            text = say(paths, at, column, state)
            if len(numbers) >= WORDS_MAX and text not in numbers:
                text = _PLAIN[state]
            codes.append(letter(numbers.setdefault(text, len(numbers))))
    return list(numbers), "".join(codes)


_PLAIN: Final = {
    SELF: "itself",
    NONE: "no ping yet",
    WELL: "answers",
    SLOW: "answers slowly",
    LOSES: "loses pings",
    FAILS: "✕ fails",
    SILENT: "no figures, as the sender does not answer",
}


def _said(paths: Paths, at: int, column: int, state: str) -> str:
    if state in (SELF, NONE, SILENT):
        return _PLAIN[state]
    cell = paths.cells.get(paths.names[at], {}).get(paths.names[column])
    if cell is None:
        return "✕ fails: no answer"
    if state == FAILS:
        parts = (cell["failure"] or "no answer", TCP.get(cell["tcp"], ""))
        return f"✕ fails: {'; '.join(part for part in parts if part)}"
    trip = "" if cell["ms"] is None else milliseconds(cell["ms"])
    if state == LOSES:
        lost = f"{100 * cell['lost']:.0f} % of the last pings are lost"
        return f"{lost}, {trip}" if trip else lost
    return trip


def _said_of_group(paths: Paths, at: int, column: int, state: str) -> str:
    del paths, at, column
    return (
        f"{_PLAIN[state]}, the worst of these paths" if state in (FAILS, LOSES) else _PLAIN[state]
    )
