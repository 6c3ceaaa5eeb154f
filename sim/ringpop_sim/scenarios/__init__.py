"""Scenarios by name: useful plans, for almost any number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.errors import PlanError
from ringpop_sim.scenarios import calm, cuts, ends, keyspaces, links, names, slowness, starts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_sim.plans.plan import Plan

_ALL: Final[tuple[Callable[[int | None], Plan], ...]] = (
    calm.steady,
    ends.crash,
    cuts.split,
    calm.load,
    cuts.one_way_cut,
    cuts.bridge,
    cuts.bridge_gone,
    cuts.three_way_cut,
    cuts.isolated,
    cuts.flapping_cut,
    cuts.cut_at_start,
    cuts.long_cut,
    cuts.long_cut_of_islands,
    cuts.firewall,
    cuts.cut_under_load,
    ends.power_loss,
    ends.rolling_restart,
    ends.scale_down,
    ends.cluster_restart,
    ends.seeds_restart,
    ends.seeds_replaced,
    ends.takeover,
    names.twins,
    names.supervised_twin,
    names.replaced_asleep,
    names.twins_across_a_cut,
    names.forged_move,
    names.liar,
    ends.moved,
    ends.moved_back,
    ends.clock_back,
    ends.snapshot,
    ends.forgotten_snapshot,
    ends.old_alive,
    ends.missed_news,
    ends.die_young,
    ends.leave_and_return,
    ends.crash_under_load,
    ends.failover_under_load,
    starts.join_storm,
    starts.small_messages,
    starts.growth,
    starts.islands,
    starts.islands_of_ringpop,
    starts.lying_discovery,
    starts.late_discovery,
    starts.empty_discovery,
    starts.other_cluster,
    slowness.paused_1,
    slowness.paused_4,
    slowness.paused_8,
    slowness.paused_shortly,
    slowness.paused_while_growing,
    slowness.frozen,
    slowness.late_loop,
    slowness.slow_node,
    slowness.drift,
    slowness.flapping,
    slowness.damped,
    slowness.flapping_many,
    slowness.suspicion_renewed,
    slowness.stale_suspicion,
    links.flip_flop,
    links.deaf,
    links.bad_weather,
    links.corruption,
    links.duplication,
    links.lossy_requests,
    keyspaces.partitions_drained,
    keyspaces.copies_drained,
    keyspaces.partitions_paused,
    keyspaces.partitions_killed,
    keyspaces.partitions_split,
    keyspaces.partitions_sealed,
    keyspaces.journals_trimmed,
    keyspaces.copies_split,
    keyspaces.copies_leaving,
    keyspaces.requests_lost,
    keyspaces.store_failing,
    keyspaces.disks_full,
    keyspaces.partitions_awaited,
    keyspaces.partitions_by_hand,
)

SCENARIOS: Final[dict[str, Callable[[int | None], Plan]]] = {
    make.__name__.replace("_", "-"): make for make in _ALL
}
"""Each function makes a plan for the given number of nodes, or for a number that suits it. The
first line of its docstring says what the scenario shows."""


def scenario(name: str, nodes: int | None = None) -> Plan:
    """Return the plan of the scenario *name*. Raises PlanError."""
    make = SCENARIOS.get(name)
    if make is None:
        raise PlanError(f"there is no scenario {name!r}; there is {', '.join(SCENARIOS)}")
    return make(nodes)


def about(name: str) -> str:
    """Return one line that says what the scenario *name* shows."""
    return (SCENARIOS[name].__doc__ or "").strip().splitlines()[0]
