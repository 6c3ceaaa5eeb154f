"""``ringpop-sim shrink``: the smallest plan that breaks the same invariant."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import replay_command
from ringpop_sim.runs.cases import case_of, read_case, write_case
from ringpop_sim.runs.run import run
from ringpop_sim.runs.shrink import SHRINK_S, shrink

if TYPE_CHECKING:
    import argparse

    from ringpop_sim.plans.plan import Plan

SUMMARY: Final = "search for the smallest plan that breaks the same invariant"
EXAMPLES: Final = (
    "ringpop-sim shrink failures/S4-4711.toml",
    "ringpop-sim shrink random --seed 4711",
    "ringpop-sim shrink my-plan.toml --seed 7 --invariant L1 --for 60 --save small.toml",
)


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "shrink", SUMMARY, EXAMPLES)
    parser.add_argument("plan", metavar="CASE", help="a case, or a plan as for run, with --seed")
    parser.add_argument("--seed", type=c.seed, help="seed of a plan; a case has its own")
    parser.add_argument("--nodes", type=c.count, metavar="N", help="how many nodes")
    parser.add_argument("--invariant", metavar="NAME", help="what to break (the first that breaks)")
    parser.add_argument("--for", dest="for_s", type=c.positive_seconds, default=SHRINK_S,
                        metavar="S", help="stop after S seconds (%(default)s)")  # fmt: skip
    parser.add_argument("--save", metavar="FILE", help="write the smallest case to FILE")
    return parser


def main(options: argparse.Namespace) -> int:
    plan, seed = _plan_and_seed(options)
    outcome = run(plan, seed)
    if not outcome.broken:
        c.say("nothing breaks, so there is nothing to shrink")
        return c.OK
    invariant = options.invariant or outcome.broken[0].invariant
    line = c.Progress(time.monotonic)
    found = shrink(
        plan,
        seed,
        invariant,
        budget_s=options.for_s,
        progress=lambda p: line.show(f"{len(p.operations)} operations, {p.nodes} nodes"),
    )
    line.end()
    if found is None:
        raise PlanError(f"{invariant} does not break; {', '.join(outcome.invariants)} does")
    before = f"{len(plan.operations)} operations and {plan.nodes} nodes"
    after = f"{len(found.plan.operations)} operations and {found.plan.nodes} nodes"
    ending = "" if found.finished else " (the time was over)"
    c.mention(
        f"{invariant}: from {before} to {after}, {found.tried_count} runs in "
        f"{found.wall_s:.1f} s{ending}\nat {found.broken.at_us / 1e6:.6f} s: {found.broken.detail}"
    )
    c.say(replay_command(found.plan, found.seed))
    if options.save:
        # Run once more, because the search keeps no digest.
        write_case(case_of(found.plan, run(found.plan, found.seed)), options.save)
    return c.BROKEN


def _plan_and_seed(options: argparse.Namespace) -> tuple[Plan, int]:
    """Return the plan and its seed: that of --seed, or otherwise that of the case."""
    if options.seed is None and Path(options.plan).is_file():
        case = read_case(options.plan)
        return case.plan, case.seed
    seed = 1 if options.seed is None else options.seed
    return c.found_plan(options.plan, seed, options.nodes), seed
