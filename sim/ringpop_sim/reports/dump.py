"""The state of one node as text for people: its members, timers and calls."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ringpop_py.base.values.declared import Declared
from ringpop_py.member.swim.member import Member
from ringpop_sim.units import seconds
from ringpop_sim.world.state import state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_sim.world.process import Process

    Rows = Iterable[tuple[object, ...]]


def dump(process: Process, now: int) -> str:
    """Return the state of the node of *process* at the world's instant *now*.

    Due times count from *now*, by the node's own clock. A section that would be empty is left out.
    """
    node = process.node
    state: Any = state_of(node)  # plain values under the names of attributes
    core, rows, rounds = state["core"], state["rows"], state["healer"]["rounds"]
    healing, vote = state["healer"]["healing"], state["damper"]["vote"]
    timers, its_time = core["timers"], process.time(now)
    due = dict(timers["due"])
    # Timers are due by the node's clock without its stalls; those are added again.
    at = {token: seconds(at - its_time + core["clock"]["lost_us"]) for at, token in timers["heap"]}
    statuses = [entry for _, entry in rows["status_timers"]["entries"]]
    sections: dict[str, Rows] = {
        "itself": _itself(core, state["periods"]),
        "members": [(m.name, m.address, m.status.label, m.incarnation) for m in node.members],
        "suspicions": [
            (member.name, f"{at[timer]:+.6f} s", "accused by", ", ".join(suspicion["accusers"]))
            for member, suspicion, timer in statuses
            if suspicion is not None
        ],
        "damping": [(d.member.name, f"score {d.score}") for d in node.damp_states(its_time)],
        "timers": [
            (f"{at[token]:+.6f} s", _brief(due[token]))
            for _, token in sorted(timers["heap"])
            if token in due
        ],
        "calls": [(id_, to, _brief(then)) for id_, (to, _, then) in state["calls"]["open"]],
        "probes": [_probe(number, probe) for number, probe in state["prober"]["open"]],
        "namesakes asked": [
            (address, inquiry["helpers_open"], "helpers open")
            for address, inquiry in state["namesakes"]["inquiries"]
        ],
        "syncs": [
            (number, run["peer"], f"{run['rounds_left']} rounds left", _brief(run["then"]))
            for number, run in state["syncer"]["runs"]
        ],
        "vote": []
        if vote is None
        else [(name, f"{vote['open_count']} open") for name in vote["names"]],
        "healing, still to try": [] if healing is None else [(to,) for to in healing["left"]],
        "changes that ride": [
            (name, rider["change"].member.status.label, f"sent {rider['sent_count']} times")
            for name, rider in rows["dissemination"]["riders"]
        ],
        "hosts": [
            (host, "answered" if host in rounds["answered"] else "") for host in rounds["hosts"]
        ],
        "counts": [(name, count) for name, count in core["counts"].items() if count],
    }
    head = f"{node!r}\n{process.life.value} at {seconds(now):.6f} s"
    return "\n\n".join([head, *(_section(*section) for section in sections.items() if section[1])])


def _probe(number: int, probe: dict[str, Any]) -> tuple[object, ...]:
    said = (f"{helper}: {word or 'open'}" for helper, word in probe["said"])
    return number, probe["target"].name, f"ping: {probe['ping_failure'] or 'open'}", *said


def _itself(core: dict[str, Any], periods: dict[str, Any]) -> Rows:
    local, clock = core["members"]["local_name"], core["clock"]
    return [
        ("name", local),
        ("cluster", core["cluster"]),
        ("dialect", core["dialect"].name),
        ("checksum", core["members"]["checksum"]["value"]),
        ("health", core["health"]["score"]),
        ("lost", f"{seconds(clock['lost_us']):.6f} s in {clock['stall_count']} stalls"),
        ("periods", "run" if periods["running"] else "do not run"),
    ]


def _section(title: str, rows: Rows) -> str:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip_longest(*texts, fillvalue="")]
    cells = ([text.ljust(width) for text, width in zip(row, widths, strict=False)] for row in texts)
    return "\n".join([f"{title}:", *(f"  {'  '.join(row).rstrip()}" for row in cells)])


def _brief(value: object) -> str:
    """Return *value* shortened to a line: of members the name, of changes the number."""
    if isinstance(value, Member):
        return value.name
    if isinstance(value, Declared):
        fields = (f"{key}={_brief(getattr(value, key))}" for key in value.__struct_fields__)
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"{len(value)} of them"
    return str(value)
