"""Writes into keyspaces for tests: rows, what Spark makes of them, and what is there."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from ringpop_demo.cluster import Cluster

PARTITIONS = 8


class Reachable(Protocol):
    """A cluster, by whichever harness."""

    @property
    def addresses(self) -> list[str]: ...


def fresh_name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def flights(spark: SparkSession, count: int = 20_000, *, tasks: int = 3) -> DataFrame:
    """Rows of 700 keys."""
    return spark.range(count, numPartitions=tasks).select(
        F.concat(F.lit("N"), (F.col("id") * 11 % 700).cast("string")).alias("tailnum"),
        F.when(F.col("id") % 9 > 0, F.col("id") % 60).alias("delay"),
        (F.col("id") % 1_000).cast("double").alias("distance"),
    )


def options_for(cluster: Reachable, keyspace: str, **more: object) -> dict[str, str]:
    """As `writer` has them; they create the keyspace."""
    said = {
        "keyspace": keyspace,
        "key": "tailnum",
        "peers": ",".join(cluster.addresses),
        "createKeyspace": "true",
        "partitions": str(PARTITIONS),
    }
    return said | {name: str(value) for name, value in more.items()}


def writer(df: DataFrame, cluster: Reachable, keyspace: str, **more: object) -> DataFrameWriter:
    made = df.write.format(str(more.pop("source", "ringpop"))).mode("append")
    return made.options(**options_for(cluster, keyspace, **more))


def contents(cluster: Reachable, keyspace: str) -> dict[str, Any]:
    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, keyspace) as held:
        return dict(held.scan())


TOTALS = "delay=add,distance=max,flights=count"
"""What `totals_of` adds up, as an operation."""


def totals_of(df: DataFrame, times: int = 1) -> dict[str, Any]:
    """What Spark makes of the rows that have a key, if all were there so many *times*."""
    grouped = df.where(F.col("tailnum").isNotNull()).groupBy("tailnum")
    rows = grouped.agg(F.sum("delay"), F.max("distance"), F.count("*")).collect()
    return {
        key: {
            "flights": flights * times,
            **({} if delay is None else {"delay": delay * times}),
            **({} if distance is None else {"distance": distance}),
        }
        for key, delay, distance, flights in rows
    }


def staged_in(cluster: Cluster, keyspace: str) -> list[Path]:
    """All that is staged for jobs of *keyspace*."""
    store = cluster.hosts.parent / "store"
    root = store / "demo" / "keyspaces" / keyspace
    assert root.is_dir()
    return [path for path in sorted(root.glob("*/jobs/staged/**/*")) if path.is_file()]
