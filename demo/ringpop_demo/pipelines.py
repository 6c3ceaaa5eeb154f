"""Two pipelines into keyspaces: a batch, and a stream during which a node is killed."""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_demo.flights import totals_by_spark
from ringpop_demo.texts import show_equality, title
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.edge.cli.pipeline import summary_text
from ringpop_py.spark.pipeline.plot import plot_page, write_page
from ringpop_py.spark.pipeline.progress import Display
from ringpop_py.spark.pipeline.settings import load_pipeline
from ringpop_py.spark.pipeline.target import PipelineTarget

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ringpop_demo.cluster import Cluster, NodeProcess
    from ringpop_demo.texts import Totals
    from ringpop_py.spark.pipeline.interrupts import Interrupts
    from ringpop_py.spark.pipeline.progress import Reading
    from ringpop_py.spark.pipeline.run import PipelineSummary
    from ringpop_py.spark.pipeline.settings import Pipeline

KILL_AFTER_BATCHES: Final = 2
KNOWN_S_MAX: Final = 60.0
READ_TIMEOUT_S: Final = 30.0


def run_batch(spark: SparkSession, cluster: Cluster, folder: Path, interrupts: Interrupts) -> bool:
    """Count all flights by aircraft; return whether the totals are right."""
    title("bin/ringpop-pipeline aircraft.toml: all flights into a keyspace")
    pipeline = _pipeline(cluster, folder, "aircraft")
    _run(spark, pipeline, interrupts)
    interrupts.check()
    print("the same totals as Spark's own groupBy?")
    return _compare(spark, cluster, pipeline)


def run_stream(
    spark: SparkSession,
    cluster: Cluster,
    folder: Path,
    interrupts: Interrupts,
    victim: NodeProcess,
    plot: Path,
) -> bool:
    """Count the flights by hour as a stream, and kill *victim*; return whether totals are right."""
    title(f"bin/ringpop-pipeline traffic.toml: by hour, as a stream; kill -9 {victim.name}")
    pipeline = _pipeline(cluster, folder, "traffic")
    killing = _Killing(cluster, victim)
    with ThreadPoolExecutor(1) as pool:
        deaths: list[Future[float]] = []

        def heed(reading: Reading) -> None:
            if reading.batches >= KILL_AFTER_BATCHES and not deaths:
                events.append((reading.at_s, f"kill -9 {victim.name}"))
                # In another thread, because the next reading waits for this function.
                deaths.append(pool.submit(killing.kill))

        events: list[tuple[float, str]] = []
        summary = _run(spark, pipeline, interrupts, heed)
        interrupts.check()
        # A short stream may have ended before enough batches; the node is killed all the same.
        known_s = (deaths[0] if deaths else pool.submit(killing.kill)).result()
    print(f"  all others know it is faulty after {known_s:.2f} s")
    print("the same totals as Spark's own groupBy, though a node died?", flush=True)
    equal = _compare(spark, cluster, pipeline)
    killing.show_successors(pipeline)
    first = summary_text(summary).splitlines()[0]
    head = "Flights by hour, and a node killed"
    page = plot_page(head, first, summary.readings, events, summary.times)
    print(write_page(plot.resolve(), page), flush=True)
    return equal


class _Killing:
    """What the end of one node changes in the cluster."""

    def __init__(self, cluster: Cluster, victim: NodeProcess) -> None:
        self._cluster = cluster
        self._victim = victim
        # Now, while the victim can still be asked.
        self._before = victim.ring().ring

    def kill(self) -> float:
        """Kill the node, and wait until all others know; return how many seconds that took."""
        killed_at = time.monotonic()
        self._cluster.kill(self._victim)
        print(f"  kill -9 {self._victim.name}", flush=True)
        self._cluster.wait_all(
            lambda node: node.statuses().get(self._victim.name) == "faulty",
            KNOWN_S_MAX,
            what=f"see {self._victim.name} as faulty",
        )
        return time.monotonic() - killed_at

    def show_successors(self, pipeline: Pipeline) -> None:
        """Print the new owners of its keys, on the ring and in the keyspace."""
        name = self._victim.name
        after = self._cluster.running[0].ring().ring
        keys = [f"key-{number}" for number in range(10_000)]
        successors = Counter(after.lookup(key) for key in keys if self._before.lookup(key) == name)
        strays = sum(self._before.lookup(key) not in {name, after.lookup(key)} for key in keys)
        shares = ", ".join(
            f"{successor} {count:,}" for successor, count in sorted(successors.items())
        )
        print(f"of 10,000 keys on the ring, its {successors.total():,} have new owners: {shares}")
        print(f"  keys of other nodes that changed owner: {strays:,}")
        partitions = PipelineTarget(pipeline.target, pipeline.keyspace).ownership().partitions
        owners = ", ".join(f"{owner} {count}" for owner, count in partitions.items())
        print(f"partitions of the keyspace, state and all: {owners}", flush=True)


def _pipeline(cluster: Cluster, folder: Path, name: str) -> Pipeline:
    """Print the file of that name beside this one, and return its pipeline."""
    path = Path(__file__).parent / f"{name}.toml"
    print(path.read_text("utf-8").partition("[report]")[0], flush=True)
    return load_pipeline(str(path), (), {"HOSTS": str(cluster.hosts), "FOLDER": str(folder)})


def _run(
    spark: SparkSession,
    pipeline: Pipeline,
    interrupts: Interrupts,
    heed: Callable[[Reading], None] | None = None,
) -> PipelineSummary:
    from ringpop_py.spark.pipeline.run import run_pipeline  # noqa: PLC0415 - pyspark takes a while

    display = Display(sys.stdout)
    summary = run_pipeline(spark, pipeline, display=display, interrupts=interrupts, heed=heed)
    print(summary_text(summary), flush=True)
    return summary


def _compare(spark: SparkSession, cluster: Cluster, pipeline: Pipeline) -> bool:
    """Return whether the keyspace has the totals of Spark's own groupBy."""
    from ringpop_py.spark.pipeline.frames import read_source  # noqa: PLC0415 - pyspark takes a while

    rows = read_source(spark, pipeline.source, stream=False)
    expected = totals_by_spark(rows, pipeline.key)
    held: Totals = {}
    with (
        Client(cluster.addresses[0], timeout_s=READ_TIMEOUT_S) as client,
        KeyspaceClient(client, pipeline.keyspace.name) as keyspace,
    ):
        for key, value in keyspace.scan():
            fields: Any = value
            held[key] = fields["flights"], fields["minutes"], fields["miles"]
    return show_equality(held, expected)
