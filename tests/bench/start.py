"""What a bare `ringpopd` takes to start: processor time until it listens, and resident memory.

Byte code is there, as after `bin/_environment` has set up. The floor is an interpreter that imports
trio and nothing of ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import Address
from tests.bench.clusters.processes import cpu_seconds, memory_bytes
from tests.bench.report import against_goal, smaller_is_better
from tests.bench.sides import START_S
from tests.e2e.local_cluster import LocalNode, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.report import Row

ROUNDS: Final = 15
CPU_GOAL_S: Final = 0.25
RSS_GOAL_MB: Final = 40.0
SETTLES_S: Final = 1.0
FLOOR: Final = "import trio"
MB: Final = 1e6


def run() -> Iterator[Row]:
    """The rows of `start`."""
    ours, floors, resident = [], [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cache = f"PYTHONPYCACHEPREFIX={folder}"
        python = ("env", "-u", "PYTHONDONTWRITEBYTECODE", cache, sys.executable)
        for number in range(-1, ROUNDS):  # the first one writes the byte code
            cpu_s, rss_bytes = _node(Path(folder) / f"{number}.log", python)
            floor_s = _floor(python)
            if number >= 0:
                ours.append(cpu_s)
                floors.append(floor_s)
                resident.append(rss_bytes / MB)
    yield against_goal("start.cpu", median(ours), "CPU-s", CPU_GOAL_S)
    yield smaller_is_better("start.cpu", median(ours), "CPU-s", FLOOR, median(floors))
    yield against_goal("start.rss", median(resident), "MB", RSS_GOAL_MB)


def _node(log: Path, python: Sequence[str]) -> tuple[float, int]:
    """Seconds of a processor until a node listens, and its resident bytes a little later."""
    address = Address("127.0.0.1", 0)
    command = (*python, "-m", "ringpop_py.edge.cli.ringpopd", "--listen", str(address))
    node = LocalNode(address, log, command)
    node.start()
    try:
        wait_until(lambda: "listening" in log.read_text(), START_S, "listening")
        assert node.process is not None
        cpu_s = cpu_seconds([node.process.pid])
        time.sleep(SETTLES_S)
        return cpu_s, memory_bytes([node.process.pid], "Rss")
    finally:
        node.kill()


def _floor(python: Sequence[str]) -> float:
    with subprocess.Popen([*python, "-c", FLOOR]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime
