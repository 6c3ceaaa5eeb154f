"""``ringpop-sim keyspaces``: random plans of whole daemons with partitions, on all cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from ringpop_py.state.placement.definition import Mode
from ringpop_sim import commands as c
from ringpop_sim.commands.swarm import add_output, add_seeds, show
from ringpop_sim.runs.swarm import Shape

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "run random plans of whole daemons with partitions, and show what broke"
EXAMPLES: Final = (
    "ringpop-sim keyspaces --seeds 500",
    "ringpop-sim keyspaces --mode memory --nodes 6 --partitions 16 --for 60",
    "ringpop-sim keyspaces --first 4711 --seeds 1 --save failures/",
)
SEEDS_DEFAULT: Final = 200
NODES_DEFAULT: Final = 4
FAULTS_DEFAULT: Final = 4


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = c.parser_of(commands, "keyspaces", SUMMARY, EXAMPLES)
    add_seeds(parser, SEEDS_DEFAULT)
    parser.add_argument("--nodes", type=c.count, default=NODES_DEFAULT, help="(%(default)s)")
    parser.add_argument("--faults", type=c.count, default=FAULTS_DEFAULT,
                        help="the most faults of a plan, less one (%(default)s)")  # fmt: skip
    parser.add_argument("--partitions", type=c.count, metavar="N", help="(1 to 16, by the seed)")
    parser.add_argument("--mode", choices=get_args(Mode), help="(by the seed)")
    add_output(parser)
    return parser


def main(options: argparse.Namespace) -> int:
    if options.seeds is None and options.for_s is None:
        options.seeds = SEEDS_DEFAULT
    shape = Shape(
        options.nodes,
        options.faults,
        keyspaces=True,
        partitions=options.partitions,
        mode=options.mode,
    )
    return show(options, shape)
