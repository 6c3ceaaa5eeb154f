"""Streams into keyspaces: each batch counts once, however often Spark sends it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.client.jobs import JobClient
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import RingpopDataSource, stream_job, write_report
from tests.spark.writes import TOTALS, contents, fresh_name, options_for, totals_of, writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

SCHEMA = "tailnum string, delay bigint, distance double"
RUN_S = 120


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(RingpopDataSource)


def add_file(folder: Path, number: int) -> None:
    """Rows, as a file that becomes a batch."""
    rows = [
        {"tailnum": f"N{at % 40}", "delay": at * number, "distance": float(at % 7)}
        for at in range(number * 100, number * 100 + 300)
    ]
    text = "\n".join(map(json.dumps, rows))
    (folder / f"{number}.json").write_text(text, encoding="utf-8")


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    (folder / "in").mkdir()
    reading = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reading.json(str(folder / "in"))


def batch_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(SCHEMA).json(str(folder / "in"))


def run(
    df: DataFrame,
    cluster: Cluster,
    keyspace: str,
    folder: Path,
    operation: str = TOTALS,
    mode: str = "append",
) -> StreamingQuery:
    """Write all that is there, from where the last run ended."""
    writing = df.writeStream.format("ringpop").outputMode(mode).trigger(availableNow=True)
    options = options_for(cluster, keyspace, operation=operation)
    query = writing.options(**options, checkpointLocation=str(folder / "checkpoint")).start()
    assert query.awaitTermination(RUN_S)
    return query


def forget_commit(folder: Path, batch: int) -> None:
    """As if the driver had died before it wrote down that *batch* was done."""
    commits = folder / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink()


def test_a_stream_goes_on_from_its_checkpoint_and_a_batch_that_comes_again_changes_nothing(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    name, df = fresh_name(), stream_of(spark, tmp_path)
    add_file(tmp_path / "in", 1)
    add_file(tmp_path / "in", 2)

    query = run(df, durable_cluster, name, tmp_path)
    assert contents(durable_cluster, name) == totals_of(batch_of(spark, tmp_path))
    forget_commit(tmp_path, 1)
    add_file(tmp_path / "in", 3)
    run(df, durable_cluster, name, tmp_path)

    assert contents(durable_cluster, name) == totals_of(batch_of(spark, tmp_path))
    report = write_report(name, stream_job(str(query.id), 1), peers=durable_cluster.addresses)
    assert (report.rows, report.applied) == (300, True)


def test_a_batch_whose_job_the_cluster_gave_up_is_written_once_by_its_successor(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    name, df = fresh_name(), stream_of(spark, tmp_path)
    add_file(tmp_path / "in", 1)
    query = run(df, durable_cluster, name, tmp_path)
    job = stream_job(str(query.id), 1)
    with Client(durable_cluster.addresses[0]) as client, JobClient(client, name, job) as jobs:
        assert jobs.abort()
    add_file(tmp_path / "in", 2)

    run(df, durable_cluster, name, tmp_path)
    forget_commit(tmp_path, 1)
    run(df, durable_cluster, name, tmp_path)

    assert contents(durable_cluster, name) == totals_of(batch_of(spark, tmp_path))
    assert write_report(name, job, peers=durable_cluster.addresses).job == f"{job}~1"


def test_other_rows_under_the_number_of_a_batch_are_refused(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    name, df = fresh_name(), stream_of(spark, tmp_path)
    add_file(tmp_path / "in", 1)
    run(df, durable_cluster, name, tmp_path)
    restored = tmp_path / "restored"
    shutil.copytree(tmp_path / "checkpoint", restored)
    add_file(tmp_path / "in", 2)
    run(df, durable_cluster, name, tmp_path)
    written = contents(durable_cluster, name)
    shutil.rmtree(tmp_path / "checkpoint")
    restored.rename(tmp_path / "checkpoint")
    (tmp_path / "in" / "2.json").unlink()
    add_file(tmp_path / "in", 3)

    with pytest.raises(StreamingQueryException, match=r"OperationIdReused: .* 300 other rows"):
        run(df, durable_cluster, name, tmp_path)

    assert contents(durable_cluster, name) == written


def test_a_batch_without_a_row_that_takes_effect_comes_again_until_it_is_mended(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    name, df = fresh_name(), stream_of(spark, tmp_path)
    add_file(tmp_path / "in", 1)
    keys = spark.range(40).selectExpr("concat('N', id) tailnum")
    writer(keys.limit(0), durable_cluster, name, operation="delete").save()  # it makes the keyspace
    with Client(durable_cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        for at in range(40):
            held.put(f"N{at}", "text")

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"was not committed, as all of its 40"):
            run(df, durable_cluster, name, tmp_path)
    writer(keys, durable_cluster, name, operation="delete").save()
    add_file(tmp_path / "in", 2)
    run(df, durable_cluster, name, tmp_path)

    assert contents(durable_cluster, name) == totals_of(batch_of(spark, tmp_path))


def test_a_complete_result_is_put_again_with_each_batch(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    name, df = fresh_name(), stream_of(spark, tmp_path)
    counted = df.groupBy("tailnum").agg(F.count("*").alias("flights"))
    add_file(tmp_path / "in", 1)
    add_file(tmp_path / "in", 2)

    run(counted, durable_cluster, name, tmp_path, operation="put", mode="complete")

    counts = batch_of(spark, tmp_path).groupBy("tailnum").count().collect()
    assert contents(durable_cluster, name) == {key: {"flights": count} for key, count in counts}


@pytest.mark.parametrize(
    ("mode", "message"),
    [("complete", "use operation put, or output mode append"), ("update", "support Update mode")],
)
def test_a_result_that_would_be_added_again_is_refused(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path, mode: str, message: str
) -> None:
    counted = stream_of(spark, tmp_path).groupBy("tailnum").agg(F.count("*").alias("flights"))
    add_file(tmp_path / "in", 1)

    with pytest.raises(StreamingQueryException, match=message):
        run(counted, durable_cluster, fresh_name(), tmp_path, operation="add", mode=mode)


def test_a_stream_of_other_types_is_refused_before_its_first_batch(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    name, df = fresh_name(), stream_of(spark, tmp_path)
    add_file(tmp_path / "in", 1)
    text = spark.sql("select 'N1' tailnum, 'late' delay")
    writer(text, durable_cluster, name).save()

    with pytest.raises(StreamingQueryException, match="column 'delay': operation add would leave"):
        run(df, durable_cluster, name, tmp_path)

    assert contents(durable_cluster, name) == {"N1": {"delay": "late"}}


def test_a_keyspace_is_no_stream_to_read(
    spark: SparkSession, durable_cluster: Cluster, tmp_path: Path
) -> None:
    options = {"keyspace": "any", "peers": ",".join(durable_cluster.addresses)}
    df = spark.readStream.format("ringpop").schema("key string").options(**options).load()

    with pytest.raises(StreamingQueryException, match="a keyspace cannot be read as a stream"):
        df.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path)
        ).start().awaitTermination(RUN_S)
