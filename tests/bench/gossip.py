"""Membership of real processes, side by side with Serf and kinship where they are installed.

Each experiment starts a cluster of one product after the other, each in a network of its own, and
does the same to all (`clusters/experiments.py`). What is compared: the figures of one experiment at
one size. `--help` says what can be chosen; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from ringpop_py.edge.cli.commands import count
from tests.bench.choices import some_of
from tests.bench.clusters.experiments import EXPERIMENTS, PRODUCTS
from tests.bench.clusters.kinship import PYTHON_VARIABLE
from tests.bench.clusters.network import isolated
from tests.bench.report import against_goal, smaller_is_better, without_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.bench.report import Row

OURS: Final = "ringpop"
PEERS: Final = tuple(name for name in PRODUCTS if name != OURS)
ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 900.0
"""Of one experiment with one product, which has time-outs of its own."""

SIZES: Final = (3, 10, 30)
SIZE_MIN: Final = 2
SIZE_MAX: Final = 200
RUNS: Final = 3
FIXED_SIZE: Final = {"heal": 10}
LARGEST_ONLY: Final = ("pause", "flap")


@dataclass(frozen=True, slots=True)
class Figure:
    """How the samples of a figure become rows; small is good in all.

    Attributes:
        goal: what the median is to be at most.
        goal_max: what the largest is to be at most.
        target: how many times better than a peer it is to be.
        worst: whether the largest sample has a row as well.
    """

    unit: str
    goal: float | None = None
    goal_max: float | None = None
    target: float | None = None
    worst: bool = False


FIGURES: Final = {
    "start": Figure("s"),
    "converged": Figure("s"),
    "suspected": Figure("s", worst=True),
    "crash": Figure("s", goal=2.0, goal_max=3.0, worst=True),
    "rejoin": Figure("s"),
    "rejoin_up": Figure("s"),
    "silence": Figure("s", target=1.0, worst=True),
    "leave": Figure("s", worst=True),
    "cpu": Figure("CPU-s/node-minute", goal=0.08),
    "bytes": Figure("bytes/s a node", goal=230.0),
    "rss": Figure("MB a node", goal=45.0),
    "pss": Figure("MB a node", goal=45.0),
    "accused": Figure("healthy members"),
    "condemned": Figure("healthy members", goal=0.0),
    "heal": Figure("s", goal=5.0),
    "flap": Figure("turns an observer"),
    "failed": Figure("failures", goal=0.0),
}
"""By the sample's name, or its first word, as in ``heal_40``; others are only told as progress."""

