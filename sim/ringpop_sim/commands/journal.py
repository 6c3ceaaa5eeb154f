"""``ringpop-sim journal``: random schedules of journals, one a node for all its partitions."""

from __future__ import annotations

from typing import Final

from ringpop_sim.commands.checkers import CheckerCommand
from ringpop_sim.state.journal.schedule import JOURNAL

COMMAND: Final = CheckerCommand(
    "journal",
    JOURNAL,
    "run random schedules of the nodes' journals, and show what broke",
    (
        "ringpop-sim journal --schedules 60000 --jobs 2",
        "ringpop-sim journal --schedules 1 --first 4711 --trace",
        "ringpop-sim journal --nodes 4 --format json",
    ),
    "2 to 4",
)
add_parser = COMMAND.add_parser
main = COMMAND.main
