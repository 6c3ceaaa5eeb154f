"""kinship of PyPI: a node that only tells of its events, in a Python of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.clusters.product import NOT_INSTALLED, Changed, Seat, Seen, Up

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHON_VARIABLE: Final = "RINGPOP_BENCH_KINSHIP_PYTHON"
"""Names a Python that has kinship; without it, our own is tried."""

PORT: Final = 7946
SEEDS_COUNT: Final = 3
IMPORT_TIMEOUT_S: Final = 30.0
SCRIPT: Final = Path(__file__).with_name("kinship_node.py")
SEEN: Final = {
    "MemberJoined": Seen.ALIVE,
    "MemberRecovered": Seen.ALIVE,
    "MemberSuspect": Seen.SUSPECT,
    "MemberDead": Seen.DEAD,
    "MemberLeft": Seen.LEFT,
}


class Kinship:
    """Its asyncio cluster, encrypted, as it is by default off loopback."""

    leave_signal = signal.SIGTERM
    tells_suspicions = True

    def __init__(self) -> None:
        self._python = os.environ.get(PYTHON_VARIABLE) or sys.executable

    def missing(self) -> str | None:
        if shutil.which(self._python) is None:
            return f"{NOT_INSTALLED} (no Python {self._python})"
        command = [self._python, "-P", "-c", "import kinship"]
        tried = subprocess.run(command, capture_output=True, check=False, timeout=IMPORT_TIMEOUT_S)
        return None if tried.returncode == 0 else NOT_INSTALLED

    def command(self, seat: Seat, seats: Sequence[Seat], folder: Path) -> list[str]:  # noqa: ARG002
        seeds = [f"{other.host}:{PORT}" for other in seats[:SEEDS_COUNT]]
        # -P: it is not to take this module for theirs.
        return [self._python, "-P", str(SCRIPT), seat.name, f"{seat.host}:{PORT}", *seeds]

    def read(self, line: str) -> Up | Changed | None:
        if not line.startswith("{"):
            return None
        said = json.loads(line)
        if said["event"] == "Up":
            return Up()
        assert said["event"] != "EventsLost", "kinship dropped events: its figures would be wrong"
        seen = SEEN.get(said["event"])
        return Changed(said["member"], seen) if seen else None
