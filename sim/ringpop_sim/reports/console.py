"""The console of one node at one instant of a simulated run: the same page, made of a trace."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.version import package_version
from ringpop_py.edge.console.page import still_of
from ringpop_py.edge.console.pictures import marks_of
from ringpop_py.edge.judge.judge import problems_in
from ringpop_py.edge.judge.problems import CRITICAL, Problem, Seen
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.records import text_of
from ringpop_sim.errors import TraceError
from ringpop_sim.plans.planfile import parse_plan
from ringpop_sim.reports.lines import Line, read_lines

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_sim.plans.plan import Plan

EVENTS_SHOWN: Final = 200
MOVES_SHOWN: Final = 5
_OF_TRACES: Final = ("time", "observer", "process", "observer_address")


class NodeView:
    """What *observer* knows at *at_s*, the end of the run if that is None."""

    def __init__(self, observer: str, at_s: float | None) -> None:
        self.observer = observer
        self.at_s = at_s
        self.last_s = 0.0
        self.plan: Plan | None = None
        self.seed = 0
        self._rows: dict[str, Line] = {}
        self._left_out: frozenset[str] = frozenset()
        self._checksums: dict[str, str] = {}
        """The checksums of all nodes that run."""
        self._rings: list[tuple[float, frozenset[str]]] = []
        """The members of the ring, with the instant from which on they were in it."""
        self._broken: list[Line] = []
        self._events: list[Line] = []
        self._ran = False

    def take(self, line: Line) -> None:
        """Add the next line of the trace, unless it is later than the instant."""
        event, at = line["event"], line["time"]
        if event == "plan":
            self.plan, self.seed = parse_plan(line["plan"], "its plan"), int(line["seed"])
        if event == "plan" or (self.at_s is not None and at > self.at_s):
            return
        self.last_s = max(self.last_s, at)
        if event == "invariant-broken":
            self._broken.append(line)
        elif event == "process-ended":
            self._checksums.pop(line["observer"], None)
        elif event == "checksum":
            self._checksums[line["observer"]] = str(line["checksum"])
        if line.get("observer") == self.observer:
            self._own(line)

    def _own(self, line: Line) -> None:
        """Add what the node reports about itself."""
        event, at = line["event"], line["time"]
        if event == "process-started":
            self._ran = True
            # A process that was started anew knows no other member.
            own = {"status": "alive", "address": line["observer_address"], "incarnation": None}
            self._rows, self._left_out = {self.observer: own}, frozenset()
        elif event == "member-changed":
            self._changed(line)
        elif event == "checksum":
            self._left_out = frozenset(line.get("left_out", ()))
        if event not in ("checksum", "message"):
            self._note(line)
        self._note_ring(at)

    def _changed(self, line: Line) -> None:
        if line["after"] in ("evicted", "unknown"):
            self._rows.pop(line["member"], None)
            return
        marks = [mark for mark in ("damped", "draining") if line.get(mark)]
        row = {"status": line["after"], "address": line["address"], "marks": marks}
        self._rows[line["member"]] = {**row, "incarnation": line["incarnation"]}

    def _note(self, line: Line) -> None:
        changed = line["event"] == "member-changed"
        record = {key: value for key, value in line.items() if key not in _OF_TRACES}
        self._events.append(
            {
                "number": len(self._events) + 1,
                "at": line["time"],
                "member": line.get("member"),
                "before": line["before"] if changed else None,
                "after": line["after"] if changed else None,
                "text": text_of(record),
            }
        )

    def _note_ring(self, at: float) -> None:
        there = frozenset(
            name
            for name, row in self._rows.items()
            if row["status"] in ("alive", "suspect") and "draining" not in row.get("marks", ())
        )
        ring = there - self._left_out
        if self._rings and self._rings[-1][0] == at:  # changes at one instant are one move
            self._rings.pop()
        if not self._rings or self._rings[-1][1] != ring:
            self._rings.append((at, ring))

    def sections(self) -> Line:
        """Return the sections of the page. Raises TraceError if the node never ran."""
        if self.plan is None or not self._ran:
            raise TraceError(f"no node {self.observer!r} ran until then; the first is n0")
        at_s = self.last_s if self.at_s is None else self.at_s
        shares = self._weights(self._rings[-1][1])
        found = Counter(row["status"] for row in self._rows.values())
        counts = {status.label: found[status.label] for status in Status}
        return {
            "head": {
                "node": self.observer,
                "cluster": self.plan.name,
                "counts": counts,
                "at": at_s,
                "views": len(set(self._checksums.values())),
                "ring_checksum": self._checksums.get(self.observer, ""),
            },
            "problems": self._problems(),
            "members": [self._member(name, shares) for name in sorted(self._rows)],
            "moves": self._moves(),
            "events": self._events[-EVENTS_SHOWN:],
            "marks": marks_of(self._events[-EVENTS_SHOWN:]),
        }

    def _problems(self) -> list[Line]:
        """Return the simulator's broken invariants, and the problems that a console would find."""
        rows = [
            {
                "name": name,
                "status": row["status"],
                "in_ring": name in self._rings[-1][1],
                **{mark: mark in row.get("marks", ()) for mark in ("damped", "draining")},
            }
            for name, row in sorted(self._rows.items())
        ]
        said = {"ready": True, "version": package_version(), "silent_hosts": {}}
        nodes = {name: {**said, "checksum": sum_} for name, sum_ in self._checksums.items()}
        told = "{invariant} was broken at {time:g} s: {detail}"
        broken = [Problem(CRITICAL, "bug", told.format_map(each)) for each in self._broken]
        return [each.told() for each in (*broken, *problems_in(Seen(rows, nodes)))]

    def _weights(self, ring: frozenset[str]) -> dict[str, float]:
        assert self.plan is not None
        return HashRing(sorted(ring), dialect=dialect_named(self.plan.dialect)).weights()

    def _member(self, name: str, shares: dict[str, float]) -> Line:
        row = self._rows[name]
        about: Line = {"silent": None, "labels": {}, "version": None}
        return {
            **about,
            "name": name,
            **{each: row[each] for each in ("address", "status")},
            "dead": row["status"] == "faulty",
            "marks": row.get("marks", []),
            "incarnation": "" if row["incarnation"] is None else row["incarnation"],
            "share": round(shares.get(name, 0.0), 4),
        }

    def _moves(self) -> list[Line]:
        """Return the last changes of the ring, the newest first."""
        found: list[Line] = []
        for (_, before), (at, after) in pairwise(self._rings[-MOVES_SHOWN - 1 :]):
            was, now = self._weights(before), self._weights(after)
            moved = sum(max(0.0, now[name] - was.get(name, 0.0)) for name in now)
            came, gone = sorted(after - before), sorted(before - after)
            found.append({"at": at, "came": came, "gone": gone, "moved": round(moved, 4)})
        return found[::-1]


def console_of(path: str | Path, observer: str, at_s: float | None) -> str:
    """Return the page of *observer* at *at_s*, of the trace at *path*. Raises TraceError."""
    view = NodeView(observer, at_s)
    read_lines(path, view.take)
    sections, version = view.sections(), package_version()
    at_s = sections["head"]["at"]
    source = f"{at_s:g} s after the start of a simulated run with seed {view.seed}"
    return still_of(sections, source=source, clock=lambda at: f"{at:.3f} s", version=version)
