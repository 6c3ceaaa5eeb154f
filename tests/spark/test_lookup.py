"""`lookup` in a Spark session, against real nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ringpop_py import KeyspaceUnknown
from ringpop_py.base.errors import ConfigError
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import lookup
from ringpop_py.spark.arrow.columns import gathered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

ROWS: dict[str, Any] = {f"lookup-{n}": {"n": n, "name": f"ü{n}", "day": n} for n in range(200)}


@pytest.fixture(scope="module")
def keyspace(cluster: Cluster, memory_keyspace: str) -> str:
    with (
        Client(cluster.addresses[0], timeout_s=10) as client,
        KeyspaceClient(client, memory_keyspace) as k,
    ):
        k.update_many([(key, "put", value) for key, value in ROWS.items()])
        k.put("lookup-number", 7)
    return memory_keyspace


def test_each_row_has_what_is_there_of_its_key_and_null_where_nothing_is(
    spark: SparkSession, cluster: Cluster, keyspace: str
) -> None:
    keys = [f"lookup-{n % 250}" for n in range(1_000)] + [None, "", "x" * 2_000]
    df = spark.createDataFrame([(at, key) for at, key in enumerate(keys)], "at int, key string")

    joined = lookup(
        df, keyspace, "key", peers=cluster.addresses, schema="name string, n bigint, day date"
    )
    rows = {row["at"]: row for row in joined.collect()}

    assert joined.columns == ["at", "key", "name", "n", "day"]
    assert len(rows) == len(keys)
    for at, key in enumerate(keys):
        expected: dict[str, Any] = ROWS.get(key or "", {})
        assert rows[at]["key"] == key
        assert (rows[at]["name"], rows[at]["n"]) == (expected.get("name"), expected.get("n"))
    assert str(rows[3]["day"]) == "1970-01-04"


def test_integers_are_keys_by_their_decimal_text(
    spark: SparkSession, cluster: Cluster, keyspace: str
) -> None:
    with (
        Client(cluster.addresses[0], timeout_s=10) as client,
        KeyspaceClient(client, keyspace) as k,
    ):
        k.put("42", 7)

    joined = lookup(
        spark.range(41, 44), keyspace, "id", peers=cluster.addresses, value="v", schema="v int"
    )

    assert {row["id"]: row["v"] for row in joined.collect()} == {41: None, 42: 7, 43: None}


def test_columns_are_inferred_where_no_schema_is_given(
    spark: SparkSession, cluster: Cluster, maps: str
) -> None:
    df = spark.createDataFrame([("a",), ("b",), ("none",)], "key string")

    joined = lookup(df, maps, "key", peers=cluster.addresses[1], direct=False)

    assert [field.simpleString() for field in joined.schema] == [
        "key:string",
        "n:bigint",
        "x:double",
        "l:array<string>",
    ]
    found = {row["key"]: (row["n"], row["x"], row["l"]) for row in joined.collect()}
    assert found == {"a": (1, 0.5, ["q"]), "b": (2, None, None), "none": (None, None, None)}


@pytest.fixture
def maps(cluster: Cluster) -> str:
    """A keyspace in which all values are maps."""
    with Client(cluster.addresses[0], timeout_s=10) as client:
        settings = {"name": "maps", "mode": "memory", "partitions": 4}
        client.admin("/admin/keyspaces/create", settings)
        with KeyspaceClient(client, "maps") as k:
            k.put("a", {"n": 1, "x": 0.5, "l": ["q"]})
            k.put("b", {"n": 2, "x": None})
    return "maps"


def test_small_batches_are_gathered_so_that_their_keys_are_asked_for_together() -> None:
    batches = [pa.RecordBatch.from_pydict({"key": ["a"] * rows}) for rows in (2, 2, 2, 7, 1)]

    found = [[b.num_rows for b in some] for some in gathered(batches, 5, 1 << 20)]

    assert found == [[2, 2, 2], [7], [1]]


def test_a_lookup_that_cannot_work_is_refused_before_any_task_starts(
    spark: SparkSession, cluster: Cluster, keyspace: str
) -> None:
    df = spark.createDataFrame([("a", 1.0)], "key string, N double")
    peers = cluster.addresses

    with pytest.raises(ConfigError, match="column 'n' exists already"):
        lookup(df, keyspace, "key", peers=peers, schema="n int")
    with pytest.raises(ConfigError, match="key column 'N'"):
        lookup(df, keyspace, "N", peers=peers, schema="m int")
    with pytest.raises(ConfigError, match="there is no column 'other'"):
        lookup(df, keyspace, "other", peers=peers, schema="m int")
    with pytest.raises(ConfigError, match="which no value can hold"):
        lookup(df, keyspace, "key", peers=peers, schema="m map<int, int>")
    with pytest.raises(ConfigError, match="schema is not a list of columns"):
        lookup(df, keyspace, "key", peers=peers, schema="m nothing")
    with pytest.raises(ConfigError, match="becomes column 'v' alone"):
        lookup(df, keyspace, "key", peers=peers, schema="m int", value="v")
    with pytest.raises(ConfigError, match="values are not maps of columns"):
        lookup(df, keyspace, "key", peers=peers)
    with pytest.raises(KeyspaceUnknown):
        lookup(df, "unknown", "key", peers=peers, schema="m int")


def test_a_value_that_does_not_fit_fails_the_query_with_its_key(
    spark: SparkSession, cluster: Cluster, keyspace: str
) -> None:
    df = spark.createDataFrame([("lookup-3",)], "key string")

    joined = lookup(df, keyspace, "key", peers=cluster.addresses, schema="name int")

    with pytest.raises(Exception, match="the value of key 'lookup-3' does not fit column 'name'"):
        joined.collect()
