"""Network splits of every shape, short and long, at any time."""

from __future__ import annotations

from dataclasses import replace

from ringpop_sim.plans.plan import Crash, Cut, Discovery, Operation, Plan, Traffic
from ringpop_sim.scenarios.sizes import SHORT_LIVES, everybody, for_nodes, others
from ringpop_sim.units import s


@for_nodes(2, usual=10)
def one_way_cut(count: int) -> Plan:
    """Messages pass between two halves in one direction only."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=10 * s, for_us=30 * s, left=left, right=right, one_way=True)
    return _healed(count, cut)


@for_nodes(3, usual=9)
def bridge(count: int) -> Plan:
    """Two halves reach each other only through one node: no member stays faulty for long."""
    half = (count - 1) // 2
    left, right = tuple(range(1, 1 + half)), tuple(range(1 + half, count))
    cut = Cut(at_us=10 * s, for_us=30 * s, left=left, right=right)
    return _healed(count, cut)


@for_nodes(3, usual=3)
def bridge_gone(count: int) -> Plan:
    """As bridge, but the bridge loses power after the cut: the others detect that by themselves."""
    # With three nodes, only those that a helper's yes has concerned can find the dead bridge.
    plan = bridge(count)
    return replace(
        plan,
        until_us=110 * s,
        expect=("left_out 0 == 1",),
        operations=(*plan.operations, Crash(at_us=60 * s, nodes=(0,), silent=True)),
    )


@for_nodes(3, usual=9)
def three_way_cut(count: int) -> Plan:
    """The network splits into three parts at the same time."""
    third = count // 3
    parts = everybody(count)[:third], everybody(count)[third : 2 * third], range(2 * third, count)
    pairs = ((0, 1), (0, 2), (1, 2))
    cuts = (
        Cut(at_us=10 * s, for_us=40 * s, left=tuple(parts[a]), right=tuple(parts[b]))
        for a, b in pairs
    )
    return _healed(count, *cuts)


@for_nodes(3, usual=10)
def isolated(count: int) -> Plan:
    """One node is cut off for a minute and declared faulty; then it is a member again."""
    cut = Cut(at_us=10 * s, for_us=60 * s, left=(1,), right=others(count, 1))
    return _healed(count, cut)


@for_nodes(4, usual=8)
def flapping_cut(count: int) -> Plan:
    """The halves are cut apart for some seconds, again and again: short cuts make nobody faulty."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cuts = (Cut(at_us=at_s * s, for_us=3 * s, left=left, right=right) for at_s in range(10, 40, 6))
    return _healed(count, *cuts)


@for_nodes(4, usual=10)
def cut_at_start(count: int) -> Plan:
    """The halves are cut apart when all nodes start, so each becomes a cluster of its own."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    return _healed(count, Cut(at_us=0, for_us=30 * s, left=left, right=right))


@for_nodes(4, usual=8)
def long_cut(count: int) -> Plan:
    """A cut outlasts the memory of dead members; afterwards the halves still find each other."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=10 * s, for_us=50 * s, left=left, right=right)
    return _healed(count, cut, settings=SHORT_LIVES)


@for_nodes(4, usual=8)
def long_cut_of_islands(count: int) -> Plan:
    """As long-cut, and the hosts list of neither half names a host of the other any longer."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    return _healed(
        count,
        Cut(at_us=10 * s, for_us=50 * s, left=left, right=right),
        Discovery(at_us=5 * s, for_us=200 * s, nodes=left, listed=left),
        Discovery(at_us=5 * s, for_us=200 * s, nodes=right, listed=right),
        settings=SHORT_LIVES,
    )


@for_nodes(6, usual=8)
def firewall(count: int) -> Plan:
    """A firewall refuses calls of two nodes to half of the others: the rest vouch for those."""
    cut = Cut(
        at_us=10 * s,
        for_us=30 * s,
        left=(1, 2),
        right=everybody(count)[count // 2 :],
        one_way=True,
        refuse=True,
    )
    return _healed(count, cut, expect=("deaths == 0",))


@for_nodes(4, usual=6)
def cut_under_load(count: int) -> Plan:
    """Requests continue during a split: each ends once, and none fails after the heal."""
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=10 * s, for_us=30 * s, left=left, right=right)
    traffic = Traffic(keys_each=3, per_second=40, from_us=5 * s)
    return _healed(count, cut, traffic=traffic)


def _healed(
    count: int,
    *operations: Operation,
    settings: tuple[tuple[str, float | int | bool], ...] = (),
    expect: tuple[str, ...] = (),
    traffic: Traffic | None = None,
) -> Plan:
    """Return a plan that ends when the sides must have merged."""
    whole_at = max(cut.over_at_us for cut in operations if isinstance(cut, Cut))
    return Plan(
        nodes=count,
        until_us=whole_at + 60 * s,
        settings=settings,
        traffic=traffic,
        expect=("converged_s <= 45", f"running == {count}", "views == 1", *expect),
        operations=operations,
    )
