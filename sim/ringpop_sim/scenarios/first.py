"""The first three: nothing happens, one node dies, the network splits."""

from __future__ import annotations

from ringpop_sim.errors import PlanError
from ringpop_sim.plan import Crash, Cut, Plan, Traffic
from ringpop_sim.units import minutes, s


def steady(nodes: int | None) -> Plan:
    """Nothing happens to a cluster that has found itself."""
    return Plan(name="steady", nodes=nodes or 20, until_us=2 * minutes)


def crash(nodes: int | None) -> Plan:
    """One node dies under load and stays away; the others take its keys over."""
    return Plan(
        name="crash",
        nodes=_at_least(2, nodes or 10),
        until_us=90 * s,
        traffic=Traffic(per_second=50, from_us=5 * s),
        operations=(Crash(at_us=20 * s, nodes=(1,)),),
    )


def split(nodes: int | None) -> Plan:
    """The network falls into two halves, and is whole again a minute later."""
    count = _at_least(2, nodes or 10)
    left, right = tuple(range(count // 2)), tuple(range(count // 2, count))
    cut = Cut(at_us=20 * s, for_us=1 * minutes, left=left, right=right)
    return Plan(name="split", nodes=count, until_us=200 * s, settle_us=90 * s, operations=(cut,))


def _at_least(count: int, nodes: int) -> int:
    if nodes < count:
        message = f"this scenario needs {count} nodes or more, not {nodes}"
        raise PlanError(message)
    return nodes
