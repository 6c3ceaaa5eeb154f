"""Which nodes take part in a scenario, for any number of nodes."""

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
"""Settings with which a faulty member is forgotten within seconds, not after a day."""


def at_least(least: int, nodes: int | None, usual: int) -> int:
    """Return *nodes*, or *usual* if it is None. Raises PlanError for fewer than *least*."""
    count = usual if nodes is None else nodes
    if count < least:
        raise PlanError(f"this scenario needs {least} nodes or more, not {count}")
    return count


def everybody(count: int) -> Nodes:
    """Return the numbers of *count* nodes."""
    return tuple(range(count))


def others(count: int, *but: int) -> Nodes:
    """Return the numbers of *count* nodes without those in *but*."""
    return tuple(node for node in range(count) if node not in but)
