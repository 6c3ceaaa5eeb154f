"""What was put, read back: all of it, and the values of some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from tests.bench.dataframes.functions import MILLIONS
from tests.bench.dataframes.inputs import (
    FILES,
    SEED,
    WrongTotals,
    check,
    distinct,
    ordered,
    totals_of,
)
from tests.bench.dataframes.ours import register
from tests.bench.dataframes.turns import Way, rates, tell
from tests.bench.dataframes.writes import counting, rows_of
from tests.bench.report import larger_is_better

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from tests.bench.dataframes.bench import Bench
    from tests.bench.dataframes.inputs import Input
    from tests.bench.dataframes.ours import Target
    from tests.bench.report import Row

WANTED: Final = 200_000
NUMBERS: Final = "minutes long, miles long"


def reads(bench: Bench) -> Iterator[Row]:
    """Puts of distinct keys; then all of them read, and then some looked up."""
    register(bench.spark)
    rows = distinct(bench.spark, bench.folder, bench.options.keys)
    target = bench.target("puts")
    yield from _puts(bench, rows, target)
    yield from _scans(bench, rows, target)
    yield from _lookups(bench, rows, target)


def _puts(bench: Bench, rows: Input, target: Target) -> Iterator[Row]:
    tell(f" puts of {rows.rows:,} keys")
    spark, parquet = bench.spark, str(bench.folder / "written")
    through = bench.target("puts-daemon")

    def put(target: Target, **options: str) -> Way:
        return Way(
            lambda: target.write(rows.read(spark), "put", **options),
            rows.rows,
            lambda: target.written(rows, adds=False),
        )

    found = rates(
        {
            "count": counting(bench, rows),
            "direct": put(target),
            "daemon": put(through, distribution="daemon"),
            "parquet": Way(
                lambda: rows.read(spark).write.mode("overwrite").parquet(parquet),
                rows.rows,
                lambda: check(totals_of(spark.read.parquet(parquet)), rows.totals, 1, "parquet"),
            ),
        },
        bench.options.turns,
    )
    yield from rows_of(f"spark.put.{rows.name}", found)


def scanned(bench: Bench, target: Target) -> DataFrame:
    """All of a keyspace as a DataFrame."""
    given = {"keyspace": target.name, "key": "key", "peers": ",".join(target.peers)}
    return (
        bench.spark.read.format("ringpop").options(**given).schema(f"key string, {NUMBERS}").load()
    )


def _scans(bench: Bench, rows: Input, target: Target) -> Iterator[Row]:
    tell(" scans")
    found_last: list[tuple[int, ...]] = []
    wanted = tuple(
        [rows.rows] + [sum(rows.totals[name].to_pylist()) for name in ("minutes", "miles")]
    )

    def add_up(frame: DataFrame) -> None:
        sums = [F.count("key"), F.sum("minutes"), F.sum("miles")]
        found_last.append(tuple(frame.agg(*sums).collect()[0]))

    def right() -> None:
        if found_last.pop() != wanted:
            message = "a scan that has other totals"
            raise WrongTotals(message)

    found = rates(
        {
            "scan": Way(lambda: add_up(scanned(bench, target)), rows.rows, right),
            "parquet": Way(lambda: add_up(rows.read(bench.spark)), rows.rows, right),
        },
        bench.options.turns,
    )
    scan, parquet = found["scan"] / 1e6, found["parquet"] / 1e6
    name = f"spark.scan.{rows.name}"
    yield larger_is_better(name, scan, MILLIONS, "parquet read", parquet, 0.25)


def _lookups(bench: Bench, rows: Input, target: Target) -> Iterator[Row]:
    """The same rows by asking for keys, and by reading all and joining."""
    from ringpop_py.spark import lookup

    count = min(WANTED, rows.rows)
    tell(f" {count:,} keys looked up")
    path = str(bench.folder / "wanted")
    chosen = rows.read(bench.spark).select("key").orderBy(F.rand(SEED)).limit(count)
    chosen.repartition(FILES).write.parquet(path)

    def read() -> DataFrame:
        return bench.spark.read.parquet(path)

    def looked_up() -> DataFrame:
        return lookup(
            read(), keyspace=target.name, key="key", schema=NUMBERS, peers=list(target.peers)
        )

    def joined() -> DataFrame:
        return read().join(scanned(bench, target), "key", "left")

    both = [ordered(frame().toArrow()) for frame in (looked_up, joined)]
    wanted = ordered(read().join(rows.read(bench.spark), "key").toArrow())
    for found_rows, way in zip(both, ("lookup", "scan and join"), strict=True):
        check(found_rows, wanted, 1, way)
    found = rates(
        {
            "lookup": Way(lambda: looked_up().agg(F.sum("minutes")).collect(), count),
            "join": Way(lambda: joined().agg(F.sum("minutes")).collect(), count),
        },
        bench.options.turns,
    )
    ours, join = found["lookup"] / 1e6, found["join"] / 1e6
    yield larger_is_better(
        f"spark.lookup.{count}", ours, MILLIONS, f"scan of {rows.rows:,} and join", join, 2.0
    )
