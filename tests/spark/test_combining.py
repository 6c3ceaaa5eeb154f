"""Rows that Spark combines first, and then writes, come to the same as rows that are written."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark import RingpopDataSource, combined
from tests.spark.writes import contents, fresh_name, writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

KINDS = {
    "tinyint": "id % 7 - 3",
    "smallint": "id * 31 % 60000 - 30000",
    "int": "id * 7919 % 4000000000 - 2000000000",
    "bigint": "id * 1000000007 - 500",
    "float": "id % 9 / 4 - 1",
    "double": "if(id % 50 = 0, double('infinity'), id % 11 / 8 - 2)",
    "decimal(5,2)": "id % 13 / 4 - 1.5",
    "decimal(38,3)": "id % 17 * 100000000000000000 - 7.125",
    "date": "date_add(DATE '1969-12-30', int(id % 5))",
    "timestamp": "timestamp_micros(id * 86400000001 - 1)",
    "timestamp_ntz": "timestamp_micros(id - 50)",
    "interval day to second": "make_dt_interval(0, 0, 0, id % 7 - 3)",
    "void": "NULL",
}
"""Of each type, an expression of numbers from 0 on; every fifth value is NULL."""
SUMMED = list(KINDS)[:8]
OPERATIONS = {
    **{f"sum.of `{kind}`": ("add", kind) for kind in [*SUMMED, "void"]},
    **{f"least {kind}": ("min", kind) for kind in KINDS},
    **{f"Most {kind}": ("max", kind) for kind in KINDS},
    **{f"how many {kind}": ("count", kind) for kind in KINDS},
    "exact": ("add_decimal", "decimal(5,2)"),
    "exact most": ("max_decimal", "decimal(5,2)"),
    "exact least": ("min_decimal", "decimal(5,2)"),
}


DIGITS = "cast(repeat('9', 38) AS decimal(38,0))"


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(RingpopDataSource)


@contextmanager
def ansi(spark: SparkSession, *, on: bool) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled") or "true"
    spark.conf.set("spark.sql.ansi.enabled", str(on).lower())
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def said(operations: Mapping[str, str]) -> str:
    return ",".join(f"`{name.replace('`', '``')}`={how}" for name, how in operations.items())


def rows_of_all(spark: SparkSession) -> DataFrame:
    """Rows of nine keys and rows without a key; one key has only NULL."""
    columns = [
        F.expr(f"cast(if(id % 5 = 0 or key = 'k8', NULL, {KINDS[kind]}) AS {kind})").alias(name)
        for name, (_, kind) in OPERATIONS.items()
    ]
    key = "if(id % 10 = 9, NULL, concat('k', id % 10)) AS key"
    return spark.range(300, numPartitions=3).selectExpr("id", key).select("key", *columns)


def read(spark: SparkSession, cluster: Cluster, keyspace: str, **more: str) -> tuple[Any, Any]:
    """What another client sees, and what the columns are read as."""
    options = {"keyspace": keyspace, "key": "key", "peers": ",".join(cluster.addresses), **more}
    schema = spark.read.format("ringpop").options(**options).load().schema
    return contents(cluster, keyspace), {each.name: each.dataType for each in schema.fields}


@pytest.mark.parametrize("on", [True, False], ids=["ansi", "not ansi"])
def test_values_and_types_are_those_of_the_rows_themselves(
    spark: SparkSession,
    durable_cluster: Cluster,
    on: bool,  # noqa: FBT001
) -> None:
    operations = {name: how for name, (how, _) in OPERATIONS.items()} | {"rows": "count"}
    more = {"key": "key", "operation": said(operations), "onNullKey": "skip"}
    found = []

    with ansi(spark, on=on):
        rows = rows_of_all(spark)
        for frame in (rows, combined(rows, "KEY", operations)):
            name = fresh_name()
            for _ in range(2):  # the second meets what the first has left
                writer(frame, durable_cluster, name, **more).save()
            found.append(read(spark, durable_cluster, name))

    ours, theirs = found
    assert ours == theirs
    values, _ = ours
    assert len(values) == 9
    assert values["k1"]["rows"] == 60
    assert values["k8"] == {"rows": 60, **dict.fromkeys([n for n in operations if "how" in n], 0)}


@pytest.mark.parametrize(
    "key", ["tinyint", "bigint", "string", "binary"], ids=lambda key: f"a {key}"
)
def test_a_key_is_of_any_type(spark: SparkSession, durable_cluster: Cluster, key: str) -> None:
    number = "cast(id % 7 AS string)" if key == "binary" else "id % 7"
    rows = spark.range(30).selectExpr(f"cast({number} AS {key}) AS `the.key`", "id AS n")
    found = []

    for frame in (rows, combined(rows, "the.key", {"n": "add"})):
        name = fresh_name()
        writer(frame, durable_cluster, name, key="the.key", operation="n=add").save()
        found.append(read(spark, durable_cluster, name))

    assert found[0] == found[1]
    assert found[0][0]["3"] == {"n": 3 + 10 + 17 + 24}


@pytest.mark.parametrize(
    ("operation", "more"),
    [("add", {"value": "n"}), ("max", {}), ("count", {})],
    ids=["a sum", "the only column", "a count"],
)
def test_a_value_may_be_of_one_column(
    spark: SparkSession, durable_cluster: Cluster, operation: str, more: dict[str, str]
) -> None:
    rows = spark.range(30).selectExpr("concat('k', id % 7) AS key", "int(id) AS n")
    found = []

    for frame in (rows, combined(rows, "key", {"n": operation})):
        name = fresh_name()
        for _ in range(2):
            writer(frame, durable_cluster, name, key="key", operation=operation, **more).save()
        found.append(read(spark, durable_cluster, name, value="n"))

    assert found[0] == found[1]


def test_combined_rows_may_be_combined_again(spark: SparkSession, durable_cluster: Cluster) -> None:
    rows = spark.range(30).selectExpr("concat('k', id % 7) AS key", "id AS n")
    operations = {"n": "count", "rows": "count"}
    name = fresh_name()

    parts = combined(rows.where("n < 15"), "key", operations).union(
        combined(rows.where("n >= 15"), "key", operations)
    )
    again = combined(parts, "key", operations)
    writer(again, durable_cluster, name, key="key", operation=said(operations)).save()

    assert contents(durable_cluster, name) == {
        f"k{n}": {"n": 5 if n < 2 else 4, "rows": 5 if n < 2 else 4} for n in range(7)
    }


def test_no_operation_makes_spark_sort(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    operations = {name: how for name, (how, _) in OPERATIONS.items()}

    combined(rows_of_all(spark), "key", operations).explain()

    plan = capsys.readouterr().out
    assert "HashAggregate" in plan
    assert "Sort" not in plan


@pytest.mark.parametrize(
    ("operation", "value", "why", "on"),
    [
        *(("add", "9223372036854775000L", "does not fit into 64 bits", on) for on in (True, False)),
        *(("add", DIGITS, "38 digits", on) for on in (True, False)),
        ("add", "if(id = 2, double('nan'), 1d)", "NaN", True),
        ("min", "if(id = 2, float('nan'), 1f)", "NaN", True),
        ("max", "if(id = 2, double('nan'), 1d)", "NaN", False),
    ],
)
def test_rows_that_a_write_would_refuse_are_refused_and_nothing_is_written(
    spark: SparkSession,
    durable_cluster: Cluster,
    operation: str,
    value: str,
    why: str,
    on: bool,  # noqa: FBT001
) -> None:
    rows = spark.range(4, numPartitions=1).selectExpr("'k' AS key", f"{value} AS n")
    name = fresh_name()

    with ansi(spark, on=on):
        for frame in (rows, combined(rows, "key", {"n": operation})):
            with pytest.raises(Exception, match=f"column 'n', key '?k'?: .*{why}"):
                writer(frame, durable_cluster, name, key="key", operation=f"n={operation}").save()

    assert contents(durable_cluster, name) == {}


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ({"n": "put"}, "column 'n': put cannot be combined .*: write the rows as they are.*max_by"),
        ({"n": "last"}, "last cannot be combined"),
        ({"n": "union"}, "union cannot be combined"),
        ({"n": "our_own"}, "our_own cannot be combined"),
        ({"t": "max"}, "column 't': Spark would sort .* max of string.*: write the rows as they"),
        ({"b": "min"}, "min of binary"),
        ({"b": "add"}, "add takes numbers; column 'b' is of type binary"),
        ({"missing": "add"}, "operation names column 'missing'; there are"),
        ({"key": "count"}, "'key' is the key"),
        ({"n": "add", "N": "max"}, "names a column twice: n, N"),
        ({}, "operation is empty"),
    ],
)
def test_operations_that_cannot_be_combined_are_refused_immediately(
    spark: SparkSession, operations: dict[str, str], why: str
) -> None:
    rows = spark.sql("SELECT 'k' AS key, 1 AS n, 'x' AS t, X'00' AS b")

    with pytest.raises(ConfigError, match=why):
        combined(rows, "key", operations)


def test_a_key_that_a_write_refuses_is_refused(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'k' COLLATE UTF8_LCASE AS key, 1d AS day, 1 AS n")

    for key, why in (("key", "UTF8_LCASE"), ("day", "double"), ("none", "no column 'none'")):
        with pytest.raises(ConfigError, match=why):
            combined(rows, key, {"n": "add"})


def test_a_stream_is_not_combined_as_one(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()

    with pytest.raises(ConfigError, match="call combined in foreachBatch"):
        combined(rows, "value", {"rows": "count"})
