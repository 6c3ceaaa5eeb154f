"""``ringpop-sim determinism``: the same plans in processes with other hash seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.runs.determinism import HASH_SEEDS, Divergence, divergences
from ringpop_sim.runs.random_plans import FAULTS_DEFAULT, NODES_DEFAULT
from ringpop_sim.runs.swarm import Shape

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "check that random plans take the same course in fresh processes"
EXAMPLES: Final = (
    "ringpop-sim determinism --seeds 100",
    "ringpop-sim determinism --first 4711 --seeds 1",
)
SEEDS_DEFAULT: Final = 100


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "determinism", SUMMARY, EXAMPLES)
    parser.add_argument("--seeds", type=c.count, default=SEEDS_DEFAULT, metavar="N",
                        help="how many plans (%(default)s)")  # fmt: skip
    parser.add_argument("--first", type=c.seed, default=0, help="the first seed (%(default)s)")
    parser.add_argument("--nodes", type=c.count, default=NODES_DEFAULT, help="(%(default)s)")
    parser.add_argument("--faults", type=c.count, default=FAULTS_DEFAULT, help="(%(default)s)")
    parser.add_argument("--whole", action="store_true", help="whole daemons with a keyspace")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    return parser


def main(options: argparse.Namespace) -> int:
    shape = Shape(options.nodes, options.faults, options.whole)
    found = divergences(options.first, options.seeds, shape)
    if options.format == "json":
        c.say_json(
            {"ok": not found, "plans": options.seeds, "diverged": [one.seed for one in found]}
        )
    elif not found:
        hash_seeds = ", ".join(map(str, HASH_SEEDS))
        c.say(f"{options.seeds} plans took the same course under PYTHONHASHSEED {hash_seeds}")
    for one in found:
        c.mention(_told(one))
    return c.NOT_DETERMINISTIC if found else c.OK


def _told(one: Divergence) -> str:
    equal, other = one.hash_seeds
    head = f"seed {one.seed}: PYTHONHASHSEED {equal} and {other} differ after event"
    return "\n".join([f"{head} {one.after_event}", *(f"  {fact}" for fact in one.facts)])
