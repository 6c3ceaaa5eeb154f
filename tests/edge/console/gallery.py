"""All pictures in all states, as one page: ``python -P tests/edge/console/gallery.py FILE``."""

from __future__ import annotations

import math
import random
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from ringpop_py.edge.console import charts, matrix, pictures, ringmap
from ringpop_py.edge.console.page import file_of
from ringpop_py.edge.console.svg import Finding, tag

NOW = 1_764_460_000.0
SERIES = (
    "reads",
    "writes",
    "handlers",
    "others",
    "refused",
    "failed",
    "p50_ms",
    "p99_ms",
    "alive",
    "not_alive",
    "partitions_unserved",
    "partitions_moving",
)
HOSTILE = '<script>alert("x")</script>&|\''


class Scene(NamedTuple):
    """What a cluster in one state says to the pictures."""

    series: dict[str, Any]
    events: list[dict[str, Any]]
    paths: matrix.Paths
    keyspaces: list[ringmap.Owned]
    members: list[dict[str, Any]]
    line: pictures.Timeline


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))


def scene(
    names: list[str],
    *,
    dead: frozenset[str] = frozenset(),
    cut: int = 0,
    lossy: str | None = None,
    all_lossy: bool = False,
    columns: int = 120,
    by_zone: bool = False,
) -> Scene:
    """Return a state: members that *dead* names, a cut before a member, or lost pings."""
    chance = random.Random(7)
    zones = {name: "ab"[at * 2 >= len(names)] for at, name in enumerate(names)}
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for a, sender in enumerate(names):
        if sender in dead:
            continue
        cells[sender] = {}
        for b, receiver in enumerate(names):
            if a == b:
                continue
            ms = chance.uniform(0.6, 4.5)
            cell = {"ms": ms, "lost": 0.0, "failure": "", "tcp": ""}
            if receiver in dead:
                cell |= {"ms": None, "lost": 1.0, "failure": "timeout", "tcp": "refused"}
            elif cut and (a < cut) != (b < cut):
                cell |= {"lost": 1.0, "failure": "timeout", "tcp": "silent"}
            elif all_lossy or lossy in (sender, receiver):
                cell |= {"ms": chance.uniform(20, 90), "lost": 0.3}
            cells[sender][receiver] = cell
    paths = matrix.paths_of(names, cells, dead, zones, by_zone=by_zone)
    live = [at for at, name in enumerate(names) if name not in dead]
    return Scene(
        _series(len(names), len(dead), columns, slow=bool(lossy or all_lossy)),
        [{"at": NOW - 200, "letter": "A", "text": f"{name} suspect → faulty"} for name in dead][:1]
        + [{"at": NOW - 190, "letter": "B", "text": "taken over"} for _ in dead][:1],
        paths,
        [
            _owned(name, count, live, bool(dead))
            for name, count in (("carts", 64), ("sessions", 1_024))
        ]
        if names
        else [],
        [_member(name, name in dead, len(live), chance) for name in names],
        pictures.timeline(_changes(dead), NOW),
    )


def _series(members: int, dead: int, count: int, *, slow: bool) -> dict[str, Any]:
    chance = random.Random(5)
    columns: list[list[float | None]] = []
    for at in range(120 - count, 120):
        gone = dead if at >= 80 else 0
        bad = 80 <= at < 82 and bool(dead)
        total = members * 840 * (1 + 0.05 * math.sin(at / 9) + 0.06 * chance.random())
        total *= 0.7 if gone else 1.0
        waits = 40.0 if bad else 20.0 if slow and at > 60 else 1.0
        columns.append(
            [
                *(round(5 * total * part) for part in (0.55, 0.27, 0.12, 0.06)),
                300 if bad else 0,
                900 if bad else 0,
                1.6 * (0.95 + 0.1 * chance.random()) * min(waits, 3.0),
                9.0 * (0.8 + 0.4 * chance.random()) * waits,
                members - gone,
                gone,
                45 if bad else 0,
                14 if gone and at < 84 else 0,
            ]
        )
    return {"step_s": 5, "ended_at": NOW, "names": list(SERIES), "columns": columns}


