"""Network splits of every shape, short and long, at any time."""

from __future__ import annotations

from dataclasses import replace

from ringpop_sim.plans.plan import Crash, Cut, Discovery, Operation, Plan, Traffic
from ringpop_sim.scenarios.sizes import SHORT_LIVES, at_least, everybody, others
from ringpop_sim.units import minutes, s


def split(nodes: int | None) -> Plan:
    """The network splits into two halves, and is whole again a minute later."""
    count = at_least(2, nodes, 10)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=20 * s, for_us=1 * minutes, left=left, right=right)
    return Plan(
        name="split",
        nodes=count,
        until_us=200 * s,
        settle_us=90 * s,
        expect=("converged_s <= 60",),
        operations=(cut,),
    )


def one_way_cut(nodes: int | None) -> Plan:
    """Messages pass between two halves in one direction only."""
    count = at_least(2, nodes, 10)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=10 * s, for_us=30 * s, left=left, right=right, one_way=True)
    return _healed("one-way-cut", count, cut)


def bridge(nodes: int | None) -> Plan:
    """Two halves reach each other only through one node: no member stays faulty for long."""
    count = at_least(3, nodes, 9)
    half = (count - 1) // 2
    left, right = tuple(range(1, 1 + half)), tuple(range(1 + half, count))
    cut = Cut(at_us=10 * s, for_us=30 * s, left=left, right=right)
    return _healed("bridge", count, cut)


def bridge_gone(nodes: int | None) -> Plan:
    """As bridge, but the bridge loses power after the cut: the others detect that by themselves."""
    # With three nodes, only those that a helper's yes has concerned can find the dead bridge.
    plan = bridge(at_least(3, nodes, 3))
    return replace(
        plan,
        name="bridge-gone",
        until_us=110 * s,
        expect=("left_out 0 == 1",),
        operations=(*plan.operations, Crash(at_us=60 * s, nodes=(0,), silent=True)),
    )


def three_way_cut(nodes: int | None) -> Plan:
    """The network splits into three parts at the same time."""
    count = at_least(3, nodes, 9)
    third = count // 3
    parts = everybody(count)[:third], everybody(count)[third : 2 * third], range(2 * third, count)
    pairs = ((0, 1), (0, 2), (1, 2))
    cuts = (
        Cut(at_us=10 * s, for_us=40 * s, left=tuple(parts[a]), right=tuple(parts[b]))
        for a, b in pairs
    )
    return _healed("three-way-cut", count, *cuts)


def isolated(nodes: int | None) -> Plan:
    """One node is cut off for a minute and declared faulty; then it is a member again."""
    count = at_least(3, nodes, 10)
    cut = Cut(at_us=10 * s, for_us=60 * s, left=(1,), right=others(count, 1))
    return _healed("isolated", count, cut)


def flapping_cut(nodes: int | None) -> Plan:
    """The halves are cut apart for some seconds, again and again: short cuts make nobody faulty."""
    count = at_least(4, nodes, 8)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cuts = (Cut(at_us=at_s * s, for_us=3 * s, left=left, right=right) for at_s in range(10, 40, 6))
    return _healed("flapping-cut", count, *cuts)


def cut_at_start(nodes: int | None) -> Plan:
    """The halves are cut apart when all nodes start, so each becomes a cluster of its own."""
    count = at_least(4, nodes, 10)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    return _healed("cut-at-start", count, Cut(at_us=0, for_us=30 * s, left=left, right=right))


def long_cut(nodes: int | None) -> Plan:
    """A cut outlasts the memory of dead members; afterwards the halves still find each other."""
    count = at_least(4, nodes, 8)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=10 * s, for_us=50 * s, left=left, right=right)
    return _healed("long-cut", count, cut, settings=SHORT_LIVES)


def long_cut_of_islands(nodes: int | None) -> Plan:
    """As long-cut, and the hosts list of neither half names a host of the other any longer."""
    count = at_least(4, nodes, 8)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    return _healed(
        "long-cut-of-islands",
        count,
        Cut(at_us=10 * s, for_us=50 * s, left=left, right=right),
        Discovery(at_us=5 * s, for_us=200 * s, nodes=left, listed=left),
        Discovery(at_us=5 * s, for_us=200 * s, nodes=right, listed=right),
        settings=SHORT_LIVES,
    )


def firewall(nodes: int | None) -> Plan:
    """A firewall refuses calls of two nodes to half of the others: the rest vouch for those."""
    count = at_least(6, nodes, 8)
    cut = Cut(
        at_us=10 * s,
        for_us=30 * s,
        left=(1, 2),
        right=everybody(count)[count // 2 :],
        one_way=True,
        refuse=True,
    )
    return _healed("firewall", count, cut, expect=("deaths == 0",))


def cut_under_load(nodes: int | None) -> Plan:
    """Requests continue during a split: each ends once, and none fails after the heal."""
    count = at_least(4, nodes, 8)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=10 * s, for_us=30 * s, left=left, right=right)
    traffic = Traffic(keys_each=3, per_second=40, from_us=5 * s)
    return _healed("cut-under-load", count, cut, traffic=traffic)


def _healed(
    name: str,
    count: int,
    *operations: Operation,
    settings: tuple[tuple[str, float | int | bool], ...] = (),
    expect: tuple[str, ...] = (),
    traffic: Traffic | None = None,
) -> Plan:
    """Return a plan that ends when the sides must have merged."""
    whole_at = max(cut.over_at_us for cut in operations if isinstance(cut, Cut))
    return Plan(
        name=name,
        nodes=count,
        until_us=whole_at + 60 * s,
        settings=settings,
        traffic=traffic,
        expect=("converged_s <= 45", f"running == {count}", "views == 1", *expect),
        operations=operations,
    )
