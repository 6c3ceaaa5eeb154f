"""``ringpop-sim swarm``: random plans, on all cores."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from ringpop_py.state.placement.definition import Mode
from ringpop_sim import commands as c
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import file_command, replay_command
from ringpop_sim.runs.cases import case_of, write_case
from ringpop_sim.runs.random_plans import FAULTS_DEFAULT, NODES_DEFAULT
from ringpop_sim.runs.run import Result, run
from ringpop_sim.runs.shrink import SHRINK_S, shrink
from ringpop_sim.runs.swarm import WORKER, Shape, SwarmSummary, swarm

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "run many random plans on all cores, and show what broke"
EXAMPLES: Final = (
    "ringpop-sim swarm --seeds 2000",
    "ringpop-sim swarm --for 600 --first 100000 --save failures/",
    "ringpop-sim swarm --seeds 200 --nodes 20 --format json",
    "ringpop-sim swarm --whole --for 300",
    "ringpop-sim swarm --whole --mode memory --partitions 16 --seeds 100",
    "ringpop-sim swarm --whole --expiring --nodes 5 --seeds 100",
)
SEEDS_DEFAULT: Final = 1000
WHOLE_NODES_DEFAULT: Final = 4
TOLD_MAX: Final = 5


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "swarm", SUMMARY, EXAMPLES)
    parser.add_argument("--seeds", type=c.count, metavar="N",
                        help=f"how many plans ({SEEDS_DEFAULT})")  # fmt: skip
    parser.add_argument("--for", dest="for_s", type=c.positive_seconds, metavar="S",
                        help="stop after so many seconds")  # fmt: skip
    parser.add_argument("--first", type=c.seed, default=0, help="the first seed (%(default)s)")
    parser.add_argument("--cores", type=c.count, metavar="N", help="worker processes (all cores)")
    parser.add_argument("--nodes", type=c.count, default=None,
                        help=f"({NODES_DEFAULT}; {WHOLE_NODES_DEFAULT} if whole)")  # fmt: skip
    parser.add_argument("--faults", type=c.count, default=FAULTS_DEFAULT,
                        help="faults of each plan, at least (%(default)s)")  # fmt: skip
    parser.add_argument("--whole", action="store_true",
                        help="whole daemons with a keyspace, whose store fails, too")  # fmt: skip
    parser.add_argument("--partitions", type=c.count, metavar="N",
                        help="of that keyspace (1 to 16, by the seed)")  # fmt: skip
    parser.add_argument("--mode", choices=get_args(Mode), help="of that keyspace (by the seed)")
    parser.add_argument("--expiring", action="store_true",
                        help="keys of that keyspace expire, and wall clocks jump")  # fmt: skip
    parser.add_argument("--no-shrink", action="store_true", help="do not look for smaller plans")
    parser.add_argument("--save", metavar="DIR", help="write a case of each failure to DIR")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    return parser


def main(options: argparse.Namespace) -> int:
    of_keyspace = options.partitions, options.mode, options.expiring
    if not options.whole and any(of_keyspace):
        raise PlanError("--partitions, --mode and --expiring are of a keyspace: give --whole, too")
    nodes = options.nodes or (WHOLE_NODES_DEFAULT if options.whole else NODES_DEFAULT)
    shape = Shape(nodes, options.faults, options.whole, *of_keyspace)
    seeds = options.seeds
    if seeds is None and options.for_s is None:
        seeds = SEEDS_DEFAULT
    # Before the swarm, which may take hours.
    directory = _directory(options.save)
    line = c.Progress(time.monotonic)
    summary = swarm(
        options.first,
        seeds,
        for_s=options.for_s,
        cores=options.cores,
        shape=shape,
        progress=lambda found: line.show(_progress(found, seeds)),
    )
    line.end()
    if options.format == "json":
        c.say_json(summary.as_json())
    else:
        c.say(_table(summary))
    for outcome in summary.failures[:TOLD_MAX]:
        c.mention(_told(outcome, shape, directory, smaller=not options.no_shrink))
    return c.OK if summary.ok else c.BROKEN


def _directory(name: str | None) -> Path | None:
    if name is None:
        return None
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror or error}") from None
    return Path(name)


def _progress(found: SwarmSummary, seeds: int | None) -> str:
    of = f" of {seeds}" if seeds else ""
    speed = found.plan_count / max(found.wall_s, 1e-9)
    broken = "; ".join(f"{name} with seed {seeds[0]}" for name, seeds in found.first.items())
    line = f"{found.plan_count}{of} plans, {speed:.0f} a second, {found.failed_count} failed"
    return f"{line}: {broken}" if broken else line


def _table(summary: SwarmSummary) -> str:
    value = summary.as_json()
    plans, seconds, cores = summary.plan_count, summary.wall_s, summary.core_count
    speed = f"{value['plans_per_s']:.1f} plans and {value['events_per_s']} events a second"
    lines = [
        f"{plans} plans in {seconds:.1f} s on {cores} cores: {speed}",
        f"{value['virtual_hours']} virtual hours; {summary.converged_count} ended as one cluster",
        "plans with " + ", ".join(f"{kind} {n}" for kind, n in summary.kinds.most_common()),
    ]
    if summary.ok:
        lines.append(c.good("every invariant held in every plan"))
    else:
        lines.append(c.bad(f"{summary.failed_count} plans broke an invariant"))
    for name, count in summary.broken.most_common():
        seeds = ", ".join(map(str, summary.first[name]))
        lines.append(f"  {name:<10} in {count} plans, first with seeds {seeds}")
    return "\n".join(lines)


def _told(outcome: Result, shape: Shape, directory: Path | None, *, smaller: bool) -> str:
    """Return what broke, the command to repeat it, and the smallest plan that does the same."""
    broken = outcome.broken[0]
    plan = shape.plan(outcome.seed)
    command = f"bin/ringpop-sim run random --seed {outcome.seed}"
    if shape.nodes != NODES_DEFAULT:
        command += f" --nodes {shape.nodes}"
    if shape.faults != FAULTS_DEFAULT or shape.keyspaces:
        command = replay_command(plan, outcome.seed)
    lines = [
        f"\nseed {outcome.seed}: {broken.invariant} at {broken.at_us / 1e6:.6f} s: {broken.detail}",
        f"replay: {command}",
    ]
    if broken.invariant == WORKER:  # running it here might end this process, too
        return "\n".join(lines)
    seed = outcome.seed
    if smaller:
        found = shrink(plan, seed, broken.invariant, budget_s=SHRINK_S)
        if found is None:
            return "\n".join([*lines, "it does not break here: it is not deterministic"])
        plan, seed = found.plan, found.seed
        count = len(plan.operations)
        lines.append(f"shrunk to {count} operations and {plan.nodes} nodes:")
        lines.append(replay_command(plan, seed))
    if directory is not None:
        path = directory / f"{broken.invariant}-{outcome.seed}.toml"
        write_case(case_of(plan, run(plan, seed)), path)
        lines.append(f"case: {file_command('replay', str(path))}")
    return "\n".join(lines)
