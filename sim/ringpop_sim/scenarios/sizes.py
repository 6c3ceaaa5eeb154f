"""Scenarios, and which nodes take part in them, for any number of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.plan import Cut, Nodes, Operation, Plan

Make = Callable[[int], Plan | Iterable[Operation]]

SHORT_LIVES: Final[tuple[tuple[str, float | int | bool], ...]] = (
    ("suspect_s", 1.0),
    ("suspect_factor", 2.0),
    ("faulty_s", 4.0),
    ("tombstone_s", 3.0),
)
"""Settings with which a faulty member is forgotten within seconds, not after a day."""
ALL_RUN: Final = "running == {n}"
ONE_VIEW: Final = "views == 1"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Makes a plan for any number of nodes from *least* on, or for a number that suits it.

    Attributes:
        make: returns the operations for a number of nodes, or a whole plan; the first line of its
            docstring says what the scenario shows.
        after_us: how long the plan lasts after its last fault, if it does not say until when.
        expect: what must be true at the end, where ``{n}`` is the number of nodes, and
            ``{last}`` the last of them.
        rest: other attributes of the plan.
    """

    least: int
    usual: int
    after_us: int
    expect: tuple[str, ...]
    rest: dict[str, Any]
    make: Make

    @property
    def name(self) -> str:
        """The name by which users know it."""
        return self.make.__name__.replace("_", "-")

    def __call__(self, nodes: int | None = None) -> Plan:
        """Return the plan for *nodes*. Raises PlanError if these are too few."""
        count = self.usual if nodes is None else nodes
        if count < self.least:
            raise PlanError(f"this scenario needs {self.least} nodes or more, not {count}")
        made = self.make(count)
        if isinstance(made, Plan):
            return replace(made, name=self.name)
        operations = tuple(made)
        quiet_at_us = max((each.over_at_us for each in operations), default=0)
        given = {"until_us": quiet_at_us + self.after_us, **self.rest}
        expect = tuple(text.format(n=count, last=count - 1) for text in self.expect)
        return Plan(name=self.name, nodes=count, expect=expect, operations=operations, **given)


def for_nodes(
    least: int, usual: int, *, after_us: int = 0, expect: tuple[str, ...] = (), **rest: object
) -> Callable[[Make], Scenario]:
    """Make a scenario of the decorated function."""
    return partial(Scenario, least, usual, after_us, expect, rest)


def everybody(count: int) -> Nodes:
    """Return the numbers of *count* nodes."""
    return tuple(range(count))


def others(count: int, *but: int) -> Nodes:
    """Return the numbers of *count* nodes without those in *but*."""
    return tuple(node for node in range(count) if node not in but)


def halves(count: int) -> tuple[Nodes, Nodes]:
    """Return the first half of the numbers of *count* nodes, and the second."""
    return everybody(count)[: count // 2], everybody(count)[count // 2 :]


def cut_in_halves(count: int, at_us: int, for_us: int, **how: bool) -> Cut:
    """Return a cut between the two halves of *count* nodes."""
    left, right = halves(count)
    return Cut(at_us=at_us, for_us=for_us, left=left, right=right, **how)
