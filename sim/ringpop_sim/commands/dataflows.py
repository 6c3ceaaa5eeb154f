"""``ringpop-sim dataflows``: random schedules of workers that exchange records in epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.commands.checkers import CheckerCommand
from ringpop_sim.flow.exchange.schedule import DATAFLOWS, WORKERS_MAX

if TYPE_CHECKING:
    import argparse

    from ringpop_sim import commands as c

_DATAFLOWS: Final = CheckerCommand(
    "dataflows",
    DATAFLOWS,
    "run random schedules of workers that exchange records in epochs, and show what broke",
    (
        "ringpop-sim dataflows --schedules 100000 --jobs 2",
        "ringpop-sim dataflows --schedules 1 --first 4711 --trace",
    ),
    str(WORKERS_MAX),
)


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    """See `Command`."""
    return _DATAFLOWS.add_parser(commands)


def main(options: argparse.Namespace) -> int:
    """See `Command`."""
    return _DATAFLOWS.main(options)
