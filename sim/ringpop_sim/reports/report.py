"""A trace, read line by line into a story, and shown as one HTML page.

Work that needs the product's own types and rings is done here. Counting and drawing are done by the
script in ``report.html``, where they can follow the reader's choices.
"""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import groupby
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ringpop_py.member.swim.records import text_of
from ringpop_sim.plans.planfile import parse_plan, replay_command
from ringpop_sim.reports.lines import LINES_MAX, Line, read_lines
from ringpop_sim.reports.ownership import MEMBERS_MAX, KeyOwnership
from ringpop_sim.reports.tracefile import FORMAT, MESSAGES_MAX
from ringpop_sim.scenarios import SCENARIOS, about, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ringpop_sim.plans.plan import Plan

EVENTS_MAX: Final = 20_000
CHANGES_MAX: Final = 300

CODES: Final = ("off", "unknown", "alive", "damped", "suspect", "faulty", "leave", "tombstone")
"""The states in which an observer may see a member; the page relies on this order."""
UNKNOWN, ALIVE, DAMPED, SUSPECT = 1, 2, 3, 4
OWN: Final = ("local", "probe", "timer", "reap")
"""The sources of changes that a node finds on its own; all others are hearsay."""
_WHOSE: Final = ("time", "observer", "process", "observer_address")


def read_story(path: str | Path) -> Story:
    """Read the story that the trace at *path* tells.

    Raises:
        TraceError: the file is not a trace; the message names the line.
    """
    story = Story()
    if not read_lines(path, story.take):
        story.left_out.append(f"all lines after line {LINES_MAX:,} of the trace")
    return story


def page_of(story: Story) -> str:
    """Return one HTML document that needs no other file."""
    text = json.dumps(story.as_json(), separators=(",", ":"), allow_nan=False)
    # Names come from the trace, and no text may end the element that contains it.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    template = files("ringpop_sim.reports").joinpath("report.html").read_text(encoding="utf-8")
    before, after = template.split("{{data}}")
    return before + text + after


class Lanes(list[Line]):
    """Lanes: each is a name at an address, for all processes that ran there in turn.

    Attributes:
        running: the process that runs now, by lane.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running: dict[int, int] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def of(self, line: Line) -> int:
        """Return the number of the observer's lane; a process that starts gets one."""
        key = line["observer"], line["observer_address"]
        if key not in self._numbers:
            if line["event"] != "process-started":
                raise ValueError(f"{key[0]} at {key[1]} has not been started")
            self._numbers[key] = len(self)
            lane = {"name": key[0], "address": key[1], "node": 0, "process": None, "lives": []}
            self.append(lane)
        return self._numbers[key]


