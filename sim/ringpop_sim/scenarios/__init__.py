"""Scenarios by name: useful plans, for almost any number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError
from ringpop_sim.scenarios import (
    basics,
    cuts,
    ends,
    keyspaces,
    links,
    names,
    returns,
    shuffles,
    slowness,
    starts,
)
from ringpop_sim.scenarios.sizes import Scenario

if TYPE_CHECKING:
    from ringpop_sim.plans.plan import Plan

_ALL: Final = (basics, cuts, ends, names, returns, starts, slowness, links, keyspaces, shuffles)

SCENARIOS: Final[dict[str, Scenario]] = {
    found.name: found
    for module in _ALL
    for found in vars(module).values()
    if isinstance(found, Scenario)
}
"""In the order in which they are shown, which is that of the modules."""


def scenario(name: str, nodes: int | None = None) -> Plan:
    """Return the plan of the scenario *name*. Raises PlanError."""
    make = SCENARIOS.get(name)
    if make is None:
        raise PlanError(f"there is no scenario {name!r}; there is {', '.join(SCENARIOS)}")
    return make(nodes)


def about(name: str) -> str:
    """Return one line that says what the scenario *name* shows."""
    return (SCENARIOS[name].make.__doc__ or "").strip().splitlines()[0]
