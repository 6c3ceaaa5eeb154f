"""Nodes that are slow, pause, or restart often, or whose application is away: none is faulty."""

from __future__ import annotations

from dataclasses import replace

from ringpop_sim.plans.plan import Away, Clock, Crash, Cut, Pause, Plan, Rumour, Slow, Start
from ringpop_sim.scenarios.sizes import everybody, for_nodes, others
from ringpop_sim.units import minutes, ms, s


@for_nodes(4, usual=30)
def paused(count: int) -> Plan:
    """A quarter of the nodes pauses for 20 s: no other is declared faulty."""
    asleep = everybody(count // 4)
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=(
            f"deaths {len(asleep)}-{count - 1} == 0",
            "converged_s <= 25",
            f"running == {count}",
        ),
        operations=(Pause(at_us=10 * s, for_us=20 * s, nodes=asleep),),
    )


@for_nodes(4, usual=8)
def paused_shortly(count: int) -> Plan:
    """One node after the other pauses for 1 s: none is declared faulty."""
    pauses = tuple(
        Pause(at_us=(10 + 4 * node) * s, for_us=1 * s, nodes=(node,)) for node in range(count)
    )
    return Plan(
        nodes=count,
        until_us=(30 + 4 * count) * s,
        expect=("deaths == 0", "converged_s <= 10"),
        operations=pauses,
    )


@for_nodes(8, usual=16)
def paused_while_growing(count: int) -> Plan:
    """A node pauses for 2 s, and lists with its suspicion spread: it is not declared faulty."""
    late = everybody(count)[count // 2 :]
    return Plan(
        nodes=count,
        seeds=3,
        until_us=30 * s,
        expect=("deaths == 0", "converged_s <= 15"),
        operations=(
            Start(at_us=10_500 * ms, nodes=late, stagger_us=2 * s // len(late)),
            Pause(at_us=10 * s, for_us=2 * s, nodes=(4,)),
        ),
    )


@for_nodes(4, usual=8)
def frozen(count: int) -> Plan:
    """One node pauses, then all do: the time that all slept makes no member faulty."""
    return Plan(
        nodes=count,
        until_us=60 * s,
        settings=(("suspect_s", 6.0),),
        expect=("deaths == 0", "converged_s <= 10"),
        operations=(
            Pause(at_us=10 * s, for_us=25 * s, nodes=(1,)),
            # Some suspect node 1 by then. All wake before it does, with a suspicion that was slept
            # over.
            Pause(at_us=14 * s, for_us=20_900 * ms, nodes=others(count, 1)),
        ),
    )


@for_nodes(4, usual=8)
def late_loop(count: int) -> Plan:
    """A node often pauses in the middle of its probes: waiting answers count before time-outs."""
    pauses = tuple(
        Pause(at_us=10 * s + turn * 2_300 * ms, for_us=1_800 * ms, nodes=(1,)) for turn in range(12)
    )
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=(f"suspects 0,2-{count - 1} == 0", "deaths == 0"),
        operations=pauses,
    )


@for_nodes(4, usual=10)
def slow_node(count: int) -> Plan:
    """One node does everything 1 s late: it declares no other faulty."""
    return Plan(
        nodes=count,
        until_us=90 * s,
        expect=(f"deaths 0,2-{count - 1} == 0", "converged_s <= 30"),
        operations=(Slow(at_us=10 * s, for_us=30 * s, nodes=(1,), by_us=1 * s),),
    )


@for_nodes(4, usual=8)
def drift(count: int) -> Plan:
    """The clocks of two nodes run 10 % fast and slow: no member is suspected."""
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=("suspects == 0",),
        operations=(
            Clock(at_us=5 * s, for_us=40 * s, nodes=(1,), drift_ppm=100_000),
            Clock(at_us=5 * s, for_us=40 * s, nodes=(2,), drift_ppm=-100_000),
        ),
    )


@for_nodes(3, usual=5)
def applications_away(count: int) -> Plan:
    """More and more applications are away, until all are: others own their keys, and then all."""
    away = tuple(
        Away(at_us=(5 + n) * s, for_us=(count + 4 + (n * 2) % count) * s, nodes=(n,))
        for n in everybody(count)
    )
    return Plan(
        nodes=count,
        until_us=max(each.over_at_us for each in away) + 15 * s,
        expect=("left_out == 0",),
        operations=away,
    )


@for_nodes(6, usual=10)
def flapping(count: int) -> Plan:
    """One node restarts every few seconds: it is damped, and comes back once it is calm."""
    restarts = tuple(
        Crash(at_us=10 * s + turn * 4 * s, for_us=1 * s, nodes=(1,)) for turn in range(16)
    )
    return Plan(
        nodes=count,
        # From its highest value, a score falls to the limit of reuse in two half-lives.
        until_us=restarts[-1].over_at_us + 3 * minutes,
        settings=(("damp_half_life_s", 60.0),),
        expect=("damped 1 == 1", f"damped 0,2-{count - 1} == 0", "left_out == 0"),
        operations=restarts,
    )


@for_nodes(6, usual=10)
def damped(count: int) -> Plan:
    """As flapping, but it ends while the node is damped: no ring has it, though it runs well."""
    plan = flapping(count)
    return replace(
        plan,
        until_us=plan.operations[-1].until_us + 15 * s,  # too early for the score to have fallen
        expect=("damped 1 == 1", "left_out 1 == 1", "left_out == 1"),
    )


@for_nodes(6, usual=12)
def flapping_many(count: int) -> Plan:
    """A third of the nodes restarts every few seconds: damping leaves out a tenth at most."""
    bad = everybody(count)[1 : 1 + count // 3]
    restarts = tuple(
        Crash(at_us=10 * s + turn * 6 * s + place * 1500 * ms, for_us=1 * s, nodes=(node,))
        for turn in range(14)
        for place, node in enumerate(bad)
    )
    return Plan(
        nodes=count,
        until_us=restarts[-1].over_at_us + 15 * s,
        expect=("damped >= 1", f"left_out <= {max(1, count // 10)}"),  # `damp_share` is a tenth
        operations=restarts,
    )


@for_nodes(4, usual=8)
def suspicion_renewed(count: int) -> Plan:
    """A suspect is accused again in a higher incarnation: its time to refute starts again."""
    return Plan(
        nodes=count,
        until_us=60 * s,
        settings=(("suspect_factor", 1.0),),
        expect=("converged_s <= 40", f"running == {count}"),
        operations=(
            Cut(at_us=10 * s, for_us=6 * s, left=(1,), right=others(count, 1)),
            Rumour(at_us=10_100 * ms, nodes=everybody(count), about=1, status="suspect"),
            Rumour(at_us=12_000 * ms, nodes=others(count, 1), about=1, status="suspect"),
        ),
    )


@for_nodes(5, usual=8)
def stale_suspicion(count: int) -> Plan:
    """Two nodes come back from a cut with a suspicion that others saw refuted long ago."""
    apart = (count - 2, count - 1)
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=("converged_s <= 25", "left_out == 0"),
        operations=(
            Cut(at_us=10 * s, for_us=12 * s, left=apart, right=others(count, *apart)),
            Rumour(at_us=11 * s, nodes=apart, about=1, status="suspect"),
            Rumour(at_us=11 * s, nodes=(1, 2), about=1, status="suspect"),
        ),
    )
