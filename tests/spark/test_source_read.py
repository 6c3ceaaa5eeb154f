"""Keyspaces as DataFrames."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import RingpopDataSource, lookup
from tests.spark.writes import TOTALS, contents, flights, fresh_name, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(RingpopDataSource)


def reader(spark: SparkSession, cluster: Cluster, keyspace: str, **more: object) -> DataFrameReader:
    said = {"keyspace": keyspace, "key": "tailnum", "peers": ",".join(cluster.addresses)}
    options = {**said, **{name: str(value) for name, value in more.items()}}
    return spark.read.format("ringpop").options(**options)


def rows_of(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in df.collect())


@pytest.fixture(scope="module")
def totals(spark: SparkSession, durable_cluster: Cluster) -> str:
    """A keyspace with the totals of `flights`."""
    spark.dataSource.register(RingpopDataSource)
    name = fresh_name()
    writer(flights(spark), durable_cluster, name, operation=TOTALS).save()
    return name


def expected(spark: SparkSession) -> DataFrame:
    grouped = flights(spark).groupBy("tailnum")
    return grouped.agg(F.sum("delay"), F.max("distance"), F.count("*"))


def test_written_rows_are_read_with_the_columns_that_they_have(
    spark: SparkSession, durable_cluster: Cluster, totals: str
) -> None:
    df = reader(spark, durable_cluster, totals).load()

    assert dict(df.dtypes) == {
        "tailnum": "string",
        "delay": "bigint",
        "distance": "double",
        "flights": "bigint",
    }
    columns = ["tailnum", "delay", "distance", "flights"]
    assert rows_of(df.select(*columns)) == rows_of(expected(spark))


@pytest.mark.parametrize("splits", [3, 100])
def test_it_is_read_in_as_many_parts_as_are_wanted_and_there(
    spark: SparkSession, durable_cluster: Cluster, totals: str, splits: int
) -> None:
    asked = reader(spark, durable_cluster, totals, splits=splits, distribution="daemon")

    df = asked.schema("tailnum string, flights bigint").load()

    assert df.rdd.getNumPartitions() == min(splits, 8)
    assert rows_of(df) == rows_of(flights(spark).groupBy("tailnum").count())


def test_keys_that_are_asked_for_are_read_and_no_others(
    spark: SparkSession, durable_cluster: Cluster, totals: str
) -> None:
    asked = reader(spark, durable_cluster, totals, keys='["N7", "N0", "not there"]')

    df = asked.schema("flights bigint, tailnum string, nothing string").load()

    counts = flights(spark).where("tailnum in ('N0', 'N7')").groupBy("tailnum").count()
    assert rows_of(df.select("tailnum", "flights")) == rows_of(counts)
    assert df.where("nothing is not null").count() == 0


def test_one_loaded_dataframe_serves_two_filters(
    spark: SparkSession, durable_cluster: Cluster, totals: str
) -> None:
    df = reader(spark, durable_cluster, totals).load()
    low, high = df.where("tailnum < 'N5'"), df.where("tailnum >= 'N5'")

    both = low.union(high).count()

    assert both == 700


def test_a_value_that_is_one_column_is_read_as_one(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name, df = fresh_name(), flights(spark)
    writer(df.select("tailnum"), durable_cluster, name, operation="count").save()

    back = reader(spark, durable_cluster, name, value="flights").load()

    assert rows_of(back) == rows_of(df.groupBy("tailnum").count())


def test_a_value_that_does_not_fit_is_named(
    spark: SparkSession, durable_cluster: Cluster, totals: str
) -> None:
    df = reader(spark, durable_cluster, totals, keys="N7", splits=1).schema("flights string").load()

    with pytest.raises(
        PythonException, match="the value of key 'N7' does not fit column 'flights'"
    ):
        df.collect()


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"operation": "add"}, None, "option operation is not for a read"),
        ({"keyspace": "nothing"}, None, "nothing"),
        ({}, "tailnum date", "a key is text .* this one is date"),
        ({}, "odd map<int, int>", "column 'odd' is of type map"),
        ({"value": "v"}, "tailnum string, w string", "the value becomes column 'v'"),
        ({"peers": "127.0.0.1:1", "timeout": "1"}, None, "no peer describes the keyspace"),
    ],
)
def test_a_read_that_cannot_work_is_refused_before_a_task_starts(
    spark: SparkSession,
    durable_cluster: Cluster,
    totals: str,
    options: dict[str, object],
    schema: str | None,
    message: str,
) -> None:
    asked = reader(spark, durable_cluster, **({"keyspace": totals} | options))  # type: ignore[arg-type]

    with pytest.raises(AnalysisException, match=message):
        (asked if schema is None else asked.schema(schema)).load().collect()


DOCUMENTED = re.findall(
    r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)`(?: \(.*\))? \|$",
    (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8"),
    re.MULTILINE,
)
"""Types, examples of them in SQL, and what other clients see."""


def test_types_come_back_as_they_went(spark: SparkSession, durable_cluster: Cluster) -> None:
    """Each that is documented, and NULL of each."""
    assert len(DOCUMENTED) == 16
    name, columns = fresh_name(), ["'N1' tailnum"]
    for number, (kind, written, _) in enumerate(DOCUMENTED):
        columns.append(f"cast({written} as {kind}) one_{number}, cast(null as {kind}) no_{number}")
    df = spark.sql(f"select {', '.join(columns)}")
    writer(df, durable_cluster, name).save()

    back = reader(spark, durable_cluster, name).load().select(df.columns)

    held = contents(durable_cluster, name)["N1"]
    assert [repr(held[f"one_{number}"]) for number in range(16)] == [row[2] for row in DOCUMENTED]
    assert back.dtypes == df.dtypes
    assert back.collect() == df.collect()


def test_the_type_of_a_single_value_comes_back(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name = fresh_name()
    df = spark.sql("select 'N1' tailnum, date '2026-01-02' day")
    writer(df, durable_cluster, name, value="day").save()

    back = reader(spark, durable_cluster, name, value="other").load()

    assert back.dtypes == [("tailnum", "string"), ("other", "date")]
    assert rows_of(back) == rows_of(df)


def test_decimals_are_added_up_exactly(spark: SparkSession, durable_cluster: Cluster) -> None:
    name = fresh_name()
    df = spark.range(1_000).selectExpr(
        "concat('N', id % 7) tailnum", "cast(id / 100 - 3 as decimal(9,2)) price"
    )
    operation = "price=add,most=max,least=min"
    df = df.withColumns({"most": F.col("price"), "least": F.col("price")})
    for _ in range(2):
        writer(df, durable_cluster, name, operation=operation).save()

    back = reader(spark, durable_cluster, name).load()

    assert dict(back.dtypes) == {
        "tailnum": "string",
        "price": "decimal(38,2)",
        "most": "decimal(9,2)",
        "least": "decimal(9,2)",
    }
    sums = df.groupBy("tailnum").agg(F.sum("price") * 2, F.max("most"), F.min("least"))
    assert rows_of(back.select("tailnum", "price", "most", "least")) == rows_of(sums)


def test_of_several_jobs_the_types_come_back_that_values_have(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name = fresh_name()
    first = "select 'N1' tailnum, date '2026-01-02' day, 1 n, 'a' text"
    for sql in (first, "select 'N2' tailnum, 2L n, 1.5D more", first):
        writer(spark.sql(sql), durable_cluster, name).save()
    with Client(durable_cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        held.put("N3", {"text": 3})
        held.delete("N1")

    back = reader(spark, durable_cluster, name).load()

    assert dict(back.dtypes) == {
        "tailnum": "string",
        "day": "date",  # no value says otherwise
        "n": "bigint",
        "more": "double",
        "text": "bigint",
    }
    assert rows_of(back.select("tailnum", "n", "more", "text")) == [
        ("N2", 2, 1.5, None),
        ("N3", None, None, 3),
    ]


@pytest.mark.parametrize("kind", ["string", "int", "bigint", "binary"])
def test_keys_come_back_in_the_type_that_they_were_written_with(
    spark: SparkSession, durable_cluster: Cluster, kind: str
) -> None:
    name = fresh_name()
    df = spark.range(5).selectExpr(f"cast(cast(id * 7 as string) as {kind}) tailnum", "id n")
    writer(df, durable_cluster, name).save()

    back = reader(spark, durable_cluster, name).load()

    assert back.dtypes == df.dtypes
    assert rows_of(back) == rows_of(df)
    as_text = reader(spark, durable_cluster, name).schema("tailnum string, n bigint").load()
    assert rows_of(as_text) == sorted((str(n * 7), n) for n in range(5))


def test_keys_that_are_no_numbers_are_read_as_text(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name = fresh_name()
    writer(spark.sql("select 7L tailnum, 1 n"), durable_cluster, name).save()
    with Client(durable_cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        held.put("007", {"n": 2})

    assert rows_of(reader(spark, durable_cluster, name).load()) == [("007", 2), ("7", 1)]
    numbers = reader(spark, durable_cluster, name).schema("tailnum bigint, n int").load()
    with pytest.raises(PythonException, match="'007' is another key; give a schema in which"):
        numbers.collect()


def test_a_field_that_the_type_does_not_name_is_read_all_the_same(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name = fresh_name()
    writer(spark.sql("select 'N1' tailnum, named_struct('y', 1) s"), durable_cluster, name).save()
    with Client(durable_cluster.addresses[0]) as client, KeyspaceClient(client, name) as held:
        held.put("N2", {"s": {"x": 1, "y": 2}})

    back = reader(spark, durable_cluster, name).load()

    assert rows_of(back.select("tailnum", "s.x", "s.y")) == [("N1", None, 1), ("N2", 1, 2)]


def test_lookup_has_the_types_as_well(spark: SparkSession, durable_cluster: Cluster) -> None:
    name = fresh_name()
    df = spark.sql("select 'N1' tailnum, date '2026-01-02' day")
    writer(df, durable_cluster, name).save()

    found = lookup(df.select("tailnum"), name, "tailnum", peers=durable_cluster.addresses)

    assert found.collect() == df.collect()


def test_an_empty_keyspace_has_the_columns_of_the_jobs_that_have_written_it(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name, df = fresh_name(), flights(spark).limit(0)
    writer(df, durable_cluster, name).save()

    assert reader(spark, durable_cluster, name).load().dtypes == df.dtypes


def test_nothing_says_which_columns_an_empty_keyspace_has(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    name = fresh_name()
    with Client(durable_cluster.addresses[0]) as client:
        client.admin("/admin/keyspaces/create", {"name": name, "partitions": 8})

    with pytest.raises(AnalysisException, match="is empty, so its columns are unknown"):
        reader(spark, durable_cluster, name).load()
    assert reader(spark, durable_cluster, name).schema("a string").load().collect() == []
