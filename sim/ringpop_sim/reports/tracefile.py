"""A run as lines of JSON: what was done to which nodes, and what happened.

Each line is an object with `time` (seconds) and `event`. The first is ``plan`` and the last is
``result``, after one ``invariant-broken`` for each violation. Between them, in the order of time:

- ``process-started`` and ``process-ended``; ``fault-began`` and ``fault-ended``;
- the facts of the nodes, as `ringpop_py.member.swim.records` writes them to the log of a daemon,
  with `observer`, `process` and `observer_address` of the node;
- ``checksum``: a process has another member list than before;
- ``message``, if asked for: its sender, its receiver, and when each copy arrived.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.member.swim.effects import StatusChanged
from ringpop_py.member.swim.records import record_of
from ringpop_sim.plans.planfile import plan_text
from ringpop_sim.units import seconds
from ringpop_sim.world.network import address_of
from ringpop_sim.world.process import OpenCall
from ringpop_sim.world.trace import plain
from ringpop_sim.world.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member
    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.runs.run import Result
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

FORMAT: Final = 1
"""The format of the lines; a reader refuses other formats."""
MESSAGES_MAX: Final = 200_000
"""Messages beyond this number are counted and not written."""

Line = dict[str, Any]


class TraceWriter(Watcher):
    """Collects the lines of a run's trace, and writes them at the end.

    Args:
        messages: whether to collect each message, too.
    """

    def __init__(self, world: World, *, messages: bool = False) -> None:
        self.wants_messages = messages
        self._world = world
        self._lines: list[str] = []
        by_address = world.dialect.names_are_addresses
        self._names = {
            machine: str(address_of(machine)) if by_address else f"n{machine}"
            for machine in range(world.plan.nodes)
        }
        self._checksums: dict[int, int] = {}
        self._message_count = 0
        plan = world.plan
        self._note(
            "plan",
            format=FORMAT,
            scenario=plan.name,
            seed=world.seed,
            nodes=plan.nodes,
            plan=plan_text(plan),
        )

    def started(self, process: Process) -> None:
        self._names[process.machine] = process.name
        self._note("process-started", **_whose(process), node=process.number)

    def ended(self, process: Process) -> None:
        silent = self._world.network.is_silent(process.machine)
        self._note("process-ended", **_whose(process), node=process.number, silent=silent)

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        values = [(field.name, field.default) for field in fields(operation)]
        detail = {
            name: plain(value)
            for name, default in values
            if (value := getattr(operation, name)) != default
        }
        self._note("fault-began", **self._which(operation, nodes), detail=detail)

    def fault_ended(self, operation: Operation, nodes: Sequence[int]) -> None:
        self._note("fault-ended", **self._which(operation, nodes))

    def fact(self, process: Process, effect: Effect) -> None:
        record = record_of(effect)
        if record is None:
            return  # a call or an answer, not a fact
        if isinstance(effect, StatusChanged):
            record |= _besides(effect.after)
        self._note(record.pop("event"), **_whose(process), **record)
        self._look_at_checksum(process)

    def message(self, a: int, b: int, how: str, content: object, delays_us: Sequence[int]) -> None:
        self._message_count += 1
        if self._message_count > MESSAGES_MAX:
            return
        what, changes = _what(how, content)
        now = self._world.now
        line: Line = {"from": self._name(a), "to": self._name(b), "what": what, "changes": changes}
        self._note("message", **line, arrives=[seconds(now + delay) for delay in delays_us])

    def write(self, result: Result, file: TextIO) -> None:
        """Write all lines to *file*, with those of *result* last. Call this once."""
        if self._message_count > MESSAGES_MAX:
            self._note("messages-omitted", count=self._message_count - MESSAGES_MAX)
        for broken in result.broken:
            self._note(
                "invariant-broken",
                seconds(broken.at_us),
                invariant=broken.invariant,
                detail=broken.detail,
            )
        self._note("result", result=result.as_json())
        file.writelines(self._lines)

    def _look_at_checksum(self, process: Process) -> None:
        """Note a new checksum, once an instant: the list already has all changes of the instant."""
        members = process.node.members
        checksum = members.checksum
        if self._checksums.get(process.serial) == checksum:
            return
        self._checksums[process.serial] = checksum
        # As text, because many readers of JSON round numbers above 2**53.
        line: Line = {"checksum": f"{checksum & 0xFFFF_FFFF_FFFF_FFFF:x}"}
        if members.left_out:
            line["left_out"] = list(members.left_out)
        self._note("checksum", **_whose(process), **line)

    def _which(self, operation: Operation, nodes: Sequence[int]) -> Line:
        place = self._world.plan.operations.index(operation)
        return {"operation": operation.kind, "place": place, "nodes": list(nodes)}

    def _name(self, machine: int) -> str:
        return self._names.get(machine, "nobody")

    def _note(self, event: str, time_s: float | None = None, **rest: object) -> None:
        time_s = seconds(self._world.now) if time_s is None else time_s
        line = {"time": time_s, "event": event, **rest}
        self._lines.append(json.dumps(line, separators=(",", ":")) + "\n")


def _whose(process: Process) -> Line:
    return {
        "observer": process.name,
        "process": process.serial,
        "observer_address": str(process.address),
    }


def _besides(row: Member | None) -> Line:
    """Return what, beside its status, decides whether *row* owns keys."""
    return {name: True for name in ("damped", "draining") if row and getattr(row, name)}


def _what(how: str, content: object) -> tuple[str, int]:
    """Return the kind of a message, and how many changes it carries."""
    message: object = None
    if isinstance(content, OpenCall) and how == "arrive":
        message = content.request
    elif isinstance(content, tuple) and isinstance(content[0], OpenCall):
        message = content[1]
    if message is None:  # the end of a connection, or a message of the traffic
        return _PLAINLY.get(how, how), 0
    return type(message).__name__, len(getattr(message, "changes", ()))


_PLAINLY: Final = {"arrived": "request", "answered": "reply", "cut_off": "disconnected"}
