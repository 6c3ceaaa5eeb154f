"""How long partitions are served by nobody, in simulated clusters: to be compared with processes.

The members have the timing of a LAN, and all else as a daemon has it by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from ringpop_sim.plans.plan import Crash, KeyspacePlan, Link, Pause, Plan, Start, uniform
from ringpop_sim.runs.run import Run
from ringpop_sim.units import minutes, s

if TYPE_CHECKING:
    from ringpop_sim.plans.plan import Operation

NODES: Final = 3
WRITERS: Final = 4
"""Clients that each write again as soon as they have their answer."""
PER_SECOND_MAX: Final = 1_000.0
PARTITIONS: Final = 64
AT_US: Final = 10 * s
LINK_US: Final = (50, 200)
"""One way between processes of one machine."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """Seconds without an owner.

    Attributes:
        hand_over_s: the median of the partitions that move to a third member.
        crash_s, silence_s: from the moment at which one of three members is killed, or stops, until
            all that it had is served again: the median of some runs.
    """

    hand_over_s: float
    crash_s: float
    silence_s: float


def unserved(seed: int, runs: int = 5, *, read_us: int, list_us: int, write_us: int) -> Unserved:
    """Measure with a store whose calls take so long."""
    keyspace = KeyspacePlan(
        partitions=PARTITIONS,
        keys=PARTITIONS,
        keys_each=1,
        per_second=min(WRITERS * s / write_us, PER_SECOND_MAX),
        store_read_us=read_us,
        store_list_us=list_us,
        store_write_us=write_us,
    )
    last = (NODES - 1,)
    seeds = range(seed, seed + runs)
    joins = [_run(Start(at_us=AT_US, nodes=last), keyspace, one) for one in seeds]
    pauses = [us for run in joins for us in _pauses_us(run)]
    gone: list[float] = []
    for fault in (
        Crash(at_us=AT_US, nodes=last),
        Pause(at_us=AT_US, for_us=1 * minutes, nodes=last),
    ):
        found = [_run(fault, keyspace, one) for one in seeds]
        gone.append(median(_moved_at(run) - AT_US for run in found) / s)
    return Unserved(median(pauses) / s, *gone)


def _run(fault: Operation, keyspace: KeyspacePlan, seed: int) -> Run:
    plan = Plan(
        nodes=NODES,
        until_us=AT_US + 12 * s,
        codec_share=0.0,
        link=Link(delay=uniform(*LINK_US)),
        keyspace=keyspace,
        operations=(fault,),
    )
    run = Run(plan, seed, ())
    run.advance(plan.until_us)
    return run


def _pauses_us(run: Run) -> list[int]:
    assert run.homes is not None
    last = max(run.homes, key=lambda home: home.number)
    pauses: list[int] = last.steward.handoff_pauses_us
    return pauses


def _moved_at(run: Run) -> int:
    assert run.homes is not None
    return run.homes.moved_at
