"""Rows from Spark to readers without it: through a shuffle, and through sorted files."""

from __future__ import annotations

import os
import shutil
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ringpop_py.flow.shuffle.client.client import RandomOrder, ShuffleClient, random_order
from tests.bench.report import smaller_is_better
from tests.bench.shuffles.puts import INTERVALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.bench.report import Row
    from tests.e2e.shuffle.cluster import ShuffleCluster

PARTITIONS: Final = 8
SORTED: Final = "sort, write.parquet, pyarrow"
RANDOMLY: Final = "orderBy(rand()), write.parquet, pyarrow"
TARGET_ALL: Final = 1.5
TARGET_FIRST: Final = 3.0
TARGET_REORDER: Final = 3.0
SEED: Final = 2013
WORDS_ROWS: Final = 2_000_000


class Way(NamedTuple):
    """What came of one way, and after how many seconds: its first batch, and all of it."""

    first_s: float
    all_s: float
    rows: pa.Table


def dataframes(cluster: ShuffleCluster, folder: Path, rows: int, rounds: int) -> Iterator[Row]:
    """Rows of even keys, in order; then the same rows in a random order."""
    from pyspark.sql.functions import rand

    with _spark() as spark:
        keys = spark.range(rows, numPartitions=PARTITIONS)
        made = keys.selectExpr("xxhash64(id) as key", "id as number", "rand(1) as value")
        df = _kept(spark, folder / "source", made)
        ours, theirs, reordered, randomly = ([] for _ in range(4))
        for number in range(-1, rounds):
            name = f"sorted {number}"
            ours.append(_shuffled(cluster, df, ["key"], name))
            _check(ours[-1].rows, ["key"])
            reordered.append(_reordered(cluster, name, number + 1))
            theirs.append(_through_files(folder / "out", df.sort("key")))
            randomly.append(_through_files(folder / "out", df.orderBy(rand(number + 1))).all_s)
        # The first turn warms up.
        yield _compared("shuffle.spark.all", ours[1:], SORTED, theirs[1:], TARGET_ALL)
        firsts, their_firsts = (median(way.first_s for way in ways[1:]) for ways in (ours, theirs))
        yield smaller_is_better(
            "shuffle.spark.first", firsts, "s", SORTED, their_firsts, TARGET_FIRST
        )
        yield smaller_is_better(
            "shuffle.reorder", median(reordered[1:]), "s", RANDOMLY, median(randomly[1:]),
            TARGET_REORDER,
        )  # fmt: skip


class Files(NamedTuple):
    """Where rows of the world are that come with no package of Python."""

    flights_3m: Path | None = None
    words: Path | None = None


class _Input(NamedTuple):
    """Rows, and the columns by which they are sorted."""

    name: str
    rows: DataFrame
    keys: list[str]


def real(
    files: Files, cluster: ShuffleCluster, folder: Path, _rows: int, rounds: int
) -> Iterator[Row]:
    """Rows of the world, in the order of their keys, and in a random one."""
    from pyspark.sql.functions import rand

    with _spark() as spark:
        for name, df, keys in _inputs(spark, folder, files):
            for kind, by, ordered, peer in (
                ("sorted", keys, df.sort(*keys), SORTED),
                ("random", random_order(SEED), df.orderBy(rand(SEED)), RANDOMLY),
            ):
                ours, theirs = [], []
                for number in range(-1, rounds):
                    ours.append(_shuffled(cluster, df, by, f"{name} {kind} {number}"))
                    theirs.append(_through_files(folder / "out", ordered))
                    _check(ours[-1].rows, keys if kind == "sorted" else [])
                    mine, other = (ways[-1].rows.select(keys) for ways in (ours, theirs))
                    # Files of Spark have times without their zone.
                    assert _counts(mine).equals(_counts(other.cast(mine.schema)))
                row = f"shuffle.{name}.{kind}"
                yield _compared(row, ours[1:], peer, theirs[1:], TARGET_ALL)


def _inputs(spark: SparkSession, folder: Path, files: Files) -> Iterator[_Input]:
    from ringpop_demo.flights import write_flights

    write_flights(folder / "nycflights13")
    flights = spark.read.parquet(str(folder / "nycflights13"))
    yield _Input("nycflights13", flights, ["carrier", "time_hour"])
    if files.flights_3m is not None:
        flights = spark.read.parquet(str(files.flights_3m)).repartition(PARTITIONS)
        yield _Input("flights-3m", _kept(spark, folder / "3m", flights), ["origin", "date"])
    if files.words is not None:
        words = np.array(files.words.read_text("utf-8").split())
        drawn = np.random.default_rng(SEED).choice(words, WORDS_ROWS)
        table = pa.table({"word": drawn, "number": np.arange(WORDS_ROWS)})
        pq.write_table(table, folder / "words.parquet", row_group_size=1 << 18)
        rows = spark.read.parquet(str(folder / "words.parquet")).repartition(PARTITIONS)
        yield _Input("words", _kept(spark, folder / "words", rows), ["word"])


def _spark() -> AbstractContextManager[SparkSession]:
    from ringpop_demo.session import open_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return open_spark("bench", driver_memory="4g")


def _kept(spark: SparkSession, folder: Path, rows: DataFrame) -> DataFrame:
    rows.write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def _compared(
    name: str, ours: Sequence[Way], peer: str, theirs: Sequence[Way], target: float
) -> Row:
    mine, other = (median(way.all_s for way in ways) for ways in (ours, theirs))
    return smaller_is_better(name, mine, "s", peer, other, target)


def _shuffled(
    cluster: ShuffleCluster, df: DataFrame, by: list[str] | RandomOrder, name: str
) -> Way:
    from ringpop_py.spark import shuffle

    began = time.perf_counter()
    shuffle(df, by=by, name=name, peers=cluster.addresses, intervals=INTERVALS)
    with ShuffleClient.open(cluster.addresses, name) as client:
        return _read(client.scan(), began)


def _reordered(cluster: ShuffleCluster, name: str, seed: int) -> float:
    with ShuffleClient.open(cluster.addresses, name) as client:
        began = time.perf_counter()
        with client.reorder(seed, f"{name}, again") as target:
            table = target.reader().read_all()
            seconds = time.perf_counter() - began
            target.delete()
        assert table.num_rows == sum(interval.rows for interval in client.intervals)
        client.delete()
    return seconds


def _through_files(folder: Path, ordered: DataFrame) -> Way:
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    ordered.write.parquet(str(folder))
    files = [str(file) for file in sorted(folder.glob("*.parquet"))]
    return _read(ds.dataset(files).to_batches(), began)


def _read(batches: Iterator[pa.RecordBatch], began: float) -> Way:
    read = [next(batches)]
    first = time.perf_counter() - began
    read += batches
    return Way(first, time.perf_counter() - began, pa.Table.from_batches(read))


def _check(rows: pa.Table, keys: list[str]) -> None:
    """Raise AssertionError unless *rows* are in the order of *keys*."""
    found = rows.select(keys)
    in_order = found.sort_by([(key, "ascending") for key in keys]) if keys else found
    assert found.equals(in_order), "the rows are not in order"


def _counts(keys: pa.Table) -> pa.Table:
    """Return how many rows each of *keys* has."""
    names = keys.column_names
    counts = keys.group_by(names).aggregate([([], "count_all")])
    return counts.sort_by([(name, "ascending") for name in names]).combine_chunks()
