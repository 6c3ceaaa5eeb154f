"""``ringpop-sim slotlog``: random schedules of one partition's log."""

from __future__ import annotations

from typing import Final

from ringpop_sim.commands.checkers import CheckerCommand
from ringpop_sim.slotlog.schedule import SLOTLOG

COMMAND: Final = CheckerCommand(
    "slotlog",
    SLOTLOG,
    "run random schedules of a partition's log, and show what broke",
    (
        "ringpop-sim slotlog --schedules 60000 --jobs 2",
        "ringpop-sim slotlog --schedules 1 --first 4711 --trace",
        "ringpop-sim slotlog --nodes 5 --format json",
    ),
    "3 or 5",
)
add_parser = COMMAND.add_parser
main = COMMAND.main
