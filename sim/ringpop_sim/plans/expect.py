"""Expectations of a plan for its run beside the invariants, as text: ``deaths 3-9 == 0``.

An expectation is a measure, its nodes (all, if none are named), a relation and a number. It is
compared once, when the plan has ended.
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
    "suspects": "how many of the nodes were ever suspected because of a probe",
    "deaths": "how many of the nodes were ever declared faulty",
    "refuted": "how many of the nodes ever refuted an accusation",
    "damped": "how many of the nodes were ever damped",
    "joined": "how often processes of the nodes have become ready",
    "moved": "how many of the nodes were ever believed to have another address than before",
    "left_out": "how many of the nodes are in the ring of no other at the end",
    "running": "how many of the nodes run at the end",
    "views": "how many different member lists the nodes have at the end",
    "syncs": "how often the nodes that run at the end have begun to compare their lists",
    "false_faulty": "how often a node that was left alone was declared faulty",
    "detected_s": "seconds from the first crash until all others knew",
    "converged_s": "seconds from the end of the last fault until all nodes agreed",
    "failed": "how many requests of the traffic got no answer",
    "answered": "how many requests of the traffic got an answer",
    "repeated": "how many requests of the traffic ran more than once",
}
RELATIONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
}
_TEXT: Final = re.compile(r"(\w+)(?: ([\d,-]+))? (==|<=|>=) (\d+(?:\.\d+)?)")
# Six digits at most, because a range is written out: one of billions would fill the memory.
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectation that *measure* of *nodes* (all if empty) has that relation to *value*."""

    measure: str
    nodes: tuple[int, ...]
    relation: str
    value: float

    def holds(self, found: float | None) -> bool:
        """Return whether *found* is as expected; a value that could not be measured never is."""
        return found is not None and RELATIONS[self.relation](found, self.value)

    def renumbered(self, number_of: Mapping[int, int]) -> Expectation | None:
        """Return the same for renumbered nodes; None if one of them has no new number."""
        if any(node not in number_of for node in self.nodes):
            return None
        return replace(self, nodes=tuple(number_of[node] for node in self.nodes))

    def __str__(self) -> str:
        nodes = f" {','.join(map(str, self.nodes))}" if self.nodes else ""
        return f"{self.measure}{nodes} {self.relation} {self.value:g}"


def parse_expectation(text: str) -> Expectation:
    """Return the expectation in *text*.

    Raises:
        PlanError: *text* is not an expectation.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise PlanError(f"an expectation has the form 'deaths 3-9 == 0', not {text!r}")
    measure, nodes, relation, value = found.groups()
    if measure not in MEASURES:
        raise PlanError(f"the measure must be one of {', '.join(MEASURES)}, not {measure!r}")
    return Expectation(measure, _nodes(nodes) if nodes else (), relation, float(value))


def _nodes(text: str) -> tuple[int, ...]:
    nodes: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise PlanError(f"nodes have the form 0,3-9, not {text!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        nodes += range(first, last + 1)
    return tuple(nodes)
