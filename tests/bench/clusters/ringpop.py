"""Ours: `ringpopd` with its log as JSON."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Final

from tests.bench.clusters.product import Changed, Seat, Seen, Up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PORT: Final = 3000
SEEN: Final = {  # by the status of its records
    "alive": Seen.ALIVE,
    "suspect": Seen.SUSPECT,
    "faulty": Seen.DEAD,
    "leave": Seen.LEFT,
    "tombstone": Seen.LEFT,
    "evicted": Seen.LEFT,
}


class Ringpop:
    """Our daemon; a hosts file names all nodes, as our documents say."""

    leave_signal = signal.SIGTERM
    tells_suspicions = True

    def missing(self) -> str | None:
        return None

    def command(self, seat: Seat, seats: Sequence[Seat], folder: Path) -> list[str]:
        hosts = folder / "hosts.txt"
        if not hosts.exists():
            hosts.write_text("".join(f"{other.host}:{PORT}\n" for other in seats))
        command = [sys.executable, "-m", "ringpop_py.edge.cli.ringpopd", "--preset", "lan"]
        command += ["--listen", f"{seat.host}:{PORT}", "--name", seat.name]
        return [*command, "--hosts", str(hosts), "--log-format", "json"]

    def read(self, line: str) -> Up | Changed | tuple[Changed, ...] | None:
        if not line.startswith("{"):
            return None
        said = json.loads(line)
        match said.get("event"):
            case "listening":
                return Up()
            case "member-changed":
                seen = Seen.DAMPED if said.get("damped") else SEEN[said["after"]]
                return Changed(said["member"], seen)
            case "members-changed":
                return tuple(
                    Changed(member, SEEN[status])
                    for status, members in said["members"].items()
                    for member in members
                )
            case _:
                return None