class Messages:
    """The messages of a trace: the first `MESSAGES_MAX` of *count*."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.kinds: dict[str, int] = {}
        self.count = 0

    def add(self, line: Line, subject: Callable[[str], int]) -> None:
        """Add a message; *subject* numbers its sender and its receiver."""
        self.count += 1
        if len(self.rows) >= MESSAGES_MAX:
            return
        kind = self.kinds.setdefault(line["what"], len(self.kinds))
        ends = subject(line["from"]), subject(line["to"])
        arrives = [float(at) for at in line["arrives"]]
        self.rows.append((line["time"], *ends, kind, int(line["changes"]), arrives))


class Spread:
    """How changes of rows spread from lane to lane."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._changes: dict[tuple[int, int, int], Line] = {}
        self._listed: dict[tuple[int, int, int], set[int]] = {}

    def told(self, left_out: list[str]) -> list[Line]:
        """Return the most widely known changes by time; *left_out* names the others."""
        found = [change for change in self._changes.values() if len(change["knew"]) > 1]
        found.sort(key=lambda change: (-len(change["knew"]), change["at"]))
        if len(found) > CHANGES_MAX:
            left_out.append(f"the spread of {len(found) - CHANGES_MAX:,} of {len(found):,}"
                                 " changes, those that fewest knew of")  # fmt: skip
        told = sorted(found[:CHANGES_MAX], key=lambda change: change["at"])
        return [self._told(change) for change in told]

    def _told(self, change: Line) -> Line:
        n = self._could_know(change)
        told = {name: value for name, value in change.items() if name != "could"}
        knew = sorted(round(at - change["at"], 6) for at in change["knew"].values())
        return told | {"n": n, "knew": knew, "theory": round(spread_periods(n), 3)}

    def add(self, lane: int, subject: int, code: int, line: Line, *, listed: bool) -> None:
        """Note that *lane* knows of this change of a row, if not by its first *listed* rows."""
        key = subject, code, line["incarnation"]
        lists = self._listed.setdefault(key, set())
        change = self._changes.get(key)
        if line["via"] == "join" or listed:
            lists.add(lane)
            if change is not None and lane not in change["knew"]:
                change["could"].discard(lane)
            return
        if change is None:
            own = self._lanes[lane]["name"] == line["member"]
            others = (i for i in self._lanes.running if self._lanes[i]["name"] != line["member"])
            change = self._changes[key] = {
                "subject": subject,
                "code": code,
                "incarnation": line["incarnation"],
                "at": line["time"],
                "could": {lane, *others} - lists if own else {*others} - lists,
                "knew": {},
                "own": 0,
            }
        if lane in change["could"] and lane not in change["knew"]:
            change["knew"][lane] = line["time"]
            change["own"] += line["via"] in OWN

    def _could_know(self, change: Line) -> int:
        """Return how many lanes could know of *change*: all that did not end before it came."""
        lives = {lane: self._lanes[lane]["lives"] for lane in change["could"]}
        ended = [
            lane
            for lane, spans in lives.items()
            if any(end is not None and end >= change["at"] for _, end in spans)
        ]
        return len(change["could"]) - sum(lane not in change["knew"] for lane in ended)


