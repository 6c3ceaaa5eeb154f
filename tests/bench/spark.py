"""ring_owner beside sum(length) and an Arrow UDF; route beside a mapInArrow that only counts.

All ways take turns, and the first turn is not counted.
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
from ringpop_py.spark import ring_owner, route
from tests.bench.report import Row, larger_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

KEYS = 10_000_000
COPIES = 6
TURNS = 5
MILLIONS = "M rows/s"


def compare(ways: dict[str, Callable[[], object]], rows: int) -> dict[str, float]:
    """Millions of rows a second of each way: the median of its turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS + 1):
        for name, way in ways.items():
            started_at = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - started_at)
    return {name: rows / statistics.median(counted[1:]) / 1e6 for name, counted in times.items()}


def lookups(spark: SparkSession, folder: Path, members: int) -> Iterator[Row]:
    path = str(folder / "keys")
    key = F.concat(F.lit("user:"), F.col("id").cast("string")).alias("key")
    spark.range(KEYS).select(key).write.mode("overwrite").parquet(path)
    ring = HashRing([f"10.0.0.{index}:3000" for index in range(members)])

    @F.arrow_udf("string")  # type: ignore[attr-defined,untyped-decorator]  # pyspark hides it
    def owner(keys: pa.Array) -> pa.Array:
        return pa.array(ring.lookup_many(keys.to_pylist()))

    def aggregate(column: Callable[[], Any]) -> Callable[[], object]:
        return lambda: spark.read.parquet(path).agg(F.sum(column())).collect()

    found = compare(
        {
            "length": aggregate(lambda: F.length("key")),
            "owner": aggregate(lambda: F.length(ring_owner("key", ring))),
            "udf": aggregate(lambda: F.length(owner("key"))),
        },
        KEYS,
    )
    name, ours = f"spark.ring_owner.{members}", found["owner"]
    yield larger_is_better(name, ours, MILLIONS, "sum(length(key))", found["length"], 0.8)
    yield larger_is_better(name, ours, MILLIONS, "Arrow UDF", found["udf"], 2.0)


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)])})


def routes(spark: SparkSession, folder: Path, cluster: Cluster) -> Iterator[Row]:
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

    found = compare(
        {
            "count": lambda: read().mapInArrow(count, "n long").collect(),
            "direct": send(),
            "daemon": send(through="daemon"),
        },
        rows,
    )
    direct = found["direct"]
    yield larger_is_better(
        "spark.route.direct", direct, MILLIONS, "mapInArrow that counts", found["count"], 0.6
    )
    yield larger_is_better(
        "spark.route.daemon", found["daemon"], MILLIONS, "route, direct", direct, 0.8
    )


def run() -> Iterator[Row]:
    """Ten million keys, and two million flights to four nodes that add them up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = "ringpop_py.demo.app:create"
        with (
            Cluster(folder, 4, app=app) as cluster,
            open_spark("bench", folder=folder, driver_memory="2g", quick_start=False) as spark,
        ):
            yield from lookups(spark, folder, 5)
            yield from lookups(spark, folder, 100)
            yield from routes(spark, folder, cluster)
