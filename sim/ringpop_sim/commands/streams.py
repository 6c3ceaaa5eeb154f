"""``ringpop-sim streams``: random schedules of sources, readers and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.commands.checkers import CheckerCommand
from ringpop_sim.flow.streams.schedule import PARTITIONS, STREAMS

if TYPE_CHECKING:
    import argparse

    from ringpop_sim import commands as c

_STREAMS: Final = CheckerCommand(
    "streams",
    STREAMS,
    "run random schedules of sources that are read into partitions, and show what broke",
    (
        "ringpop-sim streams --schedules 100000 --jobs 2",
        "ringpop-sim streams --schedules 1 --first 4711 --trace",
    ),
    str(PARTITIONS),
)


def add_parser(commands: c.Parsers) -> argparse.ArgumentParser:
    """See `Command`."""
    return _STREAMS.add_parser(commands)


def main(options: argparse.Namespace) -> int:
    """See `Command`."""
    return _STREAMS.main(options)