Samples = dict[str, list[float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen of this benchmark."""
    group = parser.add_argument_group("gossip", "All of it takes about 45 minutes.")
    group.add_argument(
        "--only",
        type=some_of(EXPERIMENTS),
        default=tuple(EXPERIMENTS),
        metavar="EXPERIMENT,...",
        help=f"experiments to do: {', '.join(EXPERIMENTS)} (all)",
    )
    group.add_argument(
        "--nodes",
        type=_sizes,
        default=SIZES,
        metavar="N,...",
        help="sizes of clusters (3,10,30); heal takes 10, pause and flap the largest",
    )
    group.add_argument(
        "--peers",
        type=some_of(PEERS),
        default=PEERS,
        metavar="PEER,...",
        help=f"whom to compare with: {', '.join(PEERS)} (all); 'none'",
    )
    group.add_argument(
        "--runs",
        type=count,
        default=RUNS,
        metavar="N",
        help="times that start, crash, silence and leave are done (3)",
    )
    group.add_argument(
        "--kinship-python",
        metavar="FILE",
        help=f"a Python that has kinship (default: ${PYTHON_VARIABLE}, or our own)",
    )


def run(options: argparse.Namespace) -> Iterator[Row]:
    """The rows of `gossip`, those of an experiment at a size as soon as all have done it."""
    if options.kinship_python:
        os.environ[PYTHON_VARIABLE] = options.kinship_python
    missing = {name: PRODUCTS[name]().missing() for name in options.peers}
    for peer, reason in missing.items():
        if reason is not None:
            _tell(f"{peer}: {reason}")
    _tell(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if not isolated():
        _tell("no rights to make namespaces: neither bytes nor healing are measured")
    for experiment, size in plan(options.only, options.nodes):
        ours = _samples(OURS, experiment, size, options.runs)
        theirs = {
            peer: None if reason else _samples(peer, experiment, size, options.runs)
            for peer, reason in missing.items()
        }
        yield from rows(ours, theirs, size)


def plan(experiments: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Which experiment is done at which size."""
    for experiment in experiments:
        if experiment in FIXED_SIZE:
            yield experiment, FIXED_SIZE[experiment]
        elif experiment in LARGEST_ONLY:
            yield experiment, max(sizes)
        else:
            yield from ((experiment, size) for size in sizes)


def rows(ours: Samples, theirs: Mapping[str, Samples | None], size: int) -> Iterator[Row]:
    """The rows of one experiment: of each figure one against our goal, and one a peer.

    A peer without samples at all (None) is not installed; one without samples of a figure does
    not tell of it.
    """
    for name, samples in ours.items():
        figure = FIGURES.get(name) or FIGURES.get(name.partition("_")[0])
        if figure is None:
            continue
        title = f"gossip.{name}.{size}"
        peers = {
            peer: None if told is None else told.get(name, []) for peer, told in theirs.items()
        }
        if len(samples) == 1:
            yield from _rows_of(title, samples, peers, figure, figure.goal, median)
            continue
        yield from _rows_of(f"{title}.median", samples, peers, figure, figure.goal, median)
        if figure.worst:
            yield from _rows_of(f"{title}.max", samples, peers, figure, figure.goal_max, max)


def _rows_of(
    title: str,
    samples: list[float],
    peers: dict[str, list[float] | None],
    figure: Figure,
    goal: float | None,
    reduce: Callable[[list[float]], float],
) -> Iterator[Row]:
    value = reduce(samples)
    if goal is not None or not any(told is None or told for told in peers.values()):
        yield against_goal(title, value, figure.unit, goal)
    for peer, told in peers.items():
        if told is None:
            yield without_peer(title, value, figure.unit, peer, figure.target)
        elif told:
            peer_value = reduce(told)
            yield smaller_is_better(title, value, figure.unit, peer, peer_value, figure.target)


def _samples(product: str, experiment: str, size: int, runs: int) -> Samples:
    """What a process of its own measures, which ends, with all that it starts, whatever happens."""
    _tell(f"{experiment} of {size}: {product} ...")
    began = time.monotonic()
    command = [*isolated(), sys.executable, "-m", "tests.bench.clusters.experiments"]
    command += [product, experiment, str(size), str(runs)]
    if isolated():
        command.append("--isolated")
    output, failed = _output(command)
    samples = samples_of(output)
    if failed:
        samples[f"failed_{experiment}"] = [1.0]
    if samples:
        values = "; ".join(f"{name} {_listed(values)}" for name, values in samples.items())
        _tell(f"  {product}: {values} ({time.monotonic() - began:.0f} s)")
    return samples


def samples_of(output: str) -> Samples:
    """By figure, in the order in which they were measured."""
    samples: Samples = {}
    for line in output.splitlines():
        said = json.loads(line)
        samples.setdefault(said["figure"], []).append(said["value"])
    return samples


def _output(command: Sequence[str]) -> tuple[str, bool]:
    """What *command* has written, and whether it failed; it is ended if it takes too long."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        process_group=0,  # what the terminal sends is for us
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _tell(f"  ended after {TIMEOUT_S:.0f} s")
        process.kill()
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    return output, process.returncode != 0


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(count(part) for part in text.split(","))
    if not all(SIZE_MIN <= size <= SIZE_MAX for size in sizes):
        message = f"a cluster has {SIZE_MIN} to {SIZE_MAX} nodes here"
        raise argparse.ArgumentTypeError(message)
    return sizes


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
