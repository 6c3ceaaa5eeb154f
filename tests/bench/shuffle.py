"""Shuffles: rows from Spark or from Arrow to readers without Spark, beside files and Spark itself.

All ways take turns in one run, on one machine: three nodes, each with a process for rows, and all
rows at two of them. What is read is counted, and its order is checked, before anything is reported.
`--help` says what can be chosen.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from ringpop_py.edge.cli.commands import count
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from tests.bench.choices import a_file, some_of
from tests.bench.report import against_goal, larger_is_better, smaller_is_better
from tests.bench.shuffles.lateness import lateness
from tests.bench.shuffles.puts import INTERVALS, MB, put_by_threads, table_of, through
from tests.bench.shuffles.spark import Files, dataframes, real
from tests.e2e.shuffle.cluster import ShuffleCluster, child_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from tests.bench.report import Row

PARTS: Final = ("dataframes", "real", "arrow", "put", "balance", "killed", "memory", "lateness")
NODES: Final = 3
PARTITIONS: Final = 8
SORT_GOALS: Final = {"int": 1.5, "text": 1.0}
MEMORY: Final = 128 << 20
MEMORY_OVER: Final = 1.2


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen of this benchmark."""
    group = parser.add_argument_group("shuffle")
    group.add_argument("--parts", type=some_of({part: part for part in PARTS}), default=PARTS,
                       metavar="PART,...", help=f"of: {', '.join(PARTS)} (all)")  # fmt: skip
    group.add_argument("--rows", type=count, default=10_000_000, metavar="COUNT",
                       help="how many rows of 24 bytes (10000000)")  # fmt: skip
    group.add_argument("--flights-3m", type=a_file, metavar="FILE",
                       help="data/flights-3m.parquet of the npm package vega-datasets (without: no"
                       " rows of it)")  # fmt: skip
    group.add_argument("--words", type=a_file, metavar="FILE",
                       help="a word a line, as Debian's wamerican-huge has them (without: none)",
                       )  # fmt: skip
    group.add_argument("--rounds", type=count, default=3, metavar="COUNT",
                       help="how often each is measured (3)")  # fmt: skip


def run(options: argparse.Namespace | None = None) -> Iterator[Row]:
    """The rows of `shuffle`."""
    parts = PARTS if options is None else options.parts
    rows = 10_000_000 if options is None else options.rows
    rounds = 3 if options is None else options.rounds
    files = Files() if options is None else Files(options.flights_3m, options.words)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for number, part in enumerate(parts):
            flags = ("--shuffle-memory", str(MEMORY)) if part == "memory" else ()
            with ShuffleCluster(Path(folder) / str(number), NODES, *flags) as cluster:
                cluster.wait_ready(NODES)
                part_of = partial(real, files) if part == "real" else _PARTS[part]
                yield from part_of(cluster, Path(folder), rows, rounds)


# From Arrow.


def _arrow(cluster: ShuffleCluster, folder: Path, rows: int, rounds: int) -> Iterator[Row]:
    from ringpop_demo.session import open_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with open_spark("bench", driver_memory="4g") as spark:
        for kind in ("int", "text"):
            table = table_of(rows if kind == "int" else rows // 2, kind)
            source = folder / f"arrow-{kind}"
            ds.write_dataset(table, source, format="parquet", max_rows_per_file=1 << 20,
                             max_rows_per_group=1 << 20)  # fmt: skip
            ours, theirs = [], []
            for number in range(-1, rounds):
                mine = through(cluster, table, f"{kind} {number}")
                df = spark.read.parquet(str(source))
                began = time.perf_counter()
                df.repartitionByRange(PARTITIONS, "key").sortWithinPartitions("key").write.format(
                    "noop"
                ).mode("overwrite").save()
                other = time.perf_counter() - began
                if number >= 0:
                    ours.append(mine)
                    theirs.append(other)
            name = "repartitionByRange, sortWithinPartitions, to nowhere"
            yield smaller_is_better(
                f"shuffle.arrow.{kind}", median(ours), "s", name, median(theirs), SORT_GOALS[kind]
            )


# Puts alone.

_RECEIVER: Final = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0)); print(server.getsockname()[1], flush=True)
connection, _ = server.accept(); buffer = bytearray(1 << 20)
with open(sys.argv[1], "wb") as file:
    while count := connection.recv_into(buffer): file.write(memoryview(buffer)[:count])
