"""The first scenarios: a cluster at rest, a crash, a split, and nothing but requests."""

from __future__ import annotations

from ringpop_sim.plans.plan import Crash, Operation, Plan, Traffic
from ringpop_sim.scenarios.sizes import ONE_VIEW, cut_in_halves, for_nodes
from ringpop_sim.units import minutes, s


@for_nodes(1, usual=20)
def steady(count: int) -> Plan:
    """Nothing happens to a cluster that has converged: no suspicions, one view."""
    # A node that runs alone is in no other ring, so it counts as left out.
    in_ring = "left_out == 0" if count > 1 else "running == 1"
    return Plan(nodes=count, until_us=2 * minutes, expect=("suspects == 0", ONE_VIEW, in_ring))


@for_nodes(
    2,
    usual=10,
    until_us=90 * s,
    # Refused connections are evidence, so a suspicion takes half a second (decision 12).
    expect=("detected_s <= 1", "left_out 1 == 1", "false_faulty == 0"),
)
def crash(_count: int) -> list[Operation]:
    """One node dies and stays away: the others take over its keys."""
    return [Crash(at_us=20 * s, nodes=(1,))]


@for_nodes(2, usual=10, until_us=200 * s, settle_us=90 * s, expect=("converged_s <= 60",))
def split(count: int) -> list[Operation]:
    """The network splits into two halves, and is whole again a minute later."""
    return [cut_in_halves(count, 20 * s, 1 * minutes)]


@for_nodes(
    1,
    usual=5,
    until_us=40 * s,
    traffic=Traffic(per_second=100, from_us=10 * s),
    expect=("failed == 0", "repeated == 0", "suspects == 0"),
)
def load(_count: int) -> list[Operation]:
    """Only requests happen: each runs once, at the owner of its key."""
    return []
