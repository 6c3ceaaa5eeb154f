"""Batches into keyspaces: what is there is what Spark makes of the rows, whatever tasks do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator  # noqa: TC003 - Spark pickles what is annotated
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.base.errors import BadOperation, KeyspaceUnknown
from ringpop_py.client.jobs import JobClient
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import RingpopDataSource, WriteReport, stream_job, write_report
from ringpop_py.spark.source.patience import job_client
from ringpop_py.spark.source.writer import BatchWriter
from tests.spark.writes import (
    TOTALS,
    contents,
    flights,
    fresh_name,
    options_for,
    staged_in,
    totals_of,
    writer,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(durable_cluster: Cluster) -> Cluster:
    return durable_cluster


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(RingpopDataSource)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"distribution": "daemon", "flushRows": 1_000, "flushBytes": "1k", "maxInFlight": 1},
    ],
    ids=["owners", "daemon, in many files"],
)
def test_totals_are_those_of_spark(
    spark: SparkSession, cluster: Cluster, options: dict[str, object]
) -> None:
    df, name = flights(spark), fresh_name()

    writer(df, cluster, name, operation=TOTALS, **options).save()
    writer(df, cluster, name, operation=TOTALS, **options).save()

    assert contents(cluster, name) == totals_of(df, times=2)


def test_the_last_row_of_a_key_is_put_in_the_order_of_spark_partitions(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark).withColumn("row", F.monotonically_increasing_id()), fresh_name()

    writer(df, cluster, name, flushRows=1_000, flushBytes="1k").save()

    last = df.groupBy("tailnum").agg(F.max_by(F.struct("delay", "distance", "row"), "row"))
    assert contents(cluster, name) == {key: row.asDict() for key, row in last.collect()}


def test_one_column_is_the_value_or_the_argument(spark: SparkSession, cluster: Cluster) -> None:
    df, name = flights(spark), fresh_name()

    writer(df, cluster, name, operation="add", value="distance").save()

    sums = df.groupBy("tailnum").agg(F.sum("distance")).collect()
    assert contents(cluster, name) == {key: pytest.approx(total) for key, total in sums}


def test_keys_expire_when_a_column_says_and_it_is_not_part_of_their_values(
    spark: SparkSession, cluster: Cluster
) -> None:
    text = "TIMESTAMP '{}-01-01 00:00:00Z'"
    later, past = F.expr(text.format(2100)), F.expr(text.format(2001))
    until = F.when(F.col("id") == 0, later).when(F.col("id") == 1, past)
    df = spark.range(3).select(
        F.col("id").cast("string").alias("tailnum"), "id", until.alias("until")
    )
    name = fresh_name()

    writer(df, cluster, name, expiresAtField="UNTIL").save()
    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        while held.get("1") is not None:
            time.sleep(0.01)

        assert dict(held.scan()) == {"0": {"id": 0}, "2": {"id": 2}}
        assert (held.ttl("0") or 0) > 3_600
        assert held.ttl("2") is None


def test_keys_expire_so_many_seconds_after_their_rows_are_packed(
    spark: SparkSession, cluster: Cluster
) -> None:
    name = fresh_name()

    writer(flights(spark), cluster, name, expiresIn=3_600, job="a").save()
    with pytest.raises(AnalysisException, match=r"put,expiresIn=3600, and this is put"):
        writer(flights(spark), cluster, name, job="a").save()

    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        assert 3_000 < (held.ttl("N11") or 0) <= 3_600


def test_a_write_of_no_rows_is_a_write(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()

    writer(flights(spark).where("false"), cluster, name, job="none").save()

    assert contents(cluster, name) == {}
    assert write_report(name, "none", peers=cluster.addresses).rows == 0


# Tasks and jobs that fail.


def test_a_task_that_fails_half_way_is_repeated_and_its_rows_count_once(
    spark: SparkSession, cluster: Cluster
) -> None:
    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            message = "the first attempt fails, after all of its rows"
            raise RuntimeError(message)

    df, name = flights(spark), fresh_name()
    broken = df.mapInArrow(fails_once, df.schema)

    writer(
        broken, cluster, name, operation=TOTALS, flushRows=1_000, flushBytes="1k", job="twice"
    ).save()

    assert contents(cluster, name) == totals_of(df)
    assert write_report(name, "twice", peers=cluster.addresses).rows == 20_000
    assert staged_in(cluster, name) == []


def test_of_attempts_of_a_task_that_run_side_by_side_one_counts(
    spark: SparkSession, cluster: Cluster
) -> None:
    class Speculative(BatchWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:  # noqa: ANN401 - Spark's
            batches = list(iterator)
            first, second = (super(Speculative, self).write(iter(batches)) for _ in range(2))
            context = TaskContext.get()
            assert context is not None
            return first if context.partitionId() == 1 else second

    df, name = flights(spark), fresh_name()
    spark.dataSource.register(source_with(Speculative))

    writer(df, cluster, name, source="broken", operation=TOTALS).save()

    assert contents(cluster, name) == totals_of(df)
    assert staged_in(cluster, name) == []


def test_of_a_job_that_fails_nothing_is_ever_seen(spark: SparkSession, cluster: Cluster) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1:
            message = "the last task fails, always"
            raise RuntimeError(message)

    df, name = flights(spark, 2_000, tasks=2), fresh_name()
    broken = df.mapInArrow(fails, df.schema)

    with pytest.raises(PythonException, match="the last task fails, always"):
        writer(broken, cluster, name, operation=TOTALS, flushRows=100, flushBytes="1k").save()

    assert contents(cluster, name) == {}
    writer(df, cluster, name, operation=TOTALS).save()
    assert contents(cluster, name) == totals_of(df)


def test_a_job_that_is_repeated_by_its_name_changes_nothing(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark), fresh_name()
    writer(df, cluster, name, operation=TOTALS, job="monday").save()

    writer(df.repartition(2), cluster, name, operation=TOTALS, job="monday").save()

    assert contents(cluster, name) == totals_of(df)
    assert write_report(name, "monday", peers=cluster.addresses).rows == 20_000


def test_columns_that_are_not_written_do_not_matter_to_a_job_that_is_repeated(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark), fresh_name()

    for _ in range(2):
        rows = df.withColumns({"who": F.uuid(), "raw": F.expr("CAST(x'E974E9' AS STRING)")})
        writer(rows, cluster, name, operation="max", value="distance", job="monday").save()

    assert len(contents(cluster, name)) == 700


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("one row less", "'monday' was committed before with 2,000 rows, and these are 1,999"),
        ("as it is", "'monday' was committed before with 2,000 other rows. Nothing was written"),
    ],
)
def test_other_rows_under_the_name_of_a_job_are_refused(
    spark: SparkSession, cluster: Cluster, change: str, error: str
) -> None:
    df, name = flights(spark, 2_000), fresh_name()
    writer(df, cluster, name, operation=TOTALS, job="monday").save()
    others = df.exceptAll(df.limit(1))
    if change == "as it is":
        others = others.union(df.limit(1).withColumn("delay", F.lit(1_000).cast("bigint")))

    with pytest.raises(AnalysisException, match=f"OperationIdReused: job {error}"):
        writer(others, cluster, name, operation=TOTALS, job="monday").save()

    assert contents(cluster, name) == totals_of(df)


def test_another_operation_under_the_name_of_a_job_is_refused(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark), fresh_name()
    writer(df, cluster, name, operation="max", value="distance", job="monday").save()

    with pytest.raises(
        AnalysisException,
        match=r"'monday' was committed before with the operation max, and this is add. Nothing was",
    ):
        writer(df, cluster, name, operation="add", value="distance", job="monday").save()


def test_a_job_of_a_name_that_failed_can_be_repeated_by_its_name(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark, tasks=1), fresh_name()
    broken = df.withColumn("delay", F.expr("raise_error('no delay')").cast("bigint"))
    with pytest.raises(Exception, match="no delay"):
        writer(broken, cluster, name, operation=TOTALS, job="monday").save()

    writer(df, cluster, name, operation=TOTALS, job="monday").save()

    assert contents(cluster, name) == totals_of(df)


def test_a_job_that_the_cluster_gave_up_has_a_successor_that_counts_once(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark), fresh_name()
    writer(df.limit(0), cluster, name).save()
    with (
        Client(cluster.addresses[0]) as client,
        JobClient(client, name, "monday") as jobs,
    ):
        jobs.abort()

    for _ in range(2):
        writer(df, cluster, name, operation=TOTALS, job="monday").save()

    assert contents(cluster, name) == totals_of(df)
    assert write_report(name, "monday", peers=cluster.addresses).job == "monday~1"


def test_a_driver_that_dies_once_it_has_decided_loses_nothing(
    spark: SparkSession, cluster: Cluster
) -> None:
    class Dies(BatchWriter):
        def commit(self, messages: Any) -> None:  # noqa: ANN401 - Spark's
            with job_client(self._options.target, self._job) as client:
                client.commit([each.attempt for each in messages])
            message = "the driver is gone"
            raise RuntimeError(message)

    df, name = flights(spark), fresh_name()
    spark.dataSource.register(source_with(Dies))
    with pytest.raises(AnalysisException, match="the driver is gone"):
        writer(df, cluster, name, source="broken", operation=TOTALS, job="monday").save()

    writer(df, cluster, name, operation=TOTALS, job="monday").save()

    assert contents(cluster, name) == totals_of(df)


def source_with(made: type[BatchWriter]) -> type[RingpopDataSource]:
    """The source, as ``broken``, with that writer; pickled whole, as workers have no tests."""

    class Broken(RingpopDataSource):
        @classmethod
        def name(cls) -> str:
            return "broken"

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ANN401, FBT001 - Spark's
            sound = super().writer(schema, overwrite)
            assert isinstance(sound, BatchWriter)
            return made(sound._options, sound._job, named=sound._named)

    return Broken


# Rows.


def without_keys(spark: SparkSession, tasks: int = 3) -> DataFrame:
    """Of 20,000 rows 2,223 have no key."""
    key = F.when(F.col("delay").isNotNull(), F.col("tailnum"))
    return flights(spark, tasks=tasks).withColumn("tailnum", key)


def test_a_row_without_a_key_fails_the_job(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()

    with pytest.raises(AnalysisException, match="2,223 rows have no key in column"):
        writer(without_keys(spark), cluster, name, operation=TOTALS).save()

    assert contents(cluster, name) == {}


def test_text_that_is_not_utf_8_fails_the_job_with_what_to_do(
    spark: SparkSession, cluster: Cluster
) -> None:
    advice = {
        "CAST(text AS BINARY)": b"\xe9t\xe9",
        "decode(CAST(text AS BINARY), 'ISO-8859-1')": "été",
        "make_valid_utf8(text)": "\ufffdt\ufffd",
    }
    df, name = spark.sql("SELECT 'N1' AS tailnum, CAST(x'E974E9' AS STRING) AS text"), fresh_name()

    with pytest.raises(PythonException, match="column 'text' has text that is not UTF-8"):
        writer(df, cluster, name, operation="max", value="text").save()
    mended = (f"{sql} AS `{number}`" for number, sql in enumerate(advice))
    writer(df.selectExpr("tailnum", *mended), cluster, name).save()

    assert contents(cluster, name) == {"N1": dict(zip("012", advice.values(), strict=True))}


def test_a_map_with_a_key_twice_fails_the_job_with_what_to_do(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    maps = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"tailnum": ["N1"], "m": maps}), tmp_path / "maps.parquet")
    df, name = spark.read.parquet(str(tmp_path / "maps.parquet")), fresh_name()

    with pytest.raises(PythonException, match="column 'm' has a map with key 'a' twice"):
        writer(df, cluster, name, value="m").save()
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        anew = df.selectExpr("tailnum", "map_from_entries(map_entries(m)) AS m")
        writer(anew, cluster, name, value="m").save()
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")

    assert contents(cluster, name) == {"N1": {"a": 2}}


@pytest.mark.parametrize(("how", "counted"), [("skip", 0), ("count", 2_223)])
def test_rows_without_a_key_are_left_out(
    spark: SparkSession, cluster: Cluster, how: str, counted: int
) -> None:
    df, name = without_keys(spark), fresh_name()

    writer(df, cluster, name, operation=TOTALS, onNullKey=how, job="a").save()

    assert contents(cluster, name) == totals_of(df)
    report = write_report(name, "a", peers=cluster.addresses)
    assert (report.rows, report.null_keys) == (20_000, counted)


def test_rows_that_make_no_sense_for_what_was_there_are_told_each_time(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, name = flights(spark), fresh_name()  # a change of each key in each of three tasks
    writer(df.limit(0), cluster, name, operation=TOTALS).save()
    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        held.put("N7", "text")

    for _ in range(2):  # a scheduler that repeats the job must not take it for done
        with pytest.raises(AnalysisException, match="but 3 rows were refused: 'N7': BadOperation"):
            writer(df, cluster, name, operation=TOTALS, job="a").save()

    assert contents(cluster, name) == {**totals_of(df), "N7": "text"}
    assert "'N7'" in write_report(name, "a", peers=cluster.addresses).refusals


def test_a_report_says_what_was_written(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()
    writer(flights(spark), cluster, name, operation=TOTALS, job="a").save()

    report = write_report(name, "a", peers=cluster.addresses)

    assert (report.job, report.rows, report.null_keys, report.applied) == ("a", 20_000, 0, True)
    assert report.staged_rows == 3 * 700, "a change a key and task"
    assert report.files >= 3
    assert str(report).startswith("a: applied; 20,000 rows as 2,100 changes, ")


def test_a_job_that_nobody_knows_has_no_report(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()
    writer(flights(spark, 10), cluster, name).save()

    with pytest.raises(BadOperation, match=r"'b' of keyspace .* was not committed"):
        write_report(name, "b", peers=cluster.addresses)
    with pytest.raises(KeyspaceUnknown):
        write_report("nothing", "b", peers=cluster.addresses)


def test_a_report_tells_what_was_refused_and_what_is_to_come() -> None:
    report = WriteReport("a", 3, 1, 2, 1, 99, 0, applied=False, refusals="1 rows were refused: …")

    assert str(report) == (
        "a: committed, and being applied; 3 rows as 2 changes, 1 files of 99 bytes; "
        "without a key 1, retries 0\n1 rows were refused: …"
    )
    assert stream_job("q", 3) == "q/3"


# What is refused before a task starts.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flushRow": 3}, "no option 'flushrow'; there are:"),
        ({"key": "tail"}, "no column 'tail'; there are 'tailnum', 'delay', 'distance'"),
        ({"key": "distance"}, "key column 'distance'"),
        ({"value": "distances"}, "no column 'distances'"),
        ({"operation": "add"}, "add takes one column, and there are 'delay', 'distance'"),
        ({"operation": "sum", "value": "delay"}, "no member knows 'sum', perhaps 'add' is meant"),
        ({"operation": "delay=ad,distance=add"}, "column 'delay': no member knows 'ad', perhaps"),
        ({"operation": "delay=add"}, "does not name the columns 'distance'"),
        ({"operation": "delay=add,distance=add,x=max"}, "operation names column 'x'"),
        ({"operation": "delay=add,distance=add,tailnum=max"}, "is the key"),
        ({"peers": "127.0.0.1:1", "maxRetries": 0}, "no daemon answers"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_before_the_job(
    spark: SparkSession, cluster: Cluster, options: dict[str, object], message: str
) -> None:
    name = fresh_name()

    with pytest.raises(AnalysisException, match=message):
        writer(flights(spark, 10), cluster, name, **options).save()

    assert not known(cluster, name)


def known(cluster: Cluster, name: str) -> bool:
    with Client(cluster.addresses[0]) as client:
        listed = client.admin("/admin/keyspaces")["keyspaces"]
    return name in {keyspace["name"] for keyspace in listed}


def test_a_keyspace_that_is_not_there_is_refused_with_what_to_do(
    spark: SparkSession, cluster: Cluster
) -> None:
    options = options_for(cluster, "nothing", createKeyspace="false")
    del options["partitions"]

    with pytest.raises(AnalysisException, match=r"create it \(ringpopctl keyspace create nothing"):
        flights(spark, 10).write.format("ringpop").mode("append").options(**options).save()


def test_a_keyspace_with_other_partitions_is_refused(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()
    writer(flights(spark, 10), cluster, name).save()

    with pytest.raises(AnalysisException, match="exists already, with 8 partitions, not 16"):
        writer(flights(spark, 10), cluster, name, partitions=16).save()


def test_to_overwrite_is_refused_with_what_to_do(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(AnalysisException, match="use mode append"):
        writer(flights(spark, 10), cluster, fresh_name()).mode("overwrite").save()


def test_columns_that_no_value_can_hold_are_refused(spark: SparkSession, cluster: Cluster) -> None:
    df = flights(spark, 10).withColumn("odd", F.expr("map(1, 2)"))

    with pytest.raises(AnalysisException, match="column 'odd' is of type map"):
        writer(df, cluster, fresh_name()).save()


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        ("select 7L id, 'x' n", {}, "column 'n': operation put would leave string, and keyspace"),
        ("select 7L id, 1.5BD n", {"operation": "n=add"}, "CAST.`n` AS int."),
        ("select '7' id, 1 n", {}, "key column 'id' is of type string"),
        ("select 7L id, 1 n", {"value": "n"}, "this write would leave one column each"),
    ],
)
def test_other_types_than_those_of_the_keyspace_are_refused_before_the_job(
    spark: SparkSession, cluster: Cluster, sql: str, options: dict[str, str], message: str
) -> None:
    name = fresh_name()
    writer(spark.sql("select 1 id, 1 n"), cluster, name, key="id").save()
    ran = spark.sparkContext.accumulator(0)

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ran.add(1)
        yield from batches

    df = spark.sql(sql)
    with pytest.raises(AnalysisException, match=message):
        writer(df.mapInArrow(counted, df.schema), cluster, name, key="id", **options).save()
    writer(spark.sql("select 2L id, 2L n, 'new' m"), cluster, name, key="id").save()

    assert ran.value == 0
    back = spark.read.format("ringpop").options(**options_of_read(cluster, name)).load()
    assert back.dtypes == [("id", "bigint"), ("n", "bigint"), ("m", "string")]
    assert sorted(map(tuple, back.collect())) == [(1, 1, None), (2, 2, "new")]


def options_of_read(cluster: Cluster, keyspace: str) -> dict[str, str]:
    return {"keyspace": keyspace, "key": "id", "peers": ",".join(cluster.addresses)}


def test_names_of_jobs_are_not_shared_by_keyspaces(spark: SparkSession, cluster: Cluster) -> None:
    df, names, job = flights(spark, 100), (fresh_name(), fresh_name()), uuid.uuid4().hex

    for name in names:
        writer(df, cluster, name, operation=TOTALS, job=job).save()

    assert contents(cluster, names[0]) == contents(cluster, names[1]) == totals_of(df)
