"""Jobs for a cluster with keys: all that Spark does takes the file, and none of it goes without."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ConnectFailed
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.client.sync.client import Client
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.spark import (
    describe_keyspace,
    describe_ring,
    keyspace_snapshot,
    ring_snapshot,
    route,
    route_answers,
    shuffle,
    write_report,
)
from ringpop_py.spark.pipeline.progress import Display
from ringpop_py.spark.pipeline.run import run_pipeline
from ringpop_py.spark.pipeline.settings import load_pipeline
from tests.e2e.shuffle.cluster import ShuffleCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

ROWS = 2_000
PIPELINE = """
peers = ["{peer}"]
key = "key"
operation = "count"
job = "counted"
[source]
format = "parquet"
path = "{path}"
[keyspace]
name = "counts"
partitions = 8
[options]
clusterKeyFile = "{key}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def job(folder: Path) -> str:
    """A client's certificate, as a job has it."""
    key, path = str(folder / "cluster.key"), str(folder / "job.pem")
    write_keys(key, (new_key(),), replace=False)
    command = [sys.executable, "-m", "ringpop_py.edge.ctl.ringpopctl", "keys", "issue", key, path]
    subprocess.run([*command, "--name", "job"], check=True, capture_output=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def peer(folder: Path, job: str) -> Iterator[str]:
    key = str(folder / "cluster.key")
    flags = ["--cluster-key", key, "--app", "tests.spark.batch_app:create"]
    with ShuffleCluster(folder / "nodes", 2, *flags) as cluster, pytest.MonkeyPatch.context() as m:
        m.setenv(KEY_VARIABLE, job)
        cluster.wait_ready(2)
        m.delenv(KEY_VARIABLE)
        yield cluster.addresses[0]
        print(cluster.logs())  # shown if a test fails


def test_rings_and_routes(spark: SparkSession, peer: str, job: str) -> None:
    df = spark.range(ROWS).selectExpr("cast(id % 50 as string) as key")

    assert len(ring_snapshot(peer, cluster_key=job).ring) == 2
    assert describe_ring(spark, peer, cluster_key=job).count() == 2
    report = route(df, key="key", endpoint="/rows", peers=peer, cluster_key=job)
    assert report.rows_sent == ROWS
    answers = route_answers(
        df,
        key="key",
        endpoint="/lengths",
        schema="key string, length int",
        peers=peer,
        cluster_key=job,
    )
    assert answers.count() == 2 * ROWS
    with pytest.raises(ConnectFailed):
        ring_snapshot(peer)
    with pytest.raises(ConnectFailed):
        route(df, key="key", endpoint="/rows", peers=peer)


def test_a_pipeline(
    spark: SparkSession, peer: str, job: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, file = folder / "rows.parquet", folder / "job.toml"
    spark.range(ROWS).selectExpr("cast(id % 50 as string) as key").write.parquet(str(rows))
    file.write_text(PIPELINE.format(peer=peer, path=rows, key=job))
    told = io.StringIO()

    summary = run_pipeline(spark, load_pipeline(str(file), (), {}), display=Display(told))

    assert summary.rows == ROWS
    assert summary.ownership is not None
    assert sum(summary.ownership.keys.values()) == 50
    assert write_report("counts", "counted", peers=peer, cluster_key=job).applied
    assert keyspace_snapshot(peer, "counts", cluster_key=job).members
    assert describe_keyspace(spark, peer, "counts", cluster_key=job).count() == 8
    monkeypatch.setenv(KEY_VARIABLE, job)
    with Client(peer) as client:
        assert client.admin("/admin/keyspaces/show", {"name": "counts"})


@pytest.mark.parametrize("by_source", [False, True], ids=["function", "source"])
def test_a_shuffle(spark: SparkSession, peer: str, job: str, *, by_source: bool) -> None:
    df = spark.range(ROWS, numPartitions=3)
    name = f"sorted-{by_source}"
    if by_source:
        writer = df.write.format("ringpop").option("shuffle", name).option("by", "id")
        writer.options(peers=peer, clusterKeyFile=job).mode("append").save()
    else:
        assert shuffle(df, by="id", name=name, peers=peer, cluster_key=job).rows == ROWS

    with ShuffleClient.open(peer, name, cluster_key=job) as client:
        found = client.reader().read_all().column("id").to_pylist()
        assert found == [*range(ROWS)]
