"""``ringpop-sim shuffle``: random schedules of a shuffle, or every death at every step of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim import commands as c
from ringpop_sim.commands.checkers import CheckerCommand
from ringpop_sim.flow.shuffle.deaths import DEATHS, NODES, cases
from ringpop_sim.flow.shuffle.schedule import SHUFFLE, STORED

if TYPE_CHECKING:
    import argparse

_RANDOM: Final = CheckerCommand(
    "shuffle",
    SHUFFLE,
    "run random schedules of a shuffle, or every death at every step of one, and show what broke",
    (
        "ringpop-sim shuffle --schedules 38000 --jobs 2",
        "ringpop-sim shuffle --deaths --jobs 2",
        "ringpop-sim shuffle --store --jobs 2",
        "ringpop-sim shuffle --schedules 1 --first 4711 --trace",
    ),
    "3 to 5",
)
_STORED: Final = CheckerCommand("shuffle --store", STORED, "", (), "3 to 5")
_DEATHS: Final = CheckerCommand("shuffle --deaths", DEATHS, "", (), str(NODES))


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    parser = _RANDOM.add_parser(commands)
    parser.add_argument(
        "--deaths",
        action="store_true",
        help="a small shuffle, with each death of each member before each of its events;"
        " --schedules and --first choose among these cases (by default all of them)",
    )
    parser.add_argument(
        "--store",
        action="store_true",
        help="with frames in the store, instead of at a replica; all members may die together",
    )
    return parser


def main(options: argparse.Namespace) -> int:
    if options.deaths and options.store:
        c.mention("ringpop-sim: --deaths or --store, not both")
        return c.BAD_PLAN
    if not options.deaths:
        return (_STORED if options.store else _RANDOM).main(options)
    if options.schedules is None:
        options.schedules = len(cases(options.nodes or NODES)) - options.first
    return _DEATHS.main(options)
