"""What is done to a cluster of real processes, and what is measured at it.

An experiment is a generator of samples, so that what was measured before a failure is not lost.
All are the same for all products. Run as ``python -m tests.bench.clusters.experiments``, in a
network of its own where there is one: it does one experiment with one product, and prints each
sample as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.bench.clusters import network
from tests.bench.clusters.cluster import Cluster, Failure
from tests.bench.clusters.kinship import Kinship
from tests.bench.clusters.processes import cpu_seconds, loopback_bytes, memory_bytes
from tests.bench.clusters.product import GONE, Seen
from tests.bench.clusters.ringpop import Ringpop
from tests.bench.clusters.serf import Serf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.bench.clusters.product import Product, Seat

PRODUCTS: Final[dict[str, Callable[[], Product]]] = {
    "ringpop": Ringpop,
    "serf": Serf,
    "kinship": Kinship,
}

PAUSE_BETWEEN_S: Final = 2.0
"""Between one thing that is done to a cluster and the next."""

SETTLE_S: Final = 10.0
IDLE_S: Final = 20.0
SPLITS_S: Final = (15, 40, 75)
HEALED_WITHIN_S: Final = 120.0
PAUSED_COUNTS: Final = (1, 4, 8)
PAUSE_S: Final = 5.0
DOWN_S: Final = (2, 8)
"""Shorter and longer than it takes to notice."""

REPEATS: Final = 4
AFTERMATH_S: Final = 15.0
"""How long to wait for what comes late: longer than any product takes to declare a death."""

MB: Final = 1e6


class Sample(NamedTuple):
    """One measured value of a figure."""

    figure: str
    value: float


class Skipped(Exception):
    """This experiment cannot be done here; its text says why."""


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Which product, how many of it, and where."""

    product: Product
    nodes_count: int
    runs: int
    isolated: bool
    folder: Path

    def cluster(self, *, sided: bool = False) -> Cluster:
        """A cluster that starts when its context is entered."""
        return Cluster(self.product, network.seats_for(self.nodes_count), self.folder, sided=sided)


def start(lab: Laboratory) -> Iterator[Sample]:
    """From the first process, and from the last that listens, until all count on all."""
    for _ in range(lab.runs):
        began = time.monotonic()
        with lab.cluster() as cluster:
            whole_at = cluster.wait_whole()
            up_at = max(process.up_at or began for process in cluster.processes.values())
        yield Sample("start", whole_at - began)
        yield Sample("converged", max(whole_at - up_at, 0.0))


def crash(lab: Laboratory) -> Iterator[Sample]:
    """Kill -9 until all others know; then its start under the same name until all count on all."""
    with lab.cluster() as cluster:
        cluster.wait_whole()
        for victim in _victims(cluster, lab.runs):
            cluster.listen(PAUSE_BETWEEN_S)
            began = time.monotonic()
            cluster.kill(victim)
            if lab.product.tells_suspicions:
                noticed_at = cluster.wait_seen(victim, GONE | {Seen.SUSPECT})
                yield Sample("suspected", noticed_at - began)
            yield Sample("crash", cluster.wait_seen(victim, GONE) - began)
            cluster.listen(PAUSE_BETWEEN_S)
            began = time.monotonic()
            process = cluster.start(victim)
            whole_at = cluster.wait_whole()
            yield Sample("rejoin", whole_at - began)
            yield Sample("rejoin_up", max(whole_at - (process.up_at or began), 0.0))


def silence(lab: Laboratory) -> Iterator[Sample]:
    """From SIGSTOP, which stands for a host that went silent, until all others know."""
    with lab.cluster() as cluster:
        for victim in _victims(cluster, lab.runs):
            cluster.wait_whole()
            cluster.listen(PAUSE_BETWEEN_S)
            began = time.monotonic()
            cluster.signal([victim], signal.SIGSTOP)
            yield Sample("silence", cluster.wait_seen(victim, GONE) - began)
            cluster.kill(victim)
            cluster.start(victim)


def leave(lab: Laboratory) -> Iterator[Sample]:
    """From the signal to leave in good order until all others know: how fast a change spreads."""
    with lab.cluster() as cluster:
        for victim in _victims(cluster, lab.runs):
            cluster.wait_whole()
            cluster.listen(PAUSE_BETWEEN_S)
            began = time.monotonic()
            cluster.ask_to_leave(victim)
            yield Sample("leave", cluster.wait_seen(victim, GONE) - began)
            cluster.ended(victim)
            cluster.start(victim)


