"""A stream into a keyspace, by hand, while daemons are restarted: ``python -m tests.soak.spark``.

All the time one daemon after the other is ended and started again; every third time it is killed.
Now and then the stream, too, is stopped in the middle of a batch and goes on from its checkpoint.
In the end the totals in the keyspace have to be what Spark makes of all that was fed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from ringpop_demo.session import open_spark
from ringpop_py.base.errors import RingpopError
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import RingpopDataSource, stream_job, write_report
from tests.e2e.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.e2e.local_cluster import LocalNode

NODES = 3
KEYSPACE = "soak"
PARTITIONS = 32
KEYS = 20_000
FILE_ROWS = 10_000
FILES_A_BATCH_MAX = 20
SCHEMA = "tailnum string, delay bigint, distance double"
OPERATION = "delay=add,distance=max,flights=count"
KILL_EVERY = 3
TELL_S = 60.0
DIFFERENCES_SHOWN_MAX = 10


class Background:
    """Something that goes on in a thread of its own while the block lasts."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Have it end; what it was about to do is done."""
        self._stop.set()
        self._thread.join()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - whoever waits looks at it
            self.error = error

    def run(self) -> None:
        raise NotImplementedError


class RollingRestart(Background):
    """Ends the nodes of *cluster* in turn, and starts each again before the next one."""

    def __init__(self, cluster: LocalCluster, rng: random.Random, pause_s: float = 4.0) -> None:
        super().__init__()
        self._cluster = cluster
        self._rng = rng
        self._pause_s = pause_s
        self.restarts_count = 0
        self.kills_count = 0
        self.slowest_s = 0.0

    def run(self) -> None:
        while True:
            for node in self._cluster.nodes:
                if self._stop.wait(self._pause_s * self._rng.uniform(0.5, 1.5)):
                    return
                self._restart(node)

    def _restart(self, node: LocalNode) -> None:
        if self.restarts_count % KILL_EVERY == KILL_EVERY - 1:
            node.kill()
            self.kills_count += 1
            self._stop.wait(self._rng.uniform(0.0, 2.0))
        else:
            node.stop()
        node.start()
        self.restarts_count += 1
        self.slowest_s = max(self.slowest_s, self._cluster.wait_converged(timeout_s=120))


class Feeder(Background):
    """Puts files of rows into *folder*, one every *every_s* seconds."""

    def __init__(self, folder: Path, rng: random.Random, every_s: float) -> None:
        super().__init__()
        folder.mkdir()
        self._folder = folder
        self._numpy = np.random.default_rng(rng.getrandbits(64))
        self._every_s = every_s
        self.files_count = 0

    def run(self) -> None:
        while not self._stop.wait(self._every_s):
            # Skewed, as keys are: a few of them in every second row.
            ranks = np.minimum(self._numpy.zipf(1.3, FILE_ROWS), KEYS) - 1
            delays = pa.array(self._numpy.integers(-30, 300, FILE_ROWS))
            distances = pa.array(self._numpy.integers(50, 5_000, FILE_ROWS).astype(float))
            columns = {
                "tailnum": [f"N{rank}" for rank in ranks],
                "delay": delays,
                "distance": distances,
            }
            path = self._folder / f"{self.files_count:06}.parquet"
            hidden = path.with_name(f".{path.name}")
            pq.write_table(pa.table(columns), hidden)
            hidden.rename(path)
            self.files_count += 1


