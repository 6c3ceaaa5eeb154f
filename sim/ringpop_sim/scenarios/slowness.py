"""Nodes that are slow, pause, or restart often, or whose application is away: none is faulty."""

from __future__ import annotations

from dataclasses import replace

from ringpop_sim.plans.plan import (
    Away,
    Clock,
    Crash,
    Cut,
    Operation,
    Pause,
    Plan,
    Rumour,
    Slow,
    Start,
)
from ringpop_sim.scenarios.sizes import ALL_RUN, everybody, for_nodes, halves, others
from ringpop_sim.units import minutes, ms, s


@for_nodes(4, usual=30)
def paused(count: int) -> Plan:
    """A quarter of the nodes pauses for 20 s: no other is declared faulty."""
    asleep = everybody(count // 4)
    awake = f"deaths {len(asleep)}-{count - 1} == 0"
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=(awake, "converged_s <= 25", f"running == {count}"),
        operations=(Pause(at_us=10 * s, for_us=20 * s, nodes=asleep),),
    )


@for_nodes(4, usual=8, after_us=23 * s, expect=("deaths == 0", "converged_s <= 10"))
def paused_shortly(count: int) -> list[Operation]:
    """One node after the other pauses for 1 s: none is declared faulty."""
    return [Pause(at_us=(10 + 4 * n) * s, for_us=1 * s, nodes=(n,)) for n in everybody(count)]


@for_nodes(8, usual=16, seeds=3, until_us=30 * s, expect=("deaths == 0", "converged_s <= 15"))
def paused_while_growing(count: int) -> list[Operation]:
    """A node pauses for 2 s, and lists with its suspicion spread: it is not declared faulty."""
    _, late = halves(count)
    start = Start(at_us=10_500 * ms, nodes=late, stagger_us=2 * s // len(late))
    return [start, Pause(at_us=10 * s, for_us=2 * s, nodes=(4,))]


@for_nodes(
    4,
    usual=8,
    until_us=60 * s,
    settings=(("suspect_s", 6.0),),
    expect=("deaths == 0", "converged_s <= 10"),
)
def frozen(count: int) -> list[Operation]:
    """One node pauses, then all do: the time that all slept makes no member faulty."""
    # When the others pause, some suspect node 1. All wake before it does, with a suspicion that was
    # slept over.
    others_pause = Pause(at_us=14 * s, for_us=20_900 * ms, nodes=others(count, 1))
    return [Pause(at_us=10 * s, for_us=25 * s, nodes=(1,)), others_pause]


@for_nodes(4, usual=8, until_us=60 * s, expect=("suspects 0,2-{last} == 0", "deaths == 0"))
def late_loop(_count: int) -> list[Operation]:
    """A node often pauses in the middle of its probes: waiting answers count before time-outs."""
    instants = (10 * s + turn * 2_300 * ms for turn in range(12))
    return [Pause(at_us=at_us, for_us=1_800 * ms, nodes=(1,)) for at_us in instants]


@for_nodes(4, usual=10, until_us=90 * s, expect=("deaths 0,2-{last} == 0", "converged_s <= 30"))
def slow_node(_count: int) -> list[Operation]:
    """One node does everything 1 s late: it declares no other faulty."""
    return [Slow(at_us=10 * s, for_us=30 * s, nodes=(1,), by_us=1 * s)]


@for_nodes(4, usual=8, until_us=60 * s, expect=("suspects == 0",))
def drift(_count: int) -> list[Operation]:
    """The clocks of two nodes run 10 % fast and slow: no member is suspected."""
    drifts = ((1, 100_000), (2, -100_000))
    return [Clock(at_us=5 * s, for_us=40 * s, nodes=(n,), drift_ppm=ppm) for n, ppm in drifts]


@for_nodes(3, usual=5, after_us=15 * s, expect=("left_out == 0",))
def applications_away(count: int) -> list[Operation]:
    """More and more applications are away, until all are: others own their keys, and then all."""
    return [
        Away(at_us=(5 + n) * s, for_us=(count + 4 + (n * 2) % count) * s, nodes=(n,))
        for n in everybody(count)
    ]


@for_nodes(
    6,
    usual=10,
    after_us=3 * minutes,  # a score falls to the limit of reuse in two half-lives
    settings=(("damp_half_life_s", 60.0),),
    expect=("damped 1 == 1", "damped 0,2-{last} == 0", "left_out == 0"),
)
def flapping(_count: int) -> list[Operation]:
    """One node restarts every few seconds: it is damped, and comes back once it is calm."""
    return [Crash(at_us=(10 + turn * 4) * s, for_us=1 * s, nodes=(1,)) for turn in range(16)]


@for_nodes(6, usual=10)
def damped(count: int) -> Plan:
    """As flapping, but it ends while the node is damped: no ring has it, though it runs well."""
    plan = flapping(count)
    until_us = plan.quiet_at_us + 15 * s  # too early for the score to have fallen
    expect = ("damped 1 == 1", "left_out 1 == 1", "left_out == 1")
    return replace(plan, until_us=until_us, expect=expect)


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


@for_nodes(
    4,
    usual=8,
    until_us=60 * s,
    settings=(("suspect_factor", 1.0),),
    expect=("converged_s <= 40", ALL_RUN),
)
def suspicion_renewed(count: int) -> list[Operation]:
    """A suspect is accused again in a higher incarnation: its time to refute starts again."""
    rest = others(count, 1)
    return [
        Cut(at_us=10 * s, for_us=6 * s, left=(1,), right=rest),
        Rumour(at_us=10_100 * ms, nodes=everybody(count), about=1, status="suspect"),
        Rumour(at_us=12_000 * ms, nodes=rest, about=1, status="suspect"),
    ]


@for_nodes(5, usual=8, until_us=60 * s, expect=("converged_s <= 25", "left_out == 0"))
def stale_suspicion(count: int) -> list[Operation]:
    """Two nodes come back from a cut with a suspicion that others saw refuted long ago."""
    apart = (count - 2, count - 1)
    return [
        Cut(at_us=10 * s, for_us=12 * s, left=apart, right=others(count, *apart)),
        Rumour(at_us=11 * s, nodes=apart, about=1, status="suspect"),
        Rumour(at_us=11 * s, nodes=(1, 2), about=1, status="suspect"),
    ]
