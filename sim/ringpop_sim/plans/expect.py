"""What a plan expects of its run besides the invariants, as text: ``deaths 3-9 == 0``.

A measure, of which nodes (of all, if none are named), a relation and a number. It is looked at
once, when the plan has ended.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MEASURES: Final[dict[str, str]] = {
    "suspects": "how many of the nodes a probe ever found wanting",
    "deaths": "how many of the nodes anybody ever held for faulty",
    "refuted": "how many of the nodes ever refuted something",
    "damped": "how many of the nodes were ever damped",
    "joined": "how often processes of the nodes have become ready",
    "moved": "how many of the nodes were ever taken to be at another address than before",
    "left_out": "how many of the nodes are, in the end, in the ring of no other",
    "running": "how many of the nodes run in the end",
    "views": "how many different member lists the nodes have in the end",
    "syncs": "how often the nodes that run in the end have begun to compare their lists",
    "false_faulty": "how often a node that was left alone was declared faulty",
    "detected_s": "seconds from the first crash until all others knew",
    "converged_s": "seconds from the end of the last fault until all saw the same",
    "failed": "requests of the traffic without an answer",
    "answered": "requests of the traffic with one",
    "repeated": "requests of the traffic that ran more than once",
}
RELATIONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
}
_TEXT: Final = re.compile(r"(\w+)(?: ([\d,-]+))? (==|<=|>=) (\d+(?:\.\d+)?)")
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Expectation:
    """That *measure* of *nodes* (empty: of all) has that relation to *value*."""

    measure: str
    nodes: tuple[int, ...]
    relation: str
    value: float

    def holds(self, found: float | None) -> bool:
        """Whether *found* is as expected; what could not be measured never is."""
        return found is not None and RELATIONS[self.relation](found, self.value)

    def renumbered(self, number_of: Mapping[int, int]) -> Expectation | None:
        """The same of nodes under other numbers; None if one of them has none any more."""
        if any(node not in number_of for node in self.nodes):
            return None
        return replace(self, nodes=tuple(number_of[node] for node in self.nodes))

    def __str__(self) -> str:
        nodes = f" {','.join(map(str, self.nodes))}" if self.nodes else ""
        return f"{self.measure}{nodes} {self.relation} {self.value:g}"


def parse_expectation(text: str) -> Expectation:
    """The expectation that *text* says.

    Raises:
        PlanError: if it says none.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        message = f"it is like 'deaths 3-9 == 0', not {text!r}"
        raise PlanError(message)
    measure, nodes, relation, value = found.groups()
    if measure not in MEASURES:
        message = f"one expects {', '.join(MEASURES)}, not {measure!r}"
        raise PlanError(message)
    return Expectation(measure, _nodes(nodes) if nodes else (), relation, float(value))


def _nodes(text: str) -> tuple[int, ...]:
    nodes: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            message = f"nodes are like 0,3-9, not {text!r}"
            raise PlanError(message)
        first, last = int(found[1]), int(found[2] or found[1])
        nodes += range(first, last + 1)
    return tuple(nodes)
