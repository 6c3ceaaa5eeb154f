"""Scenarios by name: plans that are worth knowing, for as many nodes as one likes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError
from ringpop_sim.scenarios.first import crash, split, steady

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_sim.plan import Plan

SCENARIOS: Final[dict[str, Callable[[int | None], Plan]]] = {
    "steady": steady,
    "crash": crash,
    "split": split,
}
"""Each makes a plan for so many nodes, or for as many as suit it; the first line of its docstring
says what it shows."""


def scenario(name: str, nodes: int | None = None) -> Plan:
    """The plan of the scenario *name*. Raises PlanError."""
    make = SCENARIOS.get(name)
    if make is None:
        message = f"there is no scenario {name!r}; there is {', '.join(SCENARIOS)}"
        raise PlanError(message)
    return make(nodes)


def about(name: str) -> str:
    """What the scenario *name* shows, in one line."""
    return (SCENARIOS[name].__doc__ or "").strip().splitlines()[0]
