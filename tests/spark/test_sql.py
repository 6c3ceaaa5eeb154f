"""A keyspace in SQL: temporary views work, tables of the catalog are refused with that advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.spark import RingpopDataSource, lookup
from tests.spark.writes import contents, fresh_name, options_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(240)]
ADVICE = "use CREATE TEMPORARY VIEW NAME USING ringpop OPTIONS"


@pytest.fixture
def cluster(durable_cluster: Cluster) -> Cluster:
    return durable_cluster


@pytest.fixture(autouse=True)
def registered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    spark.dataSource.register(RingpopDataSource)
    rows = [("N1", 3), ("N2", 4)]
    spark.createDataFrame(rows, "tailnum string, flights bigint").createOrReplaceTempView("rows")
    yield
    for name in ("made", "bare", "selected", "saved"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def options_in_sql(cluster: Cluster, name: str, **more: object) -> str:
    options: dict[str, Any] = {**options_for(cluster, name), "key": "tailnum", **more}
    return "OPTIONS (" + ", ".join(f"{key} '{value}'" for key, value in options.items()) + ")"


def test_a_temporary_view_is_read_and_inserted_into(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()
    target, of_reads = options_in_sql(cluster, name), {"peers": cluster.addresses[0]}
    columns = "(tailnum STRING, flights BIGINT)"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW target {columns} USING ringpop {target}")
    source = f"OPTIONS (keyspace '{name}', key 'tailnum', peers '{of_reads['peers']}')"

    spark.sql("INSERT INTO target SELECT * FROM rows")
    spark.sql("INSERT INTO target (flights, tailnum) VALUES (7, 'N3')")
    spark.table("rows").filter("tailnum = 'N1'").withColumn("flights", F.lit(5)).write.insertInto(
        "target"
    )

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW found USING ringpop {source}")
    found = spark.sql("SELECT f.tailnum, f.FLIGHTS FROM found f JOIN rows USING (tailnum)")
    assert sorted(map(tuple, found.collect())) == [("N1", 5), ("N2", 4)]
    assert spark.sql("SELECT sum(flights) FROM found").first() == (16,)
    for text in ("INSERT OVERWRITE target TABLE rows", "INSERT OVERWRITE TABLE target TABLE rows"):
        with pytest.raises(AnalysisException, match="use mode append"):
            spark.sql(text)
    assert len(contents(cluster, name)) == 3


@pytest.mark.parametrize("columns", ["", "(tailnum STRING, flights BIGINT)"], ids=["", "columns"])
def test_a_table_of_the_catalog_is_refused_with_what_to_do(
    spark: SparkSession, cluster: Cluster, columns: str
) -> None:
    target = options_in_sql(cluster, fresh_name())
    if not columns:  # Spark asks the source for them
        with pytest.raises(AnalysisException, match=ADVICE):
            spark.sql(f"CREATE TABLE made USING ringpop {target}")
        assert not spark.catalog.tableExists("made")
        return
    spark.sql(f"CREATE TABLE bare {columns} USING ringpop {target}")  # nobody asks the source
    for use in ("SELECT * FROM bare", "INSERT INTO bare SELECT * FROM rows"):
        with pytest.raises(AnalysisException, match=ADVICE):
            spark.sql(use).collect()


def test_a_table_made_of_a_query_is_refused(spark: SparkSession, cluster: Cluster) -> None:
    name = fresh_name()
    target = options_in_sql(cluster, name)
    with pytest.raises(AnalysisException, match=ADVICE):
        spark.sql(f"CREATE TABLE selected USING ringpop {target} AS TABLE rows")


def test_save_as_table_writes_and_what_is_left_says_what_to_do(
    spark: SparkSession, cluster: Cluster
) -> None:
    """Spark does not tell the source that it makes a table; the rows are written."""
    name = fresh_name()
    options = {**options_for(cluster, name), "key": "tailnum"}
    rows = spark.table("rows").write.format("ringpop").options(**options)
    rows.mode("append").saveAsTable("saved")

    assert len(contents(cluster, name)) == 2
    with pytest.raises(AnalysisException, match=ADVICE):
        spark.table("saved").collect()


def test_columns_are_named_whatever_their_case(spark: SparkSession, cluster: Cluster) -> None:
    rows = spark.sql("SELECT tailnum AS TailNum, flights AS Flights FROM rows")
    options = {**options_for(cluster, ""), "key": "TAILNUM"}
    one, fields, whole = fresh_name(), fresh_name(), fresh_name()

    def write(name: str, **more: str) -> None:
        given = {**options, "keyspace": name, **more}
        rows.write.format("ringpop").options(**given).mode("append").save()

    write(one, value="FLIGHTS", operation="add")
    write(fields, operation="flights=add")
    write(whole)

    assert contents(cluster, one) == {"N1": 3, "N2": 4}
    assert contents(cluster, fields) == contents(cluster, whole)
    assert contents(cluster, whole) == {"N1": {"Flights": 3}, "N2": {"Flights": 4}}
    reader = spark.read.format("ringpop").options(
        keyspace=whole, key="tailnum", peers=cluster.addresses[0]
    )
    read = reader.schema("TAILNUM string, Flights bigint").load()
    assert sorted(map(tuple, read.collect())) == [("N1", 3), ("N2", 4)]
    found = lookup(rows.select("TailNum"), whole, "tailnum", peers=cluster.addresses[:1])
    assert sorted(map(tuple, found.collect())) == [("N1", 3), ("N2", 4)]


def test_of_columns_that_differ_by_their_case_the_one_written_so_is_meant(
    spark: SparkSession, cluster: Cluster
) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        rows = spark.sql("SELECT tailnum, tailnum AS TailNum, flights FROM rows")
        writer = rows.write.format("ringpop").mode("append")
        name = fresh_name()
        writer.options(**{**options_for(cluster, name), "key": "TailNum"}).save()
        assert contents(cluster, name)["N1"] == {"tailnum": "N1", "flights": 3}
        with pytest.raises(AnalysisException, match="2 columns are called 'TAILNUM', whatever its"):
            writer.options(**{**options_for(cluster, name), "key": "TAILNUM"}).save()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