def idle(lab: Laboratory) -> Iterator[Sample]:
    """What a node costs while nothing happens: processor, network and memory."""
    with lab.cluster() as cluster:
        cluster.wait_whole()
        cluster.listen(SETTLE_S)
        began = time.monotonic()
        cpu_s, received = cpu_seconds(cluster.pids), loopback_bytes()
        cluster.listen(IDLE_S)
        seconds = time.monotonic() - began
        cpu_s, received = cpu_seconds(cluster.pids) - cpu_s, loopback_bytes() - received
        yield Sample("cpu", cpu_s / lab.nodes_count / (seconds / 60))
        if lab.isolated:
            yield Sample("bytes", received / lab.nodes_count / seconds)
        for figure, field in (("rss", "Rss"), ("pss", "Pss")):
            yield Sample(figure, memory_bytes(cluster.pids, field) / lab.nodes_count / MB)


def heal(lab: Laboratory) -> Iterator[Sample]:
    """Half against half, for a while; from the end of the split until all count on all again."""
    if not lab.isolated:
        raise Skipped("needs a network namespace")
    reason = network.set_up_sides()
    if reason is not None:
        raise Skipped(reason)
    for split_s in SPLITS_S:
        with lab.cluster(sided=True) as cluster:
            cluster.wait_whole()
            cluster.listen(PAUSE_BETWEEN_S)
            network.cut()
            cluster.listen(split_s)
            network.mend()
            began = time.monotonic()
            lost_count = cluster.view.count(cluster.names, cluster.names, GONE)
            yield Sample(f"lost_{split_s}", lost_count)
            yield Sample(f"heal_{split_s}", cluster.whole_at(HEALED_WITHIN_S) - began)


def pause(lab: Laboratory) -> Iterator[Sample]:
    """Some are paused and resumed, again and again: how many others are declared dead for it."""
    for paused_count in PAUSED_COUNTS:
        if 2 * paused_count > lab.nodes_count:
            continue
        with lab.cluster() as cluster:
            cluster.wait_whole()
            cluster.listen(PAUSE_BETWEEN_S)
            since = len(cluster.view.history)
            paused = cluster.seats[-paused_count:]
            for _ in range(REPEATS):
                cluster.signal(paused, signal.SIGSTOP)
                cluster.listen(PAUSE_S)
                cluster.signal(paused, signal.SIGCONT)
                cluster.listen(PAUSE_S)
            cluster.listen(AFTERMATH_S)
            for figure, seen in (("accused", Seen.SUSPECT), ("condemned", Seen.DEAD)):
                named = cluster.view.ever(seen, since=since)
                healthy = named - {seat.name for seat in paused}
                yield Sample(f"{figure}_{paused_count}", len(healthy))


def flap(lab: Laboratory) -> Iterator[Sample]:
    """One node crashes and comes back, again and again: how often an observer sees it turn."""
    for down_s in DOWN_S:
        with lab.cluster() as cluster:
            cluster.wait_whole()
            since = len(cluster.view.history)
            victim = cluster.seats[-1]
            for _ in range(REPEATS):
                cluster.listen(PAUSE_S)
                cluster.kill(victim)
                cluster.listen(down_s)
                cluster.start(victim)
            cluster.listen(AFTERMATH_S)
            turns = cluster.view.turns(victim.name, since=since)
            yield Sample(f"flap_{down_s}", sum(turns.values()) / (lab.nodes_count - 1))


EXPERIMENTS: Final[dict[str, Callable[[Laboratory], Iterator[Sample]]]] = {
    experiment.__name__: experiment
    for experiment in (start, crash, silence, leave, idle, heal, pause, flap)
}


def _victims(cluster: Cluster, count: int) -> list[Seat]:
    """From the last, another one each time: the first are the seeds of some."""
    return [cluster.seats[-1 - number % len(cluster.seats)] for number in range(count)]


def main(argv: Sequence[str]) -> int:
    """One experiment with one product."""
    parser = argparse.ArgumentParser()
    parser.add_argument("product", choices=list(PRODUCTS))
    parser.add_argument("experiment", choices=list(EXPERIMENTS))
    parser.add_argument("nodes_count", type=int)
    parser.add_argument("runs", type=int)
    parser.add_argument("--isolated", action="store_true")
    given = parser.parse_args(argv)
    if given.isolated:
        network.set_up()
    product = PRODUCTS[given.product]()
    try:
        with tempfile.TemporaryDirectory() as folder:
            lab = Laboratory(product, given.nodes_count, given.runs, given.isolated, Path(folder))
            for sample in EXPERIMENTS[given.experiment](lab):
                print(json.dumps(sample._asdict()), flush=True)
    except Skipped as why:
        print(f"  {given.product}: {given.experiment} is not measured: {why}", file=sys.stderr)
    except Failure as error:
        print(f"  {given.product}: {given.experiment} failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