@dataclass
class Figures:
    """What came of it so far.

    Attributes:
        batches: seconds and rows of each, by its number; the last try's.
        failures: why the stream ended, each time that nobody wanted it to.
    """

    batches: dict[int, tuple[float, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    stream_restarts_count: int = 0

    def take(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if progress.numInputRows:
                seconds = progress.durationMs["triggerExecution"] / 1_000
                self.batches[progress.batchId] = seconds, progress.numInputRows


class Stream:
    """The query, which goes on from its checkpoint whatever ends it."""

    def __init__(self, spark: SparkSession, folder: Path, peers: str) -> None:
        self._spark = spark
        self._folder = folder
        self._peers = peers
        self.figures = Figures()
        self.query = self._started()

    def _started(self) -> StreamingQuery:
        reading = self._spark.readStream.schema(SCHEMA)
        df = reading.option("maxFilesPerTrigger", FILES_A_BATCH_MAX).parquet(
            str(self._folder / "in")
        )
        writing = df.writeStream.format("ringpop").trigger(processingTime="1 second")
        options = {
            "keyspace": KEYSPACE,
            "key": "tailnum",
            "peers": self._peers,
            "operation": OPERATION,
        }
        checkpoint = str(self._folder / "checkpoint")
        return writing.options(**options, checkpointLocation=checkpoint).start()

    def look_after(self) -> None:
        """Take the figures; start it again if it has ended."""
        self.figures.take(self.query)
        if self.query.isActive:
            return
        reason = str(self.query.exception())
        self.figures.failures.append(reason)
        print(f"THE STREAM HAS ENDED: {reason}", flush=True)
        self.query = self._started()

    def restart(self) -> None:
        """Stop it wherever it is, and have it go on."""
        self.figures.take(self.query)
        self.query.stop()
        self.figures.stream_restarts_count += 1
        self.query = self._started()

    def drain(self) -> None:
        """Wait until all files are in, and end it.

        The figures do not tell: they lack a batch in which the stream was stopped.
        """
        while True:
            try:
                self.query.processAllAvailable()
            except StreamingQueryException:
                self.look_after()
            else:
                break
        self.figures.take(self.query)
        self.query.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if the totals are right, and the stream never ended by itself."""
    options = _parser().parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=options.folder))
    print(f"in {folder}, seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    flags = ("--preset", "local", "--cluster", "soak", "--store", str(folder / "store"))
    with (
        LocalCluster(folder, NODES, *flags) as cluster,
        open_spark("soak", folder=folder, quick_start=False) as spark,
    ):
        cluster.wait_converged()
        ok = _soak(spark, cluster, folder, rng, options)
    if ok:
        shutil.rmtree(folder)
    return 0 if ok else 1


def _soak(
    spark: SparkSession,
    cluster: LocalCluster,
    folder: Path,
    rng: random.Random,
    options: argparse.Namespace,
) -> bool:
    with Client(cluster[0].address) as client:
        client.admin("/admin/keyspaces/create", {"name": KEYSPACE, "partitions": PARTITIONS})
    spark.dataSource.register(RingpopDataSource)
    began_at = time.monotonic()
    with Feeder(folder / "in", rng, options.feed_s) as feeder, RollingRestart(cluster, rng) as roll:
        stream = Stream(spark, folder, ",".join(cluster.addresses))
        told_at = restarted_at = time.monotonic()
        while (now := time.monotonic()) < began_at + options.minutes * 60:
            time.sleep(0.5)
            stream.look_after()
            for background in (feeder, roll):
                if background.error is not None:
                    raise background.error
            if now > restarted_at + options.stream_s:
                stream.restart()
                restarted_at = time.monotonic()
            if now > told_at + TELL_S:
                _tell(stream.figures, roll, now - began_at)
                told_at = now
        feeder.end()
        stream.drain()
    cluster.wait_converged(timeout_s=60)
    _tell(stream.figures, roll, time.monotonic() - began_at)
    _print_writes(cluster, str(stream.query.id), len(stream.figures.batches))
    _print_sizes(cluster, folder)
    differences = _differences(spark, cluster, folder)
    fed = feeder.files_count * FILE_ROWS
    print(f"{fed:,} rows were fed; keys with other totals than Spark's: {len(differences)}")
    for difference in differences[:DIFFERENCES_SHOWN_MAX]:
        print(f"  {difference}")
    for failure in stream.figures.failures:
        print(f"the stream ended by itself: {failure}")
    return not differences and not stream.figures.failures


def _tell(figures: Figures, roll: RollingRestart, seconds: float) -> None:
    times = [seconds for seconds, _ in figures.batches.values()] or [0.0]
    rows = sum(rows for _, rows in figures.batches.values())
    print(
        f"{seconds / 60:5.1f} min: {rows:,} rows in {len(figures.batches):,} batches"
        f" (median {statistics.median(times):.1f} s, slowest {max(times):.1f} s);"
        f" {roll.restarts_count} restarts of daemons, {roll.kills_count} by kill -9"
        f" (slowest until all agreed {roll.slowest_s:.1f} s);"
        f" {figures.stream_restarts_count} of the stream; it ended by itself"
        f" {len(figures.failures)} times",
        flush=True,
    )


def _print_writes(cluster: LocalCluster, query_id: str, batches_count: int) -> None:
    """What tasks and the cluster say of the batches."""
    peers = cluster.addresses
    retries, files, changes, missing = 0, 0, 0, 0
    for batch in range(batches_count):
        try:
            report = write_report(KEYSPACE, stream_job(query_id, batch), peers=peers)
        except RingpopError as error:
            print(f"no report on batch {batch}: {error}")
            missing += 1
            continue
        retries, files = retries + report.retries, files + report.files
        changes += report.staged_rows
    print(
        f"{changes:,} changes in {files:,} stage files; {retries} retries by tasks;"
        f" {missing} batches without a report"
    )


def _print_sizes(cluster: LocalCluster, folder: Path) -> None:
    paths = [path for path in (folder / "store").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in paths)
    staged = sum("/jobs/staged/" in str(path) for path in paths)
    print(f"the store: {len(paths):,} files, {size / 1e6:.0f} MB; {staged} of them staged")
    for node in cluster.nodes:
        assert node.process is not None
        status = Path(f"/proc/{node.process.pid}/status")
        if status.exists():
            lines = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
            print(f"{node.name}: {' '.join(lines)}")


def _differences(spark: SparkSession, cluster: LocalCluster, folder: Path) -> list[str]:
    df = spark.read.schema(SCHEMA).parquet(str(folder / "in"))
    grouped = df.groupBy("tailnum").agg(F.sum("delay"), F.max("distance"), F.count("*"))
    wanted: dict[str, Any] = {
        key: {"delay": delay, "distance": distance, "flights": flights}
        for key, delay, distance, flights in grouped.collect()
    }
    with Client(cluster[0].address) as client, KeyspaceClient(client, KEYSPACE) as keyspace:
        held = dict(keyspace.scan(timeout_s=60))
    odd = [key for key in sorted(wanted.keys() | held.keys()) if held.get(key) != wanted.get(key)]
    return [f"{key}: {held.get(key)!r}, and by Spark {wanted.get(key)!r}" for key in odd]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.spark", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--feed-s", type=float, default=1.0, help="seconds from file to file")
    parser.add_argument("--stream-s", type=float, default=90.0, help="how long a stream runs")
    parser.add_argument("--folder", type=Path, help="where its own folder is made")
    return parser


if __name__ == "__main__":
    sys.exit(main())
