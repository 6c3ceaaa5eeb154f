"""Nodes come, go and die while a job is staged, and its totals stay those of Spark."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator  # noqa: TC003 - Spark pickles what is annotated
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # noqa: TC002
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_demo.cluster import Cluster, NodeProcess, free_addresses
from ringpop_py.client.sync.client import Client
from ringpop_py.spark import RingpopDataSource, keyspace_snapshot
from tests.spark.writes import TOTALS, contents, flights, fresh_name, staged_in, totals_of, writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

GATE_S = 60.0
POLL_S = 0.02
TASK_ROWS, BATCH_ROWS = 60_000, 1_000
"""Rows come to a task by way of buffers, in full batches: there have to be enough of them."""


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, BATCH_ROWS)
    yield
    assert before is not None
    spark.conf.set(setting, before)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test."""
    with Cluster(tmp_path, 3, store=tmp_path / "store") as started:
        yield started


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + GATE_S
    while not condition():
        assert time.monotonic() < until, f"not in time: {what}"
        time.sleep(POLL_S)


def write_while(
    spark: SparkSession,
    cluster: Cluster,
    keyspace: str,
    happen: Callable[[], None],
    timeout: int = 60,
) -> None:
    """Write `flights`; *happen* is called when half of the rows are staged, and not all are there.

    Each task waits in the middle of its rows for a file that is made after that.
    """
    gate = cluster.hosts.parent / "gate"
    gate_path, gate_s, poll_s, half = str(gate), GATE_S, POLL_S, TASK_ROWS // BATCH_ROWS // 2

    def halting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            until = time.monotonic() + gate_s
            while number >= half and not Path(gate_path).exists() and time.monotonic() < until:
                time.sleep(poll_s)
            yield batch

    spark.dataSource.register(RingpopDataSource)
    df = flights(spark, 2 * TASK_ROWS, tasks=2)
    halted = df.mapInArrow(halting, df.schema)
    options = {"operation": TOTALS, "flushRows": 5_000, "flushBytes": "1k", "timeout": timeout}

    def meanwhile() -> None:
        try:
            wait_until(lambda: known_staged(cluster, keyspace), "something is staged")
            happen()
        finally:
            gate.touch()

    with ThreadPoolExecutor(1) as pool:
        happening = pool.submit(meanwhile)
        # Here, as other threads have sessions of their own, which know of no source.
        writer(halted, cluster, keyspace, **options).save()
        happening.result()
    assert contents(cluster, keyspace) == totals_of(df)


def known_staged(cluster: Cluster, keyspace: str) -> bool:
    root = cluster.hosts.parent / "store" / "demo" / "keyspaces" / keyspace
    return root.is_dir() and bool(staged_in(cluster, keyspace))


def owners(cluster: Cluster, keyspace: str) -> set[str]:
    return set(keyspace_snapshot(cluster.addresses[0], keyspace).owners)


def joined(cluster: Cluster, name: str) -> NodeProcess:
    """One more node."""
    (address,) = free_addresses(1)
    args = [str(each) for each in cluster.nodes[0].process.args]  # type: ignore[union-attr]
    args[args.index("--listen") + 1] = address
    args[args.index("--name") + 1] = name
    log = cluster.hosts.parent / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    node = NodeProcess(name, address, log, process)
    cluster.nodes.append(node)  # which ends it
    return node


def test_an_owner_that_is_killed_in_the_middle_costs_nothing(
    spark: SparkSession, cluster: Cluster
) -> None:
    # The first one is also the daemon that all tasks and the driver speak to.
    write_while(spark, cluster, fresh_name(), lambda: cluster.kill(cluster.nodes[0]))

    assert len(cluster.running) == 2


def test_a_node_that_joins_and_one_that_drains_in_the_middle_cost_nothing(
    spark: SparkSession, cluster: Cluster
) -> None:
    name = fresh_name()

    def happen() -> None:
        joined(cluster, "node-4")
        with Client(cluster.nodes[1].address) as client:
            client.admin("/admin/member/drain")
        wait_until(
            lambda: owners(cluster, name) == {"node-1", "node-3", "node-4"}, "partitions move"
        )

    write_while(spark, cluster, name, happen)

    assert owners(cluster, name) == {"node-1", "node-3", "node-4"}


def test_a_node_that_is_cut_off_in_the_middle_and_comes_back_later_costs_nothing(
    spark: SparkSession, cluster: Cluster
) -> None:
    """By SIGSTOP: it answers nobody, and believes that nothing has changed when it goes on."""
    name, node = fresh_name(), cluster.nodes[1]

    write_while(spark, cluster, name, lambda: node.process.send_signal(signal.SIGSTOP), timeout=6)
    node.process.send_signal(signal.SIGCONT)

    by_node = [contents(Seen([each.address]), name) for each in cluster.nodes]
    assert by_node == [totals_of(flights(spark, 2 * TASK_ROWS))] * 3


class Seen(NamedTuple):
    """A cluster by way of some of its nodes."""

    addresses: list[str]
