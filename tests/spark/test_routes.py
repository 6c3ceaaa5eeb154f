"""route, from a Spark job to real owners."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TC002 - Spark pickles what is annotated
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.base.errors import (
    ApplicationError,
    BadKey,
    BadRequest,
    ConfigError,
    ConnectFailed,
    MaxRetriesExceeded,
    OperationIdReused,
)
from ringpop_py.base.values.packed import decode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.route.proxy.request import Request
from ringpop_py.spark import RouteReport, ring_owner, ring_snapshot, route, route_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from ringpop_demo.cluster import Cluster
    from ringpop_py.spark.sender import Through

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]


def flights(spark: SparkSession, count: int, keys_count: int = 50) -> DataFrame:
    prefix = uuid.uuid4().hex
    return spark.range(count, numPartitions=3).select(
        F.concat(F.lit(prefix), (F.col("id") % keys_count).cast("string")).alias("tailnum"),
        F.when(F.col("id") % 7 > 0, F.col("id") % 60).cast("double").alias("arr_delay"),
        F.lit(100).alias("distance"),
    )


def send(df: DataFrame, cluster: Cluster, **changes: Any) -> RouteReport:  # noqa: ANN401 - options of route
    options = {"key": "tailnum", "endpoint": "/flights", "peers": cluster.addresses} | changes
    return route(df, **options)


def totals(cluster: Cluster) -> dict[str, tuple[int, int, int]]:
    held: dict[str, tuple[int, int, int]] = {}
    for node in cluster.running:
        with Client(node.address) as client:
            part = decode_value("msgpack", client.invoke(Request("/totals")))
        held |= {key: tuple(row) for key, row in part.items()}
    return held


def expected_totals(df: DataFrame) -> dict[str, tuple[int, int, int]]:
    delay = F.coalesce(F.col("arr_delay"), F.lit(0.0)).cast("long")
    rows = df.groupBy("tailnum").agg(F.count("*"), F.sum(delay), F.sum("distance")).collect()
    return {row[0]: tuple(row)[1:] for row in rows if row[0] is not None}


@pytest.mark.parametrize("through", ["owners", "daemon"])
def test_totals_at_the_owners_are_those_of_spark(
    spark: SparkSession, cluster: Cluster, through: Through
) -> None:
    df = flights(spark, 20_000)

    report = send(df, cluster, through=through, batch_rows=3_000)

    held, expected = totals(cluster), expected_totals(df)
    assert {key: held.get(key) for key in expected} == expected
    assert (report.rows_sent, report.null_keys, report.repeated_rows) == (20_000, 0, 0)
    assert report.batches == 9 * 3
    by_owner = df.groupBy(ring_owner("tailnum", ring_snapshot(cluster.addresses))).count()
    assert report.per_owner == dict(map(tuple, by_owner.collect()))


def test_the_setting_for_arrow_batches_is_left_as_it_was(
    spark: SparkSession, cluster: Cluster
) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)

    send(flights(spark, 10), cluster, batch_rows=3)

    assert spark.conf.get(name) == before


@pytest.mark.parametrize(("on_null_key", "counted"), [("count", 100), ("skip", 0)])
def test_rows_without_a_key_are_not_sent(
    spark: SparkSession, cluster: Cluster, on_null_key: str, counted: int
) -> None:
    key = F.when(F.col("arr_delay").isNotNull(), F.col("tailnum"))
    df = flights(spark, 700).withColumn("tailnum", key)

    report = send(df, cluster, on_null_key=on_null_key)

    assert (report.rows_sent, report.null_keys) == (600, counted)


def test_a_row_without_a_key_ends_the_job_if_that_was_asked_for(
    spark: SparkSession, cluster: Cluster
) -> None:
    df = flights(spark, 10).withColumn("tailnum", F.lit(None).cast("string"))

    with pytest.raises(BadKey, match="no key in column 'tailnum'"):
        send(df, cluster, on_null_key="fail")


@pytest.mark.parametrize("kind", ["long", "binary"])
def test_keys_of_other_types_reach_the_owner_of_their_text(
    spark: SparkSession, cluster: Cluster, kind: str
) -> None:
    texts = spark.range(500).select(F.col("id").cast("string").alias("key"))
    keys = texts.select(F.col("key").cast(kind))

    report = send(keys, cluster, key="KEY", endpoint="/rows")  # in any case, as in Spark

    by_owner = texts.groupBy(ring_owner("key", ring_snapshot(cluster.addresses))).count()
    assert report.per_owner == dict(map(tuple, by_owner.collect()))


def test_bytes_that_are_no_text_are_no_text_key(spark: SparkSession, cluster: Cluster) -> None:
    df = flights(spark, 10).withColumn("tailnum", F.lit(b"\xff").cast("string"))

    with pytest.raises(BadKey, match="not text"):
        send(df, cluster)


def test_a_task_that_spark_repeats_counts_its_rows_once(
    spark: SparkSession, cluster: Cluster
) -> None:
    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for index, batch in enumerate(batches):
            if index == 2 and context.attemptNumber() == 0:
                message = "the first attempt fails, half-way"
                raise RuntimeError(message)
            yield batch

    df = flights(spark, 20_000)
    # The setting holds for the stage before as well, so it hands on batches of 2,000 rows.
    broken = df.mapInArrow(fails_once, df.schema)

    report = send(broken, cluster, batch_rows=2_000)

    held, expected = totals(cluster), expected_totals(df)
    assert {key: held.get(key) for key in expected} == expected
    assert report.rows_sent == 20_000
    assert report.repeated_rows > 0


def test_other_rows_under_the_name_of_a_job_are_refused(
    spark: SparkSession, cluster: Cluster
) -> None:
    df, job = flights(spark, 1_000), uuid.uuid4().hex
    send(df, cluster, job=job)

    other = df.withColumn("distance", F.lit(200))  # of the same flights, as on another day
    with pytest.raises(OperationIdReused, match=rf"job '{job}': .* need another job name"):
        send(other, cluster, job=job)

    assert totals(cluster).items() >= expected_totals(df).items()


def test_an_owner_that_stays_away_is_named(spark: SparkSession, mortal_cluster: Cluster) -> None:
    df = flights(spark, 1_000)
    mortal_cluster.kill(mortal_cluster.nodes[0])

    with pytest.raises(MaxRetriesExceeded, match="node-1 did not accept") as caught:
        send(df, mortal_cluster, max_retries=0)

    assert "attempt 1 to node-1: ConnectRefused" in caught.value.history[0]


def test_an_error_of_the_handler_reaches_the_caller(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(ApplicationError) as caught:
        send(flights(spark, 100).drop("distance"), cluster)

    assert caught.value.kind == "not-flights"
    assert "distance" in caught.value.message


def test_an_unknown_endpoint_is_refused_before_the_job(
    spark: SparkSession, cluster: Cluster
) -> None:
    with pytest.raises(BadRequest, match="/nowhere"):
        send(flights(spark, 10), cluster, endpoint="/nowhere")


def test_a_key_that_the_handler_does_not_route_by_is_refused(
    spark: SparkSession, cluster: Cluster
) -> None:
    df = flights(spark, 10).withColumnRenamed("tailnum", "other")

    with pytest.raises(BadRequest, match="no column 'tailnum'"):
        send(df, cluster, key="other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "nothing"}, "no column 'nothing'; there are 'tailnum'"),
        ({"key": "arr_delay"}, "'arr_delay': a key is text .* this one is double; cast it"),
        ({"on_null_key": "drop"}, "on_null_key is 'fail', 'skip' or 'count', not 'drop'"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"in_flight": 0}, "in_flight"),
        ({"through": "pigeons"}, "through"),
        ({"retry_schedule": (-1,)}, "retry_schedule"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"job": ""}, "job"),
        ({"peers": []}, "at least one peer"),
        ({"endpoint": "flights"}, "begins with '/'"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(
    spark: SparkSession, cluster: Cluster, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        send(flights(spark, 1), cluster, **changes)


def test_no_peer_at_all_is_said_with_a_reason_each(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(ConnectFailed, match=r"(?s)127.0.0.1:1: .*127.0.0.1:2: "):
        send(flights(spark, 1), cluster, peers=["127.0.0.1:1", "127.0.0.1:2"])


def test_the_first_peer_that_answers_is_enough(cluster: Cluster) -> None:
    snapshot = ring_snapshot(["127.0.0.1:1", cluster.addresses[0]])

    assert snapshot.ring.owners == ("node-1", "node-2", "node-3")


# Answers.


def ask(df: DataFrame, cluster: Cluster, **changes: Any) -> DataFrame:  # noqa: ANN401 - options
    options = {"key": "key", "endpoint": "/lengths", "peers": cluster.addresses} | changes
    return route_answers(df, **{"schema": "key string, name string, length long", **options})


def keyed(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=3).select(F.col("id").cast("string").alias("key"))


@pytest.mark.parametrize("through", ["owners", "daemon"])
def test_answers_are_rows_of_the_owner_of_each_key(
    spark: SparkSession, cluster: Cluster, through: Through
) -> None:
    df = keyed(spark, 3_000)

    answers = ask(df, cluster, through=through)

    owner = ring_owner("key", ring_snapshot(cluster.addresses))
    expected = df.select("key", owner.alias("name"), F.length("key").cast("long").alias("length"))
    assert answers.schema.simpleString() == "struct<key:string,name:string,length:bigint>"
    assert answers.count() == 6_000
    assert answers.exceptAll(expected).exceptAll(expected).count() == 0


def test_an_instant_is_the_same_in_each_time_zone(spark: SparkSession, cluster: Cluster) -> None:
    name = "spark.sql.session.timeZone"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "America/New_York")
    try:
        answers = ask(keyed(spark, 3), cluster, schema="at timestamp")
        seconds = answers.select(F.col("at").cast("long")).distinct().collect()
    finally:
        spark.conf.set(name, before)

    assert [row[0] for row in seconds] == [0]


def test_answers_are_computed_when_they_are_read(spark: SparkSession, cluster: Cluster) -> None:
    broken = keyed(spark, 10).withColumn("key", F.raise_error(F.lit("read")).cast("string"))

    answers = ask(broken, cluster)  # no error

    with pytest.raises(Exception, match="read"):
        answers.collect()


def test_a_row_without_a_key_fails_the_query_or_is_not_asked_about(
    spark: SparkSession, cluster: Cluster
) -> None:
    df = keyed(spark, 9).withColumn("key", F.when(F.col("key") != "4", F.col("key")))

    assert ask(df, cluster, on_null_key="skip").count() == 16
    with pytest.raises(Exception, match="BadKey: 1 row has no key in column 'key'"):
        ask(df, cluster).collect()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on_null_key": "count"}, "on_null_key is 'fail' or 'skip', not 'count'"),
        ({"schema": "nonsense of types"}, "schema is not a list of columns"),
        ({"schema": "int"}, "schema is"),
        ({"schema": ""}, "schema is"),
        ({"schema": "a interval year"}, "schema: "),
        ({"in_flight": 0}, "in_flight"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_at_once(
    spark: SparkSession, cluster: Cluster, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(keyed(spark, 1), cluster, **changes)


def test_an_endpoint_that_answers_nothing_is_refused_immediately(
    spark: SparkSession, cluster: Cluster
) -> None:
    with pytest.raises(BadRequest, match="/rows accepts batches"):
        ask(keyed(spark, 1), cluster, endpoint="/rows")


def test_a_report_reads_well() -> None:
    report = RouteReport("j", 1_500, 2, 3, 4, 5, 6, 0.5, {"a": 500, "node-b": 1_000})

    assert str(report).splitlines() == [
        "1,500 rows to 2 owners in 0.5 s (3,000 a second, 6 messages)",
        "without a key 2, moved 3, repeated 4, retries 5",
        "  a                500",
        "  node-b         1,000",
    ]
