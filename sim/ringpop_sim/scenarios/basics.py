"""The first scenarios: a cluster at rest, a crash, a split, and nothing but requests."""

from __future__ import annotations

from ringpop_sim.plans.plan import Crash, Cut, Plan, Traffic
from ringpop_sim.scenarios.sizes import for_nodes
from ringpop_sim.units import minutes, s


@for_nodes(1, usual=20)
def steady(count: int) -> Plan:
    """Nothing happens to a cluster that has converged: no suspicions, one view."""
    return Plan(
        nodes=count,
        until_us=2 * minutes,
        # A node that runs alone is in no other ring, so it counts as left out.
        expect=("suspects == 0", "views == 1", "left_out == 0" if count > 1 else "running == 1"),
    )


@for_nodes(2, usual=10)
def crash(count: int) -> Plan:
    """One node dies and stays away: the others take over its keys."""
    return Plan(
        nodes=count,
        until_us=90 * s,
        # Refused connections are evidence, so a suspicion takes half a second (decision 12).
        expect=("detected_s <= 1", "left_out 1 == 1", "false_faulty == 0"),
        operations=(Crash(at_us=20 * s, nodes=(1,)),),
    )


@for_nodes(2, usual=10)
def split(count: int) -> Plan:
    """The network splits into two halves, and is whole again a minute later."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=20 * s, for_us=1 * minutes, left=left, right=right)
    return Plan(
        nodes=count,
        until_us=200 * s,
        settle_us=90 * s,
        expect=("converged_s <= 60",),
        operations=(cut,),
    )


@for_nodes(1, usual=5)
def load(count: int) -> Plan:
    """Only requests happen: each runs once, at the owner of its key."""
    return Plan(
        nodes=count,
        until_us=40 * s,
        traffic=Traffic(per_second=100, from_us=10 * s),
        expect=("failed == 0", "repeated == 0", "suspects == 0"),
    )
