"""How clusters start: storms of joins, islands, and wrong hosts lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringpop_sim.plans.plan import Discovery, Operation, Plan, Rumour, Start
from ringpop_sim.scenarios.sizes import ALL_RUN, ONE_VIEW, everybody, for_nodes, halves, others
from ringpop_sim.units import ms, s

STORMED: Final = ("converged_s <= 15", "deaths == 0", ONE_VIEW)


@for_nodes(4, usual=67, seeds=3, until_us=40 * s, expect=STORMED)
def join_storm(count: int) -> list[Operation]:
    """All nodes but three start together and join by three seeds: they soon are one cluster."""
    return [Start(at_us=10 * s, nodes=everybody(count)[3:])]


@for_nodes(4, usual=40)
def small_messages(count: int) -> Plan:
    """As join-storm, with eight changes a message at most: slower, but nothing is lost."""
    return replace(join_storm(count), settings=(("changes_max", 8),), expect=STORMED)


@for_nodes(
    4, usual=12, seeds=1, after_us=20_500 * ms, expect=("converged_s <= 15", "suspects == 0")
)
def growth(count: int) -> list[Operation]:
    """Nodes start one after the other, and each knows one seed."""
    return [Start(at_us=10 * s, nodes=everybody(count)[2:], stagger_us=500 * ms)]


@for_nodes(4, usual=10, until_us=100 * s, expect=(ONE_VIEW, "deaths == 0", "converged_s <= 60"))
def islands(count: int) -> list[Operation]:
    """Two halves list only their own hosts, until one half learns the hosts of the other."""
    left, right = halves(count)
    return [
        Discovery(at_us=0, for_us=30 * s, nodes=left, listed=left),
        Discovery(at_us=0, nodes=right, listed=right),
    ]


@for_nodes(4, usual=6)
def islands_of_ringpop(count: int) -> Plan:
    """As islands, in the ringpop dialect, which reads the hosts again with each turn of healing."""
    expect = (ONE_VIEW, "deaths == 0", "converged_s <= 200")
    return replace(islands(count), dialect="ringpop", until_us=250 * s, expect=expect)


@for_nodes(3, usual=8, until_us=60 * s, expect=(ONE_VIEW, "deaths == 0", ALL_RUN))
def lying_discovery(count: int) -> list[Operation]:
    """Hosts lists name one live node and twenty that never existed: one good seed is enough."""
    return [Discovery(at_us=0, nodes=everybody(count), listed=(0,), strangers=20)]


@for_nodes(4, usual=8, until_us=90 * s, expect=(ONE_VIEW, "deaths == 0", "converged_s <= 60"))
def late_discovery(count: int) -> list[Operation]:
    """The last half of the nodes first finds only strangers, and the others later."""
    _, late = halves(count)
    return [Discovery(at_us=0, for_us=20 * s, nodes=late, strangers=3)]


@for_nodes(3, usual=8, until_us=60 * s, expect=(ONE_VIEW, "deaths == 0"))
def empty_discovery(_count: int) -> list[Operation]:
    """One node finds an empty hosts list and starts alone: the others list it and merge with it."""
    return [Discovery(at_us=0, nodes=(1,))]


@for_nodes(3, usual=8, until_us=25 * s, expect=("deaths == 0", "left_out == 0", "refuted == 0"))
def other_cluster(count: int) -> list[Operation]:
    """A node of another cluster calls all and says that a member left: all ignore it."""
    told, statuses = others(count, 1), ((10 * s, "faulty"), (12 * s, "leave"), (14 * s, "suspect"))
    return [
        Rumour(at_us=at_us, nodes=told, about=1, status=status, cluster="another")
        for at_us, status in statuses
    ]
