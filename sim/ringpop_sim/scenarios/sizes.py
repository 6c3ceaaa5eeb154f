"""Scenarios, and which nodes take part in them, for any number of nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_sim.plans.plan import Nodes, Plan

SHORT_LIVES: Final[tuple[tuple[str, float | int | bool], ...]] = (
    ("suspect_s", 1.0),
    ("suspect_factor", 2.0),
    ("faulty_s", 4.0),
    ("tombstone_s", 3.0),
)
"""Settings with which a faulty member is forgotten within seconds, not after a day."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Makes a plan for any number of nodes from *least* on, or for a number that suits it.

    The first line of the docstring of *make* says what the scenario shows.
    """

    least: int
    usual: int
    make: Callable[[int], Plan]

    @property
    def name(self) -> str:
        """The name by which users know it."""
        return self.make.__name__.replace("_", "-")

    def __call__(self, nodes: int | None = None) -> Plan:
        """Return the plan for *nodes*. Raises PlanError if these are too few."""
        count = self.usual if nodes is None else nodes
        if count < self.least:
            raise PlanError(f"this scenario needs {self.least} nodes or more, not {count}")
        return replace(self.make(count), name=self.name)


def for_nodes(least: int, usual: int) -> Callable[[Callable[[int], Plan]], Scenario]:
    """Make a scenario of the decorated function."""
    return partial(Scenario, least, usual)


def everybody(count: int) -> Nodes:
    """Return the numbers of *count* nodes."""
    return tuple(range(count))


def others(count: int, *but: int) -> Nodes:
    """Return the numbers of *count* nodes without those in *but*."""
    return tuple(node for node in range(count) if node not in but)
