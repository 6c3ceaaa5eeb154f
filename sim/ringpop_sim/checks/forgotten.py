"""L7: an evicted member leaves nothing behind; the whole state of a node is searched for it."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Member
from ringpop_sim.checks import Check
from ringpop_sim.units import s, seconds
from ringpop_sim.world.state import attributes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.node import Node
    from ringpop_sim.world.process import Process

LOOK_US: Final = 30 * s
"""A node is searched this long after an eviction: calls and probes open then have ended."""
LOOKS_MAX: Final = 200
NODES_MAX: Final = 128
"""In larger clusters no node is searched, because that would take too long."""
TIMERS_MIN: Final = 256
TIMERS_PER_MEMBER: Final = 16
ALLOWED: Final = {
    "_syncer._buckets": "the names of the last comparison, replaced by the next",
    "lost._addresses": "its address, to find a side again after a long cut; the number is limited",
    "_healer._aliases": "members that answered at another host's address; at most one per host",
    ".source": "the node that sent news of another member",
    "accusers": "the nodes that accuse another member",
}
"""Paths in a node's state at which an evicted name may remain, and what stands there."""


class EvictedForgotten(Check):
    """L7: no row, timer, change to gossip, score or anything else of an evicted member is left.

    Half a minute after an eviction, if the member has not come back, the whole node is searched
    for its name. In addition, the number of a node's timers is bounded by the number of members
    that it has ever had.

    Exempt: the places in `ALLOWED`, which are bounded.
    """

    invariants: ClassVar = ("L7",)

    def begin(self) -> None:
        self._looks_left = LOOKS_MAX if self.world.plan.nodes <= NODES_MAX else 0
        self._names: dict[Process, int] = {}
        self.world.push(LOOK_US, self._count_timers)

    def fact(self, process: Process, effect: Effect) -> None:
        if not isinstance(effect, fx.StatusChanged):
            return
        if effect.before is None:
            self._names[process] = self._names.get(process, 1) + 1  # 1: itself
        elif effect.after is None and self._looks_left:
            self._looks_left -= 1
            due = process, effect.before.name
            self.world.push(self.world.now + LOOK_US, self._look, due)

    def _look(self, evicted: tuple[Process, str]) -> None:
        process, name = evicted
        known = process.node.members.get(name) is not None
        if known or not process.running or self.world.left_alone_for_us(process) < LOOK_US:
            return
        places = places_of(process.node, name)
        if places:
            self.broke("L7", f"{process.name} evicted {name}, but for {', '.join(places[:3])}")

    def _count_timers(self, _argument: object) -> None:
        self.world.push(self.world.now + LOOK_US, self._count_timers)
        for process in self.world.at.values():
            node = process.node
            count = len(node._core.timers)  # noqa: SLF001 - no public view of the timers is needed
            # Generous, because the heap keeps cancelled timers until it has doubled (`Timers`).
            most = TIMERS_MIN + TIMERS_PER_MEMBER * max(
                self._names.get(process, 1), self.world.plan.nodes
            )
            if count > most:
                at_s = f"{seconds(self.world.now):.0f} s"
                self.broke("L7", f"{process.name} has {count} timers after {at_s}")


def places_of(node: Node, name: str) -> list[str]:
    """Return the paths in *node* at which *name* stands, except those that are `ALLOWED`."""
    found = []
    seen: set[int] = set()
    # Breadth first, so that the path that is reported is the shortest to that object.
    front: deque[tuple[str, Any]] = deque([("node", node)])
    while front:
        path, value = front.popleft()
        # Before *seen*: one text may stand at several places.
        if isinstance(value, str):
            if value == name and not any(allowed in path for allowed in ALLOWED):
                found.append(path)
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        front.extend(_parts(path, value))
    return found


def _parts(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of *value*, if it is a container or one of the product's own objects."""
    if isinstance(value, Member):
        yield f"{path}.name", value.name
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}[]", key
            yield f"{path}[]", item
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for item in value:
            yield f"{path}[]", item
    elif type(value).__module__.startswith("ringpop_py.") and not isinstance(value, Enum | type):
        for key, attribute in attributes_of(value):
            yield f"{path}.{key}", attribute
