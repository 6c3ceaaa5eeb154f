"""Keyspaces: what a put, a checkpoint, a handoff and a take-over take.

Durable figures depend on the disk: each stands beside what the same disk does at least, or beside a
product on the same disk, measured in turns. `--help` says what can be chosen.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.choices import a_folder, some_of
from tests.bench.keyspaces.nodes import hush

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tests.bench.report import Row

PARTS: Final = {
    "single": "puts.singles",
    "random": "random_keys.random_keys",
    "groups": "puts.groups",
    "rates": "puts.rates",
    "peers": "peers.peers",
    "calls": "calls.calls",
    "checkpoints": "checkpoints.checkpoints",
    "million": "checkpoints.million",
    "lag": "lag.lag",
    "start": "moves.start",
    "handoff": "moves.handoff",
    "handover": "handover.handover",
    "takeover": "handover.takeover",
    "crash": "moves.crash",
    "silence": "moves.silence",
    "placement": "placement.placement",
    "changes": "changes.changes",
    "local": "local.local",
    "members": "members.members",
    "services": "services.services",
}
"""What can be measured, and the function that does; each has a folder for itself."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen of this benchmark."""
    group = parser.add_argument_group("state", "All of it takes about eight minutes.")
    group.add_argument(
        "--parts",
        type=some_of(PARTS),
        default=tuple(PARTS),
        metavar="PART,...",
        help=f"of: {', '.join(PARTS)} (all)",
    )
    group.add_argument(
        "--folder",
        type=a_folder,
        default=tempfile.gettempdir(),
        metavar="FOLDER",
        help="a folder of the file system to measure on (that of temporary files)",
    )


def run(options: argparse.Namespace) -> Iterator[Row]:
    """The rows of `state`."""
    hush()
    for name in options.parts:
        _tell(f"{name}, load {os.getloadavg()[0]:.1f} ...")
        module, _, function = PARTS[name].partition(".")
        measure = getattr(import_module(f"tests.bench.keyspaces.{module}"), function)
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as folder:
            yield from measure(Path(folder))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