def _owned(name: str, count: int, live: list[int], trouble: bool) -> ringmap.Owned:  # noqa: FBT001
    owners = [live[(7 * at + at // 16) % len(live)] if live else -1 for at in range(count)]
    states = ["s"] * count
    if trouble:
        for at in range(3, count, count // 8):
            states[at], states[at + 2] = "u", "m"
            owners[at] = -1
    return ringmap.Owned(name, owners, "".join(states))


def _member(name: str, dead: bool, live: int, chance: random.Random) -> dict[str, Any]:  # noqa: FBT001
    part = chance.uniform(0.82, 1.18) / max(1, live)
    return {
        "name": name,
        "dead": dead,
        "share": None if dead else part,
        "partitions": None if dead else round(1_088 * part),
        "requests_s": None if dead else 4_200 * part,
        "p99_ms": None if dead else chance.uniform(7, 12),
        "cpu_percent": None if dead else chance.uniform(10, 40),
    }


def _changes(dead: frozenset[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in sorted(dead):
        for at, before, after in ((200, "alive", "suspect"), (195, "suspect", "faulty")):
            number = len(found) + 1
            change = {"number": number, "at": NOW - at, "member": name, "before": before}
            found.append({**change, "after": after, "text": f"accused <by> n{number}"})
    return found


def numbered(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def scenes() -> dict[str, Scene]:
    five, hundred = numbered(5), numbered(100)
    hosts = [f"10.1.0.{at}:3000" for at in range(8, 14)]
    return {
        "healthy": scene(five),
        "killed": scene(five, dead=frozenset({"n4"})),
        "cut, both sides tell": scene(numbered(4), cut=2),
        "cut, seen from one side": scene(five, dead=frozenset({"n4", "n5"}), by_zone=True),
        "30 % loss at n3": scene(five, lossy="n3"),
        "30 % loss everywhere": scene(numbered(12), all_lossy=True),
        "thirty members, two dead": scene(numbered(30), dead=frozenset({"n7", "n21"})),
        "hundred members": scene(hundred),
        "hundred members, one dead": scene(hundred, dead=frozenset({"n42"}), by_zone=True),
        "250 members, one dead": scene(numbered(250), dead=frozenset({"n42"})),
        "addresses as names": scene(hosts, dead=frozenset({hosts[2]})),
        "hostile": scene(["n1", HOSTILE], dead=frozenset({HOSTILE})),
        "just started": scene(five, columns=20),
        "one member": scene(["n1"], columns=1),
        "empty": scene([], columns=0),
    }


def drawn(of: Scene) -> dict[str, tuple[list[Finding], Markup]]:
    """Return each picture of a scene, with what it says."""
    shown = ringmap.worst_of(of.keyspaces)
    series = of.series
    return {
        "The last ten minutes": (
            [
                charts.requests_finding(series),
                charts.latency_finding(series),
                charts.members_finding(series),
                charts.partitions_finding(series),
            ],
            charts.ten_minutes(series, of.events, clock),
        ),
        "Who reaches whom": ([matrix.paths_finding(of.paths)], matrix.matrix(of.paths)),
        "Who owns what": (
            [ringmap.ownership_finding(of.keyspaces)],
            tag(
                "div",
                *([ringmap.ring(shown)] if shown else []),
                tag("div", ringmap.all_bars(of.members), class_="metrics", data_shown="share"),
                *(ringmap.strip(keyspace) for keyspace in of.keyspaces),
                class_="owned",
            ),
        ),
        "Statuses": ([pictures.lanes_finding(of.line)], pictures.lanes(of.line, of.events)),
    }


FRAME = """
body { margin: 0; padding: 16px; background: light-dark(#f5f7f8, #101416); color: var(--p-ink);
  font: 14px/1.5 "Inter", "Liberation Sans", sans-serif; }
.two { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); }
.two > section > div { background: var(--p-card); border: 1px solid var(--p-line);
  border-radius: 8px; padding: 14px 16px; }
.crit { color: var(--p-crit); } .warn { color: var(--p-warn); } h3 { font-size: 14px; }
h3 span { font-weight: 400; }
"""


def page(theme: str) -> str:
    parts: list[Markup] = []
    for name, of in scenes().items():
        sections = [
            tag(
                "section",
                tag("h3", title, *(tag("span", f" {f.text}.", class_=f.level) for f in findings)),
                tag("div", picture),
            )
            for title, (findings, picture) in drawn(of).items()
        ]
        first, *others = sections
        parts.append(tag("h2", name) + first + tag("div", *others, class_="two"))
    style = Markup(FRAME + file_of("pictures.css").decode())  # noqa: S704 - our own files
    script = Markup(file_of("pictures.js").decode())  # noqa: S704
    scheme = Markup(f":root{{color-scheme:{theme}!important}}" if theme else "")  # noqa: S704
    head = tag("style", style, scheme) + Markup(
        '<meta name="viewport" content="width=device-width">'
    )
    return f"<!doctype html><meta charset=utf-8>{head}{Markup().join(parts)}{tag('script', script)}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(sys.argv[2] if len(sys.argv) > 2 else ""), "utf-8")
