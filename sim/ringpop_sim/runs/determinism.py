"""Determinism: the same plan and seed take the same course in every process.

Each process has its own PYTHONHASHSEED, so a dependence on the order of a set of strings shows. The
second process runs the plans in the opposite order, so what one run leaves behind shows, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from ringpop_sim.runs.run import run, run_of
from ringpop_sim.runs.swarm import Shape
from ringpop_sim.units import seconds
from ringpop_sim.world.trace import DIGEST_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH_SEEDS: Final = (0, 1, 2)
PROCESS_S_MAX: Final = 3600.0
_CHILD: Final = "import sys; from ringpop_sim.runs.determinism import child; child(sys.argv[1:])"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The plan of *seed* took different courses with two hash seeds.

    Attributes:
        after_event: the courses were equal up to this event, to the nearest digest that was kept.
        facts: the first fact that differs, as each process has it; empty if all facts are equal,
            which means that another event differs.
    """

    seed: int
    hash_seeds: tuple[int, int]
    after_event: int
    facts: tuple[str, ...] = ()


def divergences(first_seed: int, seeds: int, shape: Shape | None = None) -> list[Divergence]:
    """Run *seeds* random plans in one process for each of `HASH_SEEDS`, and compare the courses."""
    shape = shape or Shape()
    shape.check()
    arguments = _arguments(first_seed, seeds, shape)
    found = [_digests(output) for output in _outputs(HASH_SEEDS, "digests", *arguments)]
    different: list[Divergence] = []
    for seed in range(first_seed, first_seed + seeds):
        for hash_seed, digests in zip(HASH_SEEDS[1:], found[1:], strict=True):
            if digests[seed] != found[0][seed]:
                pair = HASH_SEEDS[0], hash_seed
                after = _equal_count(found[0][seed], digests[seed]) * DIGEST_EVENTS
                facts = _first_difference(seed, pair, shape)
                # One pair of courses is enough to see that they differ.
                different.append(Divergence(seed, pair, after, facts))
                break
    return different


def _arguments(first_seed: int, seeds: int, shape: Shape) -> tuple[str, ...]:
    return tuple(map(str, (first_seed, seeds, shape.nodes, shape.faults, int(shape.keyspaces))))


def _first_difference(seed: int, hash_seeds: tuple[int, int], shape: Shape) -> tuple[str, ...]:
    arguments = _arguments(seed, 1, shape)
    ours, theirs = (text.splitlines() for text in _outputs(hash_seeds, "facts", *arguments))
    for one, other in zip_longest(ours, theirs, fillvalue="(no more facts)"):
        if one != other:
            return one, other
    return ()


def _equal_count(ours: list[str], theirs: list[str]) -> int:
    count = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        count += 1
    return count


def _digests(output: str) -> dict[int, list[str]]:
    rows = (line.split() for line in output.splitlines())
    return {int(row[0]): row[1:] for row in rows}


def _outputs(hash_seeds: Sequence[int], *arguments: str) -> list[str]:
    """Return the output of one process for each hash seed; all run at the same time."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda hash_seed: _output(hash_seed, *arguments), hash_seeds))


def _output(hash_seed: int, *arguments: str) -> str:
    # A fresh interpreter must find this very package, also in a checkout that is not installed.
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    order = "backwards" if hash_seed % 2 else "forwards"
    done = subprocess.run(  # noqa: S603 - this program itself; the arguments are numbers
        [sys.executable, "-c", _CHILD, *arguments, order],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=PROCESS_S_MAX,
        check=True,
    )
    return done.stdout


def child(arguments: list[str]) -> None:
    """Run the plans in a process of the check, and write their digests."""
    what, first, count, nodes, faults, keyspaces, order = arguments
    shape = Shape(int(nodes), int(faults), keyspaces=keyspaces == "1")
    seeds = list(range(int(first), int(first) + int(count)))
    for seed in seeds if order == "forwards" else reversed(seeds):
        plan = shape.plan(seed)
        if what == "digests":
            sys.stdout.write(f"{seed} {' '.join(run(plan, seed).digests)}\n")
        else:
            found = run_of(plan, seed, keep_trace=True)
            with suppress(Exception):  # the facts before an exception can be compared, too
                found.finish()
            for at_us, process, effect in found.world.trace.records:
                sys.stdout.write(f"{seconds(at_us):.6f} {process.name} {effect!r}\n")
