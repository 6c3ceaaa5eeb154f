"""Runs of clusters under random faults, by hand: ``python -m tests.e2e.state --runs 200``."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.state.network import why_no_cuts
from tests.e2e.state.plans import FREE_OF_CUTS, KINDS, random_plan
from tests.e2e.state.run import NODES, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.state.run import Outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything held in all runs."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all is taken back
    reason = why_no_cuts()
    if reason is not None:
        print(f"without cuts and failures of the store: {reason}")
    kinds = options.faults or (KINDS if reason is None else FREE_OF_CUTS)
    options.folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    broken: list[int] = []
    try:
        for seed in range(options.first, options.first + options.runs):
            outcomes.append(_one_run(seed, kinds, options))
            if outcomes[-1].problems:
                broken.append(seed)
    except KeyboardInterrupt:
        print("interrupted")
    _print_figures(outcomes)
    if broken:
        print(f"broken: {len(broken)} of {len(outcomes)} runs, seeds {broken}")
    return 1 if broken else 0


def _one_run(seed: int, kinds: Sequence[str], options: argparse.Namespace) -> Outcome:
    """Run it and say what came of it; its folder stays if something does not hold."""
    folder = Path(tempfile.mkdtemp(prefix=f"run-{seed}-", dir=options.folder))
    rng = random.Random(seed)
    plan = random_plan(rng, nodes=NODES, duration_s=options.seconds, kinds=kinds)
    began_at = time.monotonic()
    outcome = run(folder, seed, plan, options.seconds, strategy=options.strategy)
    result = "holds" if not outcome.problems else f"BROKEN, see {folder}"
    print(
        f"seed {seed}: {outcome.done_count} done, {outcome.open_count} open, "
        f"{outcome.failed_count} failed, {time.monotonic() - began_at:.1f} s: {result}"
        f"  [{', '.join(map(str, plan))}]",
        flush=True,
    )
    for problem in outcome.problems:
        print(f"  {problem}", flush=True)
    if not outcome.problems:
        shutil.rmtree(folder)
    return outcome


def _print_figures(outcomes: Sequence[Outcome]) -> None:
    print(f"{len(outcomes)} runs, {sum(o.done_count for o in outcomes)} operations done,", end=" ")
    print(f"{sum(o.open_count for o in outcomes)} open,", end=" ")
    print(f"{sum(o.failed_count for o in outcomes)} failed")
    times: dict[str, list[float]] = {}
    for outcome in outcomes:
        for kind, time_s in outcome.unavailable_s:
            times.setdefault(kind, []).append(time_s)
        times.setdefault("(handoff of a partition)", []).extend(outcome.pauses_s)
    print("unavailable after a fault until all partitions served again, in seconds:")
    for kind, several in sorted(times.items()):
        if several:
            several.sort()
            middle, most = statistics.median(several), several[-1]
            high = several[int(len(several) * 0.95)]
            print(f"  {kind:26} {len(several):6} times, median {middle:.3f}", end=", ")
            print(f"95 % {high:.3f}, longest {most:.3f}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.state", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the seed of the first run")
    parser.add_argument("--seconds", type=float, default=6.0, help="of faults, in each run")
    parser.add_argument("--faults", nargs="+", choices=KINDS, help="these kinds only")
    parser.add_argument("--strategy", default="balanced")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "ringpop-runs",
        help="where runs have their stores and logs; those of broken runs stay there",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
