"""How clusters start: storms of joins, islands, and wrong hosts lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringpop_sim.plans.plan import Discovery, Plan, Rumour, Start
from ringpop_sim.scenarios.sizes import at_least, everybody
from ringpop_sim.units import ms, s

STORMED: Final = ("converged_s <= 15", "deaths == 0", "views == 1")


def join_storm(nodes: int | None) -> Plan:
    """All nodes but three start together and join by three seeds: they soon are one cluster."""
    count = at_least(4, nodes, 67)
    late = everybody(count)[3:]
    return Plan(
        name="join-storm",
        nodes=count,
        seeds=3,
        until_us=40 * s,
        expect=STORMED,
        operations=(Start(at_us=10 * s, nodes=late),),
    )


def small_messages(nodes: int | None) -> Plan:
    """As join-storm, with eight changes a message at most: slower, but nothing is lost."""
    count = at_least(4, nodes, 40)
    return replace(
        join_storm(count), name="small-messages", settings=(("changes_max", 8),), expect=STORMED
    )


def growth(nodes: int | None) -> Plan:
    """Nodes start one after the other, and each knows one seed."""
    count = at_least(4, nodes, 12)
    late = everybody(count)[2:]
    return Plan(
        name="growth",
        nodes=count,
        seeds=1,
        until_us=10 * s + len(late) * 500 * ms + 20 * s,
        expect=("converged_s <= 15", "suspects == 0"),
        operations=(Start(at_us=10 * s, nodes=late, stagger_us=500 * ms),),
    )


def islands(nodes: int | None) -> Plan:
    """Two halves list only their own hosts, until one half learns the hosts of the other."""
    count = at_least(4, nodes, 10)
    half = count // 2
    left, right = tuple(range(half)), tuple(range(half, count))
    return Plan(
        name="islands",
        nodes=count,
        until_us=100 * s,
        expect=("views == 1", "deaths == 0", "converged_s <= 60"),
        operations=(
            Discovery(at_us=0, for_us=30 * s, nodes=left, listed=left),
            Discovery(at_us=0, nodes=right, listed=right),
        ),
    )


def islands_of_ringpop(nodes: int | None) -> Plan:
    """As islands, in the ringpop dialect, which reads the hosts again with each turn of healing."""
    count = at_least(4, nodes, 6)
    return replace(
        islands(count),
        name="islands-of-ringpop",
        dialect="ringpop",
        until_us=250 * s,
        expect=("views == 1", "deaths == 0", "converged_s <= 200"),
    )


def lying_discovery(nodes: int | None) -> Plan:
    """Hosts lists name one live node and twenty that never existed: one good seed is enough."""
    count = at_least(3, nodes, 8)
    return Plan(
        name="lying-discovery",
        nodes=count,
        until_us=60 * s,
        expect=("views == 1", "deaths == 0", f"running == {count}"),
        operations=(Discovery(at_us=0, nodes=everybody(count), listed=(0,), strangers=20),),
    )


def late_discovery(nodes: int | None) -> Plan:
    """The last half of the nodes first finds only strangers, and the others later."""
    count = at_least(4, nodes, 8)
    late = everybody(count)[count // 2 :]
    return Plan(
        name="late-discovery",
        nodes=count,
        until_us=90 * s,
        expect=("views == 1", "deaths == 0", "converged_s <= 60"),
        operations=(Discovery(at_us=0, for_us=20 * s, nodes=late, strangers=3),),
    )


def empty_discovery(nodes: int | None) -> Plan:
    """One node finds an empty hosts list and starts alone: the others list it and merge with it."""
    count = at_least(3, nodes, 8)
    return Plan(
        name="empty-discovery",
        nodes=count,
        until_us=60 * s,
        expect=("views == 1", "deaths == 0"),
        operations=(Discovery(at_us=0, nodes=(1,)),),
    )


def other_cluster(nodes: int | None) -> Plan:
    """A node of another cluster calls all and says that a member left: all ignore it."""
    count = at_least(3, nodes, 8)
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
        name="other-cluster",
        nodes=count,
        until_us=25 * s,
        expect=("deaths == 0", "left_out == 0", "refuted == 0"),
        operations=calls,
    )
