"""ring_owner beside sum(length) and an Arrow UDF; route beside a mapInArrow that only counts.

Run with ``python tests/bench/spark.py``. All ways take turns, and the first turn is not counted.
Each run has a plan of its own: Spark keeps the finished stages of a DataFrame that was collected
before, and would be timed at adding up two numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from ringpop_py.demo.cluster import Cluster
from ringpop_py.demo.flights import write_flights
from ringpop_py.demo.session import open_spark
from ringpop_py.ring import HashRing
from ringpop_py.spark import owner_index, ring_owner, route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

KEYS = 10_000_000
COPIES = 6


def compare(ways: dict[str, Callable[[], object]], rows: int, turns: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns + 1):
        for name, way in ways.items():
            started_at = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - started_at)
    first = statistics.median(next(iter(times.values()))[1:])
    for name, (_, *counted) in times.items():
        median = statistics.median(counted)
        print(
            f"{name:28} median {median:6.3f} s ({min(counted):.3f} to {max(counted):.3f})"
            f"  {rows / median / 1e6:6.2f} M rows/s  ratio {first / median:.2f}",
            flush=True,
        )


def lookups(spark: SparkSession, folder: Path, members: int) -> None:
    path = str(folder / "keys")
    key = F.concat(F.lit("user:"), F.col("id").cast("string")).alias("key")
    spark.range(KEYS).select(key).write.mode("overwrite").parquet(path)
    ring = HashRing([f"10.0.0.{index}:3000" for index in range(members)])

    @F.arrow_udf("string")  # type: ignore[attr-defined,untyped-decorator]  # pyspark hides it
    def owner(keys: pa.Array) -> pa.Array:
        return pa.array(ring.lookup_many(keys.to_pylist()))

    def aggregate(column: Callable[[], Any]) -> Callable[[], object]:
        return lambda: spark.read.parquet(path).agg(F.sum(column())).collect()

    print(f"{KEYS:,} keys, {members} members")
    ways = {
        "sum(length(key))": aggregate(lambda: F.length("key")),
        "sum(length(ring_owner))": aggregate(lambda: F.length(ring_owner("key", ring))),
        "sum(owner_index)": aggregate(lambda: owner_index("key", ring)),
        "sum(length(Arrow UDF))": aggregate(lambda: F.length(owner("key"))),
    }
    compare(ways, KEYS, turns=5)


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)])})


def routes(spark: SparkSession, folder: Path, cluster: Cluster) -> None:
    rows = COPIES * write_flights(folder / "flights")
    once = spark.read.parquet(str(folder / "flights")).select("tailnum", "arr_delay", "distance")
    flights = once
    for _ in range(COPIES - 1):
        flights = flights.union(once)
    path = str(folder / "copies")
    flights.coalesce(2).write.parquet(path)

    def read() -> DataFrame:
        return spark.read.parquet(path)

    def send(**options: Any) -> Callable[[], object]:  # noqa: ANN401 - options of route
        return lambda: route(
            read(), key="tailnum", endpoint="/flights", peers=cluster.addresses, **options
        )

    print(f"{rows:,} flights of 3 columns to {len(cluster.nodes)} nodes that add them up")
    ways: dict[str, Callable[[], object]] = {
        "mapInArrow that counts": lambda: read().mapInArrow(count, "n long").collect(),
        "route, direct, 10k rows": send(batch_rows=10_000),
        "route, daemon, 10k rows": send(through="daemon", batch_rows=10_000),
        "route, direct, 50k rows": send(batch_rows=50_000),
        "route, daemon, 50k rows": send(through="daemon", batch_rows=50_000),
    }
    compare(ways, rows, turns=5)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = "ringpop_py.demo.app:create"
        with (
            Cluster(folder, 4, app=app) as cluster,
            open_spark("bench", folder=folder, driver_memory="2g", quick_start=False) as spark,
        ):
            lookups(spark, folder, 5)
            lookups(spark, folder, 100)
            routes(spark, folder, cluster)


if __name__ == "__main__":
    main()
