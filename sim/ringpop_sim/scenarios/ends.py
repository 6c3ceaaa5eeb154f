"""Processes that end, alone or many at a time, in order or not."""

from __future__ import annotations

from ringpop_sim.plans.plan import Crash, Operation, Plan, Stop, Takeover, Traffic
from ringpop_sim.scenarios.sizes import ALL_RUN, ONE_VIEW, SHORT_LIVES, everybody, for_nodes
from ringpop_sim.units import ms, s


@for_nodes(6, usual=9)
def power_loss(count: int) -> Plan:
    """A third of the nodes loses power at the same time: no connection is refused or closed."""
    gone = everybody(count)[-(count // 3) :]
    return Plan(
        nodes=count,
        until_us=80 * s,
        expect=(f"left_out {gone[0]}-{gone[-1]} == {len(gone)}", f"deaths 0-{gone[0] - 1} == 0"),
        operations=(Crash(at_us=10 * s, nodes=gone, silent=True),),
    )


@for_nodes(
    4,
    usual=8,
    after_us=15 * s,
    traffic=Traffic(per_second=40, from_us=5 * s),
    expect=("failed == 0", "deaths == 0", "converged_s <= 10", ALL_RUN),
)
def rolling_restart(count: int) -> list[Operation]:
    """All nodes are restarted one by one: no request fails, and no node is declared faulty."""
    # Each is back before the next one stops, as a careful operator does it.
    return [Stop(at_us=10 * s, for_us=2 * s, nodes=everybody(count), stagger_us=3 * s)]


@for_nodes(4, usual=20)
def scale_down(count: int) -> Plan:
    """Half of the nodes leaves within a second: none of them is declared faulty."""
    leaving = everybody(count)[count // 2 :]
    left_out = f"left_out {leaving[0]}-{count - 1} == {len(leaving)}"
    return Plan(
        nodes=count,
        until_us=40 * s,
        expect=("deaths == 0", left_out, "views <= 1"),
        operations=(Stop(at_us=10 * s, nodes=leaving, stagger_us=1 * s // len(leaving)),),
    )


@for_nodes(2, usual=10, until_us=60 * s, expect=("converged_s <= 20", ALL_RUN))
def cluster_restart(count: int) -> list[Operation]:
    """All nodes are killed at the same time and restarted at slightly different times."""
    downs_us = (2 * s + node * 200 * ms for node in range(count))
    return [Crash(at_us=10 * s, for_us=us, nodes=(node,)) for node, us in enumerate(downs_us)]


@for_nodes(4, usual=8, seeds=2, until_us=70 * s, expect=("converged_s <= 45", ONE_VIEW))
def seeds_restart(_count: int) -> list[Operation]:
    """Two seeds that list only each other restart at the same time: they do not stay an island."""
    return [Crash(at_us=10 * s, for_us=1 * s, nodes=(0, 1))]


@for_nodes(
    4,
    usual=8,
    seeds=2,
    until_us=110 * s,
    settings=SHORT_LIVES,
    expect=("converged_s <= 45", ONE_VIEW),
)
def seeds_replaced(_count: int) -> list[Operation]:
    """The seeds stay away until they are forgotten; they come back and are found."""
    return [Crash(at_us=10 * s, for_us=40 * s, nodes=(0, 1))]


@for_nodes(3, usual=8, until_us=80 * s, expect=("converged_s <= 50", ONE_VIEW))
def takeover(_count: int) -> list[Operation]:
    """A process with a new name takes a killed one's address: the old name is declared faulty."""
    return [Takeover(at_us=10 * s, about=1)]
