"""Owners as a column, and rows routed to their owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from ringpop_demo.flights import write_flights
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import ring_owner, route
from tests.bench.dataframes.inputs import COPIES
from tests.bench.dataframes.turns import Way, rates
from tests.bench.report import larger_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from tests.bench.dataframes.bench import Bench
    from tests.bench.report import Row

MEMBERS: Final = (5, 100)
MILLIONS: Final = "M rows/s"


def owners(bench: Bench) -> Iterator[Row]:
    """`ring_owner` beside `sum(length)` and an Arrow UDF."""
    spark, path, rows = bench.spark, str(bench.folder / "keys"), bench.options.rows
    key = F.concat(F.lit("user:"), F.col("id").cast("string")).alias("key")
    spark.range(rows).select(key).write.mode("overwrite").parquet(path)
    for members in MEMBERS:
        yield from _owners(bench, path, members)


def _owners(bench: Bench, path: str, members: int) -> Iterator[Row]:
    ring = HashRing([f"10.0.0.{index}:3000" for index in range(members)])

    @F.arrow_udf("string")  # type: ignore[attr-defined,untyped-decorator]  # pyspark hides it
    def owner(keys: pa.Array) -> pa.Array:
        return pa.array(ring.lookup_many(keys.to_pylist()))

    def aggregate(column: Callable[[], Any]) -> Way:
        return Way(
            lambda: bench.spark.read.parquet(path).agg(F.sum(column())).collect(),
            bench.options.rows,
        )

    found = rates(
        {
            "length": aggregate(lambda: F.length("key")),
            "owner": aggregate(lambda: F.length(ring_owner("key", ring))),
            "udf": aggregate(lambda: F.length(owner("key"))),
        },
        bench.options.turns,
    )
    length, ours, udf = (found[name] / 1e6 for name in ("length", "owner", "udf"))
    name = f"spark.ring_owner.{members}"
    yield larger_is_better(name, ours, MILLIONS, "sum(length(key))", length, 0.8)
    yield larger_is_better(name, ours, MILLIONS, "Arrow UDF", udf, 2.0)


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the least that a task in Python does with rows."""
    yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)])})


def routes(bench: Bench) -> Iterator[Row]:
    """`route` beside a `mapInArrow` that only counts: nothing is kept, and nothing is durable."""
    spark, folder = bench.spark, bench.folder
    rows = COPIES * write_flights(folder / "flights")
    once = spark.read.parquet(str(folder / "flights")).select("tailnum", "arr_delay", "distance")
    flights = once
    for _ in range(COPIES - 1):
        flights = flights.union(once)
    path = str(folder / "copies")
    flights.coalesce(2).write.parquet(path)

    def read() -> DataFrame:
        return spark.read.parquet(path)

    def send(**options: Any) -> Way:  # noqa: ANN401 - options of route
        peers = bench.cluster.addresses
        return Way(
            lambda: route(read(), key="tailnum", endpoint="/flights", peers=peers, **options), rows
        )

    found = rates(
        {
            "count": Way(lambda: read().mapInArrow(count, "n long").collect(), rows),
            "direct": send(),
            "daemon": send(through="daemon"),
        },
        bench.options.turns,
    )
    counted, direct, daemon = (found[name] / 1e6 for name in ("count", "direct", "daemon"))
    yield larger_is_better(
        "spark.route.direct", direct, MILLIONS, "mapInArrow that counts", counted, 0.6
    )
    yield larger_is_better("spark.route.daemon", daemon, MILLIONS, "route, direct", direct, 0.8)
