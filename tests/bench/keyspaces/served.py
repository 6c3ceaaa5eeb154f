"""How long partitions are not served, in simulated clusters: to be compared with processes.

The members have the timing of a LAN, and all else as a daemon has it by default.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from ringpop_sim.plans.plan import Crash, KeyspacePlan, Link, Pause, Plan, Start, uniform
from ringpop_sim.units import minutes, s
from ringpop_sim.whole.run import WholeRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.whole.keyspaces.shares import DaemonShares

NODES: Final = 3
WRITERS: Final = 4
"""Clients that each write again as soon as they have their answer."""
PER_SECOND_MAX: Final = 200.0
PARTITIONS: Final = 64
AT_US: Final = 10 * s
ROTATION_US: Final = 4 * s
"""How long members that are at rest take to ping each other once."""
RUNS: Final = 4
LAST: Final = (NODES - 1,)


@dataclass(frozen=True, slots=True)
class Latencies:
    """The durations of calls, in microseconds: three kinds to the store, and one to a member."""

    store_read_us: int
    store_list_us: int
    store_write_us: int
    call_us: int


def hand_over_s(latencies: Latencies) -> float:
    """Return the median of the partitions that move to a third member, in seconds."""
    pauses: list[int] = []
    for at in _moments():
        with _run(Start(at_us=at, nodes=LAST), latencies) as shares:
            last = max(shares, key=lambda share: share.number)
            pauses += last.steward.handoff_pauses_us
    return median(pauses) / s


def crash_s(latencies: Latencies) -> float:
    """Return how long after the death of one of three members all that it had is served again."""
    return _served_again_s(latencies, Crash)


def silence_s(latencies: Latencies) -> float:
    """Return how long after one of three members falls silent all that it had is served again."""
    return _served_again_s(latencies, partial(Pause, for_us=1 * minutes))


def _served_again_s(latencies: Latencies, fault: Callable[..., Operation]) -> float:
    taken: list[int] = []
    for at in _moments():
        with _run(fault(at_us=at, nodes=LAST), latencies) as shares:
            taken.append(shares.moved_at - at)
    return median(taken) / s


def _moments() -> range:
    """Return the moments of faults, which are spread over the rotation of pings."""
    return range(AT_US, AT_US + ROTATION_US, ROTATION_US // RUNS)


@contextmanager
def _run(fault: Operation, latencies: Latencies) -> Iterator[DaemonShares]:
    """Run a plan in which *fault* happens; its moment is the seed, too."""
    keyspace = KeyspacePlan(
        partitions=PARTITIONS,
        keys=PARTITIONS,
        keys_each=1,
        per_second=min(WRITERS * s / latencies.store_write_us, PER_SECOND_MAX),
        store_read_us=latencies.store_read_us,
        store_list_us=latencies.store_list_us,
        store_write_us=latencies.store_write_us,
    )
    plan = Plan(
        nodes=NODES,
        until_us=AT_US + ROTATION_US + 12 * s,
        codec_share=0.0,
        # One way.
        link=Link(delay=uniform(latencies.call_us // 4, latencies.call_us * 3 // 4)),
        keyspace=keyspace,
        operations=(fault,),
    )
    run = WholeRun(plan, fault.at_us, ())
    try:
        run.advance(plan.until_us)
        assert run.shares is not None
        yield run.shares
    finally:
        run.close()