connection.sendall(b"!")
"""


def _put(cluster: ShuffleCluster, folder: Path, rows: int, rounds: int) -> Iterator[Row]:
    table = table_of(rows, "int").sort_by("key")
    size = table.nbytes / MB
    ours, theirs = [], []
    for number in range(-1, rounds):
        with ShuffleClient(cluster.addresses, f"put {number}") as client:
            client.create(table.schema, ["key"], intervals=INTERVALS)
            began = time.perf_counter()
            put_by_threads(cluster, client.name, table)
            mine = size / (time.perf_counter() - began)
            client.delete()
        other = size / _copied(folder, table)
        if number >= 0:
            ours.append(mine)
            theirs.append(other)
    name = "TCP copy to two receivers that write files"
    yield larger_is_better("shuffle.put", median(ours), "MB/s", name, median(theirs), 0.5)


def _copied(folder: Path, table: pa.Table) -> float:
    """Return the seconds in which the bytes of *table* are at two processes, in files."""
    data = [memoryview(buffer) for chunk in table.columns for part in chunk.chunks
            for buffer in part.buffers() if buffer is not None]  # fmt: skip
    receivers = [
        subprocess.Popen(
            [sys.executable, "-c", _RECEIVER, str(folder / f"copy-{number}")],
            stdout=subprocess.PIPE,
        )
        for number in range(2)
    ]
    ends = []
    for receiver in receivers:
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        ends.append(socket.create_connection(("127.0.0.1", port)))
    began = time.perf_counter()

    def send(end: socket.socket) -> None:
        for piece in data:
            end.sendall(piece)
        end.shutdown(socket.SHUT_WR)
        end.recv(1)

    threads = [threading.Thread(target=send, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    for end, receiver in zip(ends, receivers, strict=True):
        end.close()
        receiver.wait(10)
    return seconds


# Other promises.


def _balance(cluster: ShuffleCluster, _folder: Path, rows: int, _rounds: int) -> Iterator[Row]:
    rng = np.random.default_rng(2)
    kinds: dict[str, Callable[[int], Any]] = {
        "even": rng.random,
        "zipf": lambda size: rng.zipf(1.2, size).astype(np.float64),
        "normal": lambda size: rng.normal(size=size),
        "twenty": lambda size: rng.integers(0, 20, size).astype(np.float64),
    }
    for name, draw in kinds.items():
        table = pa.table({"key": draw(rows // 4)})
        with ShuffleClient(cluster.addresses, f"balance {name}") as client:
            client.create(table.schema, ["key"], intervals=256)
            client.end(put_by_threads(cluster, client.name, table))
            sizes = [interval.rows for interval in client.intervals]
            client.delete()
        over = max(sizes) * len(sizes) / sum(sizes)
        yield against_goal(f"shuffle.balance.{name}", over, "of the mean", 1.05)


def _killed(cluster: ShuffleCluster, _folder: Path, rows: int, rounds: int) -> Iterator[Row]:
    table = table_of(rows, "int")
    calm, killed = [], []
    for number in range(rounds):
        calm.append(through(cluster, table, f"calm {number}"))

        def kill() -> None:
            cluster[1].signal(signal.SIGKILL)

        timer = threading.Timer(calm[-1] / 3, kill)
        timer.start()
        killed.append(through(cluster, table, f"killed {number}"))
        timer.join()
        assert cluster[1].process is not None
        cluster[1].process.wait(10)
        cluster[1].start()
        cluster.wait_ready(NODES)
    over = median(killed) / median(calm)
    yield against_goal("shuffle.killed", over, "of the time without", 1.5)


def _memory(cluster: ShuffleCluster, _folder: Path, rows: int, _rounds: int) -> Iterator[Row]:
    # Ten times the setting passes each node, which has its share of the rows twice.
    table = table_of(max(rows, 10 * MEMORY // 24), "int")
    base = _peaks(cluster)
    through(cluster, table, "memory")
    over = max(peak - before for peak, before in zip(_peaks(cluster), base, strict=True)) / MEMORY
    yield against_goal("shuffle.memory", over, "of --shuffle-memory", MEMORY_OVER)


def _peaks(cluster: ShuffleCluster) -> list[int]:
    """Return the most memory that each process for shuffles has had, in bytes."""
    peaks = []
    for node in cluster.nodes:
        status = Path(f"/proc/{child_of(node)}/status").read_text()
        [line] = [each for each in status.splitlines() if each.startswith("VmHWM")]
        peaks.append(int(line.split()[1]) * 1024)
    return peaks


_PARTS: Final[dict[str, Callable[[ShuffleCluster, Path, int, int], Iterator[Row]]]] = {
    "dataframes": dataframes,
    "arrow": _arrow,
    "put": _put,
    "balance": _balance,
    "killed": _killed,
    "memory": _memory,
    "lateness": lateness,
}
