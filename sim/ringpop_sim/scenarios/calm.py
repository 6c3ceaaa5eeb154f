"""Scenarios without faults: what a cluster at rest must not do."""

from __future__ import annotations

from ringpop_sim.plans.plan import Plan, Traffic
from ringpop_sim.scenarios.sizes import at_least
from ringpop_sim.units import minutes, s


def steady(nodes: int | None) -> Plan:
    """Nothing happens to a cluster that has converged: no suspicions, one view."""
    count = at_least(1, nodes, 20)
    return Plan(
        name="steady",
        nodes=count,
        until_us=2 * minutes,
        # A node that runs alone is in no other ring, so it counts as left out.
        expect=("suspects == 0", "views == 1", "left_out == 0" if count > 1 else "running == 1"),
    )


def load(nodes: int | None) -> Plan:
    """Only requests happen: each runs once, at the owner of its key."""
    count = at_least(1, nodes, 10)
    return Plan(
        name="load",
        nodes=count,
        until_us=40 * s,
        traffic=Traffic(per_second=100, from_us=10 * s),
        expect=("failed == 0", "repeated == 0", "suspects == 0"),
    )
