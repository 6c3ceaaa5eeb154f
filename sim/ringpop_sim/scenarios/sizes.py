"""Who is in a scenario, whatever its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError

if TYPE_CHECKING:
    from ringpop_sim.plans.plan import Nodes

SHORT_LIVES: Final[tuple[tuple[str, float | int | bool], ...]] = (
    ("suspect_s", 1.0),
    ("suspect_factor", 2.0),
    ("faulty_s", 4.0),
    ("tombstone_s", 3.0),
)
"""Whoever is given up is forgotten seconds later, and not a day."""


def at_least(least: int, nodes: int | None, usual: int) -> int:
    """How many nodes a scenario has that needs *least*, and has *usual* if nobody says."""
    count = usual if nodes is None else nodes
    if count < least:
        message = f"this scenario needs {least} nodes or more, not {count}"
        raise PlanError(message)
    return count


def everybody(count: int) -> Nodes:
    """All of *count* nodes."""
    return tuple(range(count))


def others(count: int, *but: int) -> Nodes:
    """All of *count* nodes without those."""
    return tuple(node for node in range(count) if node not in but)
