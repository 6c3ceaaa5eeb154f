"""How clusters start: storms of joins, islands, and wrong hosts lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringpop_sim.plans.plan import Discovery, Plan, Rumour, Start
from ringpop_sim.scenarios.sizes import everybody, for_nodes
from ringpop_sim.units import ms, s

STORMED: Final = ("converged_s <= 15", "deaths == 0", "views == 1")


@for_nodes(4, usual=67)
def join_storm(count: int) -> Plan:
    """All nodes but three start together and join by three seeds: they soon are one cluster."""
    late = everybody(count)[3:]
    return Plan(
        nodes=count,
        seeds=3,
        until_us=40 * s,
        expect=STORMED,
        operations=(Start(at_us=10 * s, nodes=late),),
    )


@for_nodes(4, usual=40)
def small_messages(count: int) -> Plan:
    """As join-storm, with eight changes a message at most: slower, but nothing is lost."""
    return replace(join_storm(count), settings=(("changes_max", 8),), expect=STORMED)


@for_nodes(4, usual=12)
def growth(count: int) -> Plan:
    """Nodes start one after the other, and each knows one seed."""
    late = everybody(count)[2:]
    return Plan(
        nodes=count,
        seeds=1,
        until_us=10 * s + len(late) * 500 * ms + 20 * s,
        expect=("converged_s <= 15", "suspects == 0"),
        operations=(Start(at_us=10 * s, nodes=late, stagger_us=500 * ms),),
    )


@for_nodes(4, usual=10)
def islands(count: int) -> Plan:
    """Two halves list only their own hosts, until one half learns the hosts of the other."""
    half = count // 2
    left, right = tuple(range(half)), tuple(range(half, count))
    return Plan(
        nodes=count,
        until_us=100 * s,
        expect=("views == 1", "deaths == 0", "converged_s <= 60"),
        operations=(
            Discovery(at_us=0, for_us=30 * s, nodes=left, listed=left),
            Discovery(at_us=0, nodes=right, listed=right),
        ),
    )


@for_nodes(4, usual=6)
def islands_of_ringpop(count: int) -> Plan:
    """As islands, in the ringpop dialect, which reads the hosts again with each turn of healing."""
    return replace(
        islands(count),
        dialect="ringpop",
        until_us=250 * s,
        expect=("views == 1", "deaths == 0", "converged_s <= 200"),
    )


@for_nodes(3, usual=8)
def lying_discovery(count: int) -> Plan:
    """Hosts lists name one live node and twenty that never existed: one good seed is enough."""
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=("views == 1", "deaths == 0", f"running == {count}"),
        operations=(Discovery(at_us=0, nodes=everybody(count), listed=(0,), strangers=20),),
    )


@for_nodes(4, usual=8)
def late_discovery(count: int) -> Plan:
    """The last half of the nodes first finds only strangers, and the others later."""
    late = everybody(count)[count // 2 :]
    return Plan(
        nodes=count,
        until_us=90 * s,
        expect=("views == 1", "deaths == 0", "converged_s <= 60"),
        operations=(Discovery(at_us=0, for_us=20 * s, nodes=late, strangers=3),),
    )


@for_nodes(3, usual=8)
def empty_discovery(count: int) -> Plan:
    """One node finds an empty hosts list and starts alone: the others list it and merge with it."""
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=("views == 1", "deaths == 0"),
        operations=(Discovery(at_us=0, nodes=(1,)),),
    )


@for_nodes(3, usual=8)
def other_cluster(count: int) -> Plan:
    """A node of another cluster calls all and says that a member left: all ignore it."""
    calls = tuple(
        Rumour(
            at_us=at_us,
            nodes=tuple(node for node in range(count) if node != 1),
            about=1,
            status=status,
            cluster="another",
        )
        for at_us, status in ((10 * s, "faulty"), (12 * s, "leave"), (14 * s, "suspect"))
    )
    return Plan(
        nodes=count,
        until_us=25 * s,
        expect=("deaths == 0", "left_out == 0", "refuted == 0"),
        operations=calls,
    )
