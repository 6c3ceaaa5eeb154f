"""HashiCorp's Serf: `serf agent` with its log, which is where it tells of its events."""

from __future__ import annotations

import re
import shutil
import signal
from typing import TYPE_CHECKING, Final

from tests.bench.clusters.product import NOT_INSTALLED, Changed, Seat, Seen, Up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PORT: Final = 7946
RPC_PORT: Final = 7373
UP: Final = "agent: Serf agent starting"
EVENT: Final = re.compile(r"serf: EventMember(Join|Failed|Leave|Reap): (\S+)")
SEEN: Final = {
    "Join": Seen.ALIVE,
    "Failed": Seen.DEAD,
    "Leave": Seen.LEFT,
    "Reap": Seen.LEFT,
}


class Serf:
    """Its agent, not encrypted, as by default; it does not tell of suspicions.

    All join the first, and that the second: nodes that start at once and join one of several form
    islands, which merge only with the next full exchange, 30 s later. It is asked again every
    second: by default it is 30, and who comes too early would decide the figures of the start.
    """

    leave_signal = signal.SIGINT  # on SIGTERM it just ends
    tells_suspicions = False

    def missing(self) -> str | None:
        return None if shutil.which("serf") else NOT_INSTALLED

    def command(self, seat: Seat, seats: Sequence[Seat], folder: Path) -> list[str]:  # noqa: ARG002
        command = ["serf", "agent", f"-node={seat.name}", f"-bind={seat.host}:{PORT}"]
        command += [f"-rpc-addr={seat.host}:{RPC_PORT}", "-profile=lan", "-retry-interval=1s"]
        seed = seats[0] if seat != seats[0] else seats[1]
        return [*command, f"-retry-join={seed.host}:{PORT}"]

    def read(self, line: str) -> Up | Changed | None:
        if UP in line:
            return Up()
        found = EVENT.search(line)
        return Changed(found[2], SEEN[found[1]]) if found else None