class Story:
    """The content of a trace, collected for the page."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.seed = 0
        self.lanes = Lanes()
        self.subjects: dict[str, int] = {}
        self.views: dict[tuple[int, int], list[float]] = {}
        self.checksums: list[tuple[float, int, str]] = []
        self.faults: list[Line] = []
        self.messages = Messages()
        self.broken: list[Line] = []
        self.result: Line | None = None
        self.events: list[tuple[float, int, str, str, int, bool]] = []
        self.left_out: list[str] = []
        self.last_s = 0.0
        self._spread = Spread(self.lanes)
        self._rings = KeyOwnership()

    def take(self, line: Line) -> None:
        """Add the next line of the trace. Raises an exception if it is not one."""
        event = line["event"]
        if (event == "plan") != (self.plan is None):
            raise ValueError("a trace must begin with its plan, and have only one")
        self.last_s = max(self.last_s, line["time"])
        self._HANDLERS.get(event, Story._fact)(self, line)

    # The simulator's own lines.

    def _plan(self, line: Line) -> None:
        if line["format"] != FORMAT:
            raise ValueError(f"its format is {line['format']}, not {FORMAT}")
        self.plan = parse_plan(line["plan"], "its plan")
        self.seed = int(line["seed"])

    def _started(self, line: Line) -> None:
        lane, at, process = self.lanes.of(line), line["time"], line["process"]
        state = self.lanes[lane]
        state["node"] = line["node"]
        if state["process"] != process:  # a new process without memory, not a revived one
            for (observer, _), view in self.views.items():
                if observer == lane:
                    view.extend((at, UNKNOWN))
            self._rings.forget(lane, at)
        state["process"] = process
        state["lives"].append([at, None])
        self.lanes.running[lane] = process
        self._rings.own(lane, self._subject(line["observer"]))
        self._event(line, "starts", line["observer"])

    def _ended(self, line: Line) -> None:
        lane = self.lanes.of(line)
        self.lanes.running.pop(lane, None)
        self.lanes[lane]["lives"][-1][1] = line["time"]
        self._rings.forget(lane, line["time"])
        text = "ends, and nobody is told" if line["silent"] else "ends"
        self._event(line, text, line["observer"])

    def _fault_began(self, line: Line) -> None:
        text = _fault_text(line["operation"], line["nodes"], line["detail"])
        fault = {
            "place": line["place"],
            "kind": line["operation"],
            "nodes": line["nodes"],
            "text": text,
            "from": line["time"],
            "to": None,
        }
        self.faults.append(fault)
        self._event(line, f"{text} begins")

    def _fault_ended(self, line: Line) -> None:
        for fault in self.faults:
            same = fault["place"] == line["place"] and fault["nodes"] == line["nodes"]
            if same and fault["to"] is None:
                fault["to"] = line["time"]
                self._event(line, f"{fault['text']} is over")

    def _checksum(self, line: Line) -> None:
        lane = self.lanes.of(line)
        self.checksums.append((line["time"], lane, str(line["checksum"])))
        left_out = [self._subject(name) for name in line.get("left_out", ())]
        self._rings.leave_out(lane, line["time"], left_out)

    def _message(self, line: Line) -> None:
        self.messages.add(line, self._subject)

    def _messages_omitted(self, line: Line) -> None:
        self.left_out.append(f"{line['count']:,} messages, which are not in the trace")

    def _invariant_broken(self, line: Line) -> None:
        broken = {key: line[key] for key in ("time", "invariant", "detail")}
        self.broken.append(broken)
        self._event(line, f"{line['invariant']} is broken: {line['detail']}")

    def _result(self, line: Line) -> None:
        self.result = dict(line["result"])

    # The facts of nodes.

    def _fact(self, line: Line) -> None:
        lane = self.lanes.of(line)
        record = {key: value for key, value in line.items() if key not in _WHOSE}
        if line["event"] == "member-changed":
            self._changed(lane, line)
        elif line["event"] == "ready":
            self._rings.serve(lane, line["time"])
        hearsay = line.get("via", OWN[0]) not in OWN
        self._event(line, text_of(record), str(line.get("member", "")), hearsay=hearsay)

    def _changed(self, lane: int, line: Line) -> None:
        subject, at, after = self._subject(line["member"]), line["time"], line["after"]
        code = UNKNOWN if after in ("evicted", "unknown") else CODES.index(after)
        damped = bool(line.get("damped"))
        shown = DAMPED if damped and code == ALIVE else code
        view = self.views.setdefault((lane, subject), [])
        if not view or view[-1] != shown:
            view.extend((at, shown))
        owns = code in (ALIVE, SUSPECT) and not line.get("draining")
        self._rings.change(lane, at, subject, owns=owns)
        if code != UNKNOWN:
            listed = not self._rings.serves(lane)
            self._spread.add(lane, subject, shown, line, listed=listed)

    # Names.

    def _subject(self, name: str) -> int:
        return self.subjects.setdefault(str(name), len(self.subjects))

    def _event(self, line: Line, text: str, member: str = "", *, hearsay: bool = False) -> None:
        lane = self.lanes.of(line) if "observer" in line else -1
        subject = self._subject(member) if member else -1
        self.events.append((line["time"], lane, line["event"], text, subject, hearsay))

    # The page.

    def as_json(self) -> Line:
        """Return the data of the page."""
        plan = self.plan
        assert plan is not None
        events, changes = self._events_told(), self._spread.told(self.left_out)
        if self.messages.count > len(self.messages.rows):
            count = self.messages.count - len(self.messages.rows)
            self.left_out.append(f"the last {count:,} of {self.messages.count:,} messages")
        checksums: dict[str, int] = {}
        ring = self._rings.as_json(list(self.subjects), plan.dialect)
        if len(self.subjects) > MEMBERS_MAX:
            self.left_out.append(f"the ring, because there are more than {MEMBERS_MAX} members")
        return {
            "scenario": plan.name,
            "about": _about(plan),
            "seed": self.seed,
            "nodes": plan.nodes,
            "dialect": plan.dialect,
            "until": self.last_s,
            "period": plan.gossip().period_s,
            "plan": replay_command(plan, self.seed).partition("\n")[2].removesuffix("END"),
            "replay": replay_command(plan, self.seed),
            "result": self.result,
            "broken": sorted(self.broken, key=lambda broken: broken["time"]),
            "faults": self.faults,
            "codes": CODES,
            "lanes": [{k: v for k, v in lane.items() if k != "process"} for lane in self.lanes],
            "subjects": list(self.subjects),
            "views": [[*key, view] for key, view in self.views.items()],
            "checksums": [
                (at, lane, checksums.setdefault(checksum, len(checksums)))
                for at, lane, checksum in self.checksums
            ],
            "messages": {"kinds": list(self.messages.kinds), "rows": self.messages.rows},
            "changes": changes,
            "ring": ring,
            "events": events,
            "leftOut": self.left_out,
        }

    def _events_told(self) -> list[list[Any]]:
        """Return the events; if there are too many, without hearsay, and only the first."""
        told = self.events
        if len(told) > EVENTS_MAX:
            told = [event for event in told if not event[-1]][:EVENTS_MAX]
            count = len(self.events) - len(told)
            self.left_out.append(f"{count:,} of {len(self.events):,} events, hearsay first")
        return sorted(([*event[:-1]] for event in told), key=lambda event: event[0])

    _HANDLERS: ClassVar[dict[str, Callable[[Story, Line], None]]] = {
        "plan": _plan,
        "process-started": _started,
        "process-ended": _ended,
        "fault-began": _fault_began,
        "fault-ended": _fault_ended,
        "checksum": _checksum,
        "message": _message,
        "messages-omitted": _messages_omitted,
        "invariant-broken": _invariant_broken,
        "result": _result,
    }


def spread_periods(nodes: int) -> float:
    """Return in how many periods a change spreads to all; see `ringpop_sim.runs.theory.spread`."""
    return 0.88 * log(max(2, nodes)) + 0.38


def _about(plan: Plan) -> str:
    """Return what *plan* shows: its own text, or that of the scenario with its name."""
    if plan.about or plan.name not in SCENARIOS:
        return plan.about
    return about(plan.name) if scenario(plan.name, plan.nodes) == plan else ""


def _fault_text(kind: str, nodes: Sequence[int], detail: Line) -> str:
    """Return a short text for a fault."""
    if kind == "cut":
        arrow = "→" if detail.get("one_way") else "↔"
        whom = f"{ranges(detail['left'])} {arrow} {ranges(detail['right'])}"
    else:
        whom = ranges(nodes)
    known = ("at_us", "for_us", "nodes", "left", "right", "about", "one_way", "stagger_us")
    rest = [_setting_text(name, value) for name, value in detail.items() if name not in known]
    return f"{kind} {whom}" + (f" ({', '.join(rest)})" if rest else "")


def _setting_text(name: str, value: object) -> str:
    if value is True:
        return name
    if name.endswith("_us") and isinstance(value, int | float):
        return f"{name.removesuffix('_us')} {value / 1e6:g} s".replace("_", " ")
    return f"{name.replace('_', ' ')} {value}"


def ranges(numbers: Iterable[int]) -> str:
    """Return nodes as a short list, for example ``n0-n4, n7``."""
    found = []
    ordered = sorted({int(number) for number in numbers})
    for _, group in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        dash = "-" if len(run) > 2 else ", "  # noqa: PLR2004
        found.append(f"n{run[0]}" if len(run) == 1 else f"n{run[0]}{dash}n{run[-1]}")
    return ", ".join(found)
