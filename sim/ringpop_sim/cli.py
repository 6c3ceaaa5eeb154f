"""ringpop-sim: run, break and explain whole clusters in virtual time."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from ringpop_py.edge.cli.commands import command_parser
from ringpop_sim import commands as c
from ringpop_sim.commands import (
    determinism,
    replay,
    report,
    run,
    shrink,
    swarm,
    theory,
)
from ringpop_sim.commands.checkers import CHECKERS
from ringpop_sim.errors import PlanError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS: Final[tuple[c.Command, ...]] = (
    run,
    swarm,
    replay,
    shrink,
    report,
    determinism,
    theory,
    CHECKERS["journal"],
    CHECKERS["shuffle"],
    CHECKERS["dataflows"],
)
"""The subcommands, in the order of the help: most are modules."""

EPILOG: Final = """\
examples:
  ringpop-sim run split --seed 7 --nodes 20
  ringpop-sim swarm --seeds 2000
  ringpop-sim run --list

exit codes: 0 every invariant held, 1 one broke, 2 a bad plan or usage, 3 not deterministic.
Colours are left out if NO_COLOR is set or the output is not a terminal.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ringpop-sim; see ``--help``."""
    options = _parser().parse_args(argv)
    command: c.Command = options.command
    try:
        return command.main(options)
    except PlanError as error:
        c.mention(f"ringpop-sim: {error}")
        return c.BAD_PLAN
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has seen enough
        # Otherwise the flush when the interpreter ends would fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return c.OK


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = command_parser(
        "ringpop-sim",
        description="Run whole clusters of real nodes in virtual time, break them, and see why.",
        epilog=EPILOG,
    )
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(parsers).set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
