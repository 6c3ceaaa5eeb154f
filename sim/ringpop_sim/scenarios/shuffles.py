"""Clusters with shuffles: rows are put, sorted and read, while processes end and start again."""

from __future__ import annotations

from dataclasses import replace

from ringpop_sim.plans.plan import (
    Crash,
    Cut,
    FailShuffler,
    FailStore,
    Operation,
    Pause,
    Plan,
    ShufflePlan,
)
from ringpop_sim.scenarios.keyspaces import QUICK
from ringpop_sim.scenarios.sizes import everybody, for_nodes
from ringpop_sim.units import s

LIVE_US = 65 * s
"""So long after the last fault, all rows can be read for certain."""


@for_nodes(3, usual=3)
def shuffles_killed(count: int) -> Plan:
    """A process for shuffles is killed while rows are put, then a daemon: no row is lost."""
    first, *_, last = everybody(count)
    return _shuffled(
        count,
        FailShuffler(at_us=5 * s, nodes=(first,)),
        Crash(at_us=20 * s, for_us=5 * s, nodes=(last,)),
    )


@for_nodes(3, usual=3)
def shuffles_troubled(count: int) -> Plan:
    """Shuffles meet a full disk, a pause above a lease, a cut, and a loss of power."""
    first, second, *_, last = everybody(count)
    return _shuffled(
        count,
        FailShuffler(at_us=4 * s, for_us=2 * s, nodes=(first,), how="full"),
        FailShuffler(at_us=5 * s, for_us=12 * s, nodes=(second,), how="paused"),
        Cut(at_us=20 * s, for_us=8 * s, left=(first,), right=everybody(count)[1:]),
        Crash(at_us=34 * s, for_us=5 * s, nodes=(last,), silent=True),
    )


@for_nodes(3, usual=3)
def shuffles_slow(count: int) -> Plan:
    """Two disks are slow, one is full, and of one daemon only the process for shuffles goes on."""
    first, second, *_, last = everybody(count)
    return _shuffled(
        count,
        FailShuffler(at_us=3 * s, for_us=20 * s, nodes=(first, second), how="slow"),
        Pause(at_us=4 * s, for_us=8 * s, nodes=(first,)),
        FailShuffler(at_us=14 * s, for_us=5 * s, nodes=(last,), how="full"),
    )


@for_nodes(3, usual=3)
def shuffles_deleted(count: int) -> Plan:
    """Files of shuffles are deleted under one process, in all states, and no row is lost."""
    deletions = (FailShuffler(at_us=at * s, nodes=(0,), how="deleted") for at in range(3, 15))
    return _shuffled(count, *deletions)


@for_nodes(3, usual=3)
def shuffles_stored(count: int) -> Plan:
    """Second copies are in the store, which fails as well: all processes die at the same time."""
    all_killed = FailShuffler(at_us=7 * s, nodes=everybody(count), how="killed")
    return _shuffled(
        count,
        FailStore(at_us=5 * s, for_us=1 * s, how="unknown"),
        all_killed,
        Crash(at_us=16 * s, for_us=3 * s, nodes=(0,)),
        FailStore(at_us=24 * s, for_us=3 * s, how="cut"),
        replace(all_killed, at_us=32 * s),
        in_store=True,
    )


def _shuffled(count: int, *operations: Operation, in_store: bool = False) -> Plan:
    quiet_at_us = max(operation.over_at_us for operation in operations)
    return Plan(
        nodes=count,
        until_us=quiet_at_us + LIVE_US,
        calm_us=2 * s,
        settings=QUICK,
        codec_share=0.0,
        shuffle=ShufflePlan(in_store=in_store),
        operations=operations,
    )
