"""How late nodes answer while rows of shuffles pass beside them, and while none do."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from ringpop_py.flow.shuffle.client.client import ShuffleClient
from tests.bench.report import Row, smaller_is_better
from tests.bench.shuffles.puts import INTERVALS, put_by_threads, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.shuffle.cluster import ShuffleCluster

IDLE_S: Final = 20.0
TIMES: Final = 20
"""So many times all rows pass: 10 million rows of 24 bytes are then 5 GB."""
TARGET: Final = 0.5
ASKER: Final = """
import sys, threading, time
from ringpop_py.client.sync.client import Client
nodes, took, over = [Client(each) for each in sys.argv[1:]], [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set())).start()
while not over.wait(0.01):
    for node in nodes:
        began = time.perf_counter()
        node.admin("/admin/node")
        took.append(time.perf_counter() - began)
print(sorted(took)[int(0.99 * len(took))])
"""
"""A process of its own, which waits for nothing but the nodes."""


def lateness(cluster: ShuffleCluster, _folder: Path, rows: int, _rounds: int) -> Iterator[Row]:
    """The 99th percentile of the time in which a node answers; membership waits as long."""
    idle = _Asker(cluster)
    time.sleep(IDLE_S)
    calm = idle.p99()
    table = table_of(rows, "int")
    asker = _Asker(cluster)
    for number in range(TIMES):
        with ShuffleClient(cluster.addresses, f"passes {number}") as client:
            client.create(table.schema, ["key"], intervals=INTERVALS)
            client.end(put_by_threads(cluster, client.name, table))
            client.delete()
    name = "the same while nothing passes"
    yield smaller_is_better("shuffle.lateness", asker.p99() * 1e3, "ms", name, calm * 1e3, TARGET)


class _Asker:
    """Asks all nodes something, again and again."""

    def __init__(self, cluster: ShuffleCluster) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ASKER, *cluster.addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def p99(self) -> float:
        """End; return within how many seconds 99 of 100 answers came."""
        return float(self._process.communicate(timeout=30)[0])
