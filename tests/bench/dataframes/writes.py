"""Writes that are exactly once, beside what only counts rows, and beside rows of Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.dataframes.functions import MILLIONS, count
from tests.bench.dataframes.inputs import (
    FILES,
    Input,
    check,
    flights,
    flights_3m,
    kept,
    totals_of,
    zipf,
)
from tests.bench.dataframes.ours import in_batches, one_by_one, register
from tests.bench.dataframes.turns import Way, rates, tell
from tests.bench.report import larger_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.bench.dataframes.bench import Bench
    from tests.bench.dataframes.ours import Target
    from tests.bench.report import Row

IN_BATCHES_ROWS: Final = 40_000
ONE_BY_ONE_ROWS: Final = 1_000
"""Of the flights: all of them, one way, would take an hour."""


def writes(bench: Bench) -> Iterator[Row]:
    """Sums by key, of the chosen inputs; beside rows of Python, of the first one."""
    register(bench.spark)
    options = bench.options
    if "flights" in options.inputs:
        first = flights(bench.spark, bench.folder)
        yield from _beside_counting(bench, first)
        yield from _beside_python(bench, first)
    if "flights-3m" in options.inputs and options.flights_3m is None:
        tell("no flights_3m: --flights-3m FILE says where they are")
    elif "flights-3m" in options.inputs:
        file = Path(options.flights_3m)
        yield from _beside_counting(bench, flights_3m(bench.spark, bench.folder, file))
    if "zipf" in options.inputs:
        rows = zipf(bench.spark, bench.folder, options.rows)
        more = {"combined": combined_first(bench, rows, bench.target(f"{rows.name}-combined"))}
        yield from _beside_counting(bench, rows, more)


def _beside_counting(
    bench: Bench, rows: Input, more: Mapping[str, Way] | None = None
) -> Iterator[Row]:
    tell(f" {rows.name}: {rows.rows:,} rows of {rows.totals.num_rows:,} keys")
    spark = bench.spark
    parquet = str(bench.folder / "written")
    found = rates(
        {
            "count": counting(bench, rows),
            "direct": ours(bench, rows, bench.target(rows.name)),
            "daemon": ours(bench, rows, bench.target(f"{rows.name}-daemon"), distribution="daemon"),
            "parquet": Way(
                lambda: rows.read(spark).write.mode("overwrite").parquet(parquet),
                rows.rows,
                lambda: check(totals_of(spark.read.parquet(parquet)), rows.totals, 1, "parquet"),
            ),
            **(more or {}),
        },
        bench.options.turns,
    )
    yield from rows_of(f"spark.write.{rows.name}", found)


def rows_of(name: str, found: dict[str, float]) -> Iterator[Row]:
    """The comparisons of one input, of rates by the names of ways."""
    direct, daemon, counted, parquet = (
        found[way] / 1e6 for way in ("direct", "daemon", "count", "parquet")
    )
    yield larger_is_better(name, direct, MILLIONS, "mapInArrow that counts", counted, 0.6)
    yield larger_is_better(f"{name}.daemon", daemon, MILLIONS, "write, direct", direct, 0.8)
    yield larger_is_better(name, direct, MILLIONS, "parquet write", parquet)
    if "combined" in found:
        first = found["combined"] / 1e6
        name = f"{name}.combined"
        yield larger_is_better(name, first, MILLIONS, "mapInArrow that counts", counted, 0.6)
        yield larger_is_better(name, first, MILLIONS, "write, direct", direct)


def counting(bench: Bench, rows: Input) -> Way:
    """What a task in Python takes at least."""
    return Way(
        lambda: rows.read(bench.spark).mapInArrow(count, "n long").collect(),
        rows.rows,
    )


def ours(bench: Bench, rows: Input, target: Target, **options: str) -> Way:
    """Sums by key through the data source."""
    return Way(
        lambda: target.write(rows.read(bench.spark), **options),
        rows.rows,
        lambda: target.written(rows),
    )


def combined_first(bench: Bench, rows: Input, target: Target) -> Way:
    """Sums by key through the data source, after Spark has left a row of each."""

    def run() -> None:
        from ringpop_py.spark import combined

        operations = {"minutes": "add", "miles": "add"}
        target.write(combined(rows.read(bench.spark), "key", operations))

    return Way(run, rows.rows, lambda: target.written(rows))


def _beside_python(bench: Bench, rows: Input) -> Iterator[Row]:
    """As programs do without the data source: durable, too, and not exactly once."""
    tell(" beside rows of Python")

    def python(name: str, limit: int, sender: Callable[[Target], Callable[..., None]]) -> Way:
        part = rows.read(bench.spark).limit(limit).repartition(FILES)
        some = kept(bench.spark, bench.folder, f"{rows.name}_{name}", part)
        target = bench.target(name)
        return Way(
            lambda: some.read(bench.spark).foreachPartition(sender(target)),
            some.rows,
            lambda: target.written(some),
            warm=False,
        )

    found = rates(
        {
            "direct": ours(bench, rows, bench.target("again")),
            "batches": python("batches", IN_BATCHES_ROWS, in_batches),
            "calls": python("calls", ONE_BY_ONE_ROWS, one_by_one),
        },
        bench.options.turns,
    )
    direct, batches, calls = (found[way] / 1e6 for way in ("direct", "batches", "calls"))
    name = f"spark.write.{rows.name}"
    yield larger_is_better(name, direct, MILLIONS, "msgpack rows", batches, 5.0)
    yield larger_is_better(name, direct, MILLIONS, "a call a row", calls, 100.0)
