"""Network splits of every shape, short and long, at any time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations

from ringpop_sim.plans.plan import Crash, Cut, Discovery, Operation, Plan, Traffic
from ringpop_sim.scenarios.sizes import (
    ALL_RUN,
    ONE_VIEW,
    SHORT_LIVES,
    cut_in_halves,
    everybody,
    for_nodes,
    halves,
    others,
)
from ringpop_sim.units import s

HEALED = ("converged_s <= 45", ALL_RUN, ONE_VIEW)
healed = partial(for_nodes, after_us=60 * s, expect=HEALED)
"""Makes a scenario that ends when the sides must have merged."""


@healed(2, usual=10)
def one_way_cut(count: int) -> list[Operation]:
    """Messages pass between two halves in one direction only."""
    return [cut_in_halves(count, 10 * s, 30 * s, one_way=True)]


@healed(3, usual=9)
def bridge(count: int) -> list[Operation]:
    """Two halves reach each other only through one node: no member stays faulty for long."""
    half = (count - 1) // 2
    left, right = tuple(range(1, 1 + half)), tuple(range(1 + half, count))
    return [Cut(at_us=10 * s, for_us=30 * s, left=left, right=right)]


@for_nodes(3, usual=3)
def bridge_gone(count: int) -> Plan:
    """As bridge, but the bridge loses power after the cut: the others detect that by themselves."""
    # With three nodes, only those that a helper's yes has concerned can find the dead bridge.
    plan = bridge(count)
    dies = Crash(at_us=60 * s, nodes=(0,), silent=True)
    operations = (*plan.operations, dies)
    return replace(plan, until_us=110 * s, expect=("left_out 0 == 1",), operations=operations)


@healed(3, usual=9)
def three_way_cut(count: int) -> list[Operation]:
    """The network splits into three parts at the same time."""
    third, nodes = count // 3, everybody(count)
    parts = nodes[:third], nodes[third : 2 * third], nodes[2 * third :]
    pairs = combinations(parts, 2)
    return [Cut(at_us=10 * s, for_us=40 * s, left=left, right=right) for left, right in pairs]


@healed(3, usual=10)
def isolated(count: int) -> list[Operation]:
    """One node is cut off for a minute and declared faulty; then it is a member again."""
    return [Cut(at_us=10 * s, for_us=60 * s, left=(1,), right=others(count, 1))]


@healed(4, usual=8)
def flapping_cut(count: int) -> list[Operation]:
    """The halves are cut apart for some seconds, again and again: short cuts make nobody faulty."""
    return [cut_in_halves(count, at_s * s, 3 * s) for at_s in range(10, 40, 6)]


@healed(4, usual=10)
def cut_at_start(count: int) -> list[Operation]:
    """The halves are cut apart when all nodes start, so each becomes a cluster of its own."""
    return [cut_in_halves(count, 0, 30 * s)]


@healed(4, usual=8, settings=SHORT_LIVES)
def long_cut(count: int) -> list[Operation]:
    """A cut outlasts the memory of dead members; afterwards the halves still find each other."""
    return [cut_in_halves(count, 10 * s, 50 * s)]


@healed(4, usual=8, settings=SHORT_LIVES, until_us=120 * s)
def long_cut_of_islands(count: int) -> list[Operation]:
    """As long-cut, and the hosts list of neither half names a host of the other any longer."""
    lists = (Discovery(at_us=5 * s, for_us=200 * s, nodes=o, listed=o) for o in halves(count))
    return [cut_in_halves(count, 10 * s, 50 * s), *lists]


@healed(6, usual=8, expect=(*HEALED, "deaths == 0"))
def firewall(count: int) -> list[Operation]:
    """A firewall refuses calls of two nodes to half of the others: the rest vouch for those."""
    _, half = halves(count)
    cut = Cut(at_us=10 * s, for_us=30 * s, left=(1, 2), right=half, one_way=True, refuse=True)
    return [cut]


@healed(4, usual=6, traffic=Traffic(keys_each=3, per_second=40, from_us=5 * s))
def cut_under_load(count: int) -> list[Operation]:
    """Requests continue during a split: each ends once, and none fails after the heal."""
    return [cut_in_halves(count, 10 * s, 30 * s)]
