"""Counts of operations, quantiles of buckets, and the last ten minutes."""

from __future__ import annotations

import sys

import pytest

from ringpop_py.base.errors import (
    ApplicationError,
    BadOperation,
    ConditionFailed,
    HandlerFailed,
    KeyspaceForbidden,
    OutcomeUnknown,
    PartitionUnavailable,
    Refused,
    StoreUnavailable,
)
from ringpop_py.base.metering import (
    BOUNDS_S,
    COLUMNS_MAX,
    KINDS,
    Histogram,
    Operations,
    Series,
    Tally,
    Totals,
    quantile_ms,
)

NOW = 1_000_001.0
"""Just behind the end of a column."""


@pytest.mark.parametrize(
    "error",
    [
        ConditionFailed("no"),
        BadOperation("no"),
        KeyspaceForbidden("no"),
        Refused("no"),
        ApplicationError("Refused", "no"),
    ],
)
def test_what_is_the_callers_fault_is_refused(error: Exception) -> None:
    tally = Tally()
    tally.fail(error, 3)
    assert (tally.done, tally.refused, tally.failed) == (0, 3, 0)


@pytest.mark.parametrize(
    "error",
    [
        PartitionUnavailable("gone"),
        StoreUnavailable("gone"),
        OutcomeUnknown("late"),
        HandlerFailed("ValueError", "bug"),
        ValueError("bug"),
    ],
)
def test_what_was_not_served_has_failed(error: Exception) -> None:
    tally = Tally()
    tally.fail(error)
    assert (tally.done, tally.refused, tally.failed) == (0, 0, 1)


def test_each_of_many_results_counts_by_itself() -> None:
    tally = Tally()
    tally.add([b"x", None, ConditionFailed("no"), PartitionUnavailable("gone")])
    assert (tally.done, tally.refused, tally.failed) == (2, 1, 1)


def test_a_status_of_http_says_whose_fault_it_is() -> None:
    tally = Tally()
    for status in (200, 304, 404, 403, 500):
        tally.end(status)
    assert (tally.done, tally.refused, tally.failed) == (2, 2, 1)


def test_every_kind_has_a_tally_of_its_own() -> None:
    operations = Operations()
    operations.read.done += 1
    assert {kind: tally.done for kind, tally in operations.by_kind().items()} == {
        kind: int(kind == "read") for kind in KINDS
    }


def test_quantiles_are_within_their_bucket() -> None:
    histogram = Histogram()
    assert quantile_ms(histogram.counts, 0.99) is None
    for _ in range(98):
        histogram.observe(0.0008)
    histogram.observe(0.2)
    histogram.observe(0.2)

    half, most = (quantile_ms(histogram.counts, share) for share in (0.5, 0.99))
    assert half is not None
    assert 0.5 < half < 1
    assert most is not None
    assert 100 < most <= 250

    slow = Histogram()
    slow.observe(60.0)
    assert quantile_ms(slow.counts, 0.5) == 1_000 * BOUNDS_S[-1]


def totals(operations: Operations, *gauges: int) -> Totals:
    return Totals.of(operations, gauges or (3, 0, 0, 0))


def rows(series: Series, after: float = 0) -> list[dict[str, float | None]]:
    return [dict(zip(series.names, column, strict=True)) for column in series.after(after)]


def test_a_column_has_what_was_counted_in_its_time() -> None:
    series, operations = Series(NOW), Operations()
    assert not series.is_due(NOW)
    assert series.after(0) == []

    operations.read.done += 5
    operations.write.refused += 2
    operations.entry.failed += 1
    operations.read.seconds.observe(0.0008)
    assert not series.is_due(NOW + 3.9)
    assert series.is_due(NOW + 4)
    series.add(NOW + 4, totals(operations, 2, 1, 4, 7))
    operations.handler.done += 1
    series.add(NOW + 9, totals(operations))

    first, second = rows(series)
    counted = {"reads": 5, "writes": 2, "handlers": 0, "others": 1, "refused": 2, "failed": 1}
    gauges = {"alive": 2, "not_alive": 1, "partitions_unserved": 4, "partitions_moving": 7}
    latencies = {"p50_ms": pytest.approx(0.75), "p99_ms": pytest.approx(0.995)}
    assert first == {**counted, **gauges, **latencies}
    assert second == {
        **dict.fromkeys(series.names, 0),
        "handlers": 1,
        "alive": 3,
        "p50_ms": None,
        "p99_ms": None,
    }
    assert series.ended_at == 1_000_010


def test_columns_in_which_nobody_looked_have_no_counts_and_the_last_gauges() -> None:
    series, operations = Series(NOW), Operations()
    operations.write.done += 7
    series.add(NOW + 19, totals(operations, 4, 0, 0, 0))

    found = rows(series)
    assert [row["writes"] for row in found] == [7, 0, 0, 0]
    assert [row["alive"] for row in found] == [4, 4, 4, 4]
    assert series.ended_at == 1_000_020


def test_only_newer_columns_are_returned() -> None:
    series, operations = Series(NOW), Operations()
    for step in range(1, 5):
        operations.read.done += step
        series.add(NOW + 5 * step, totals(operations))
    assert series.ended_at == 1_000_020

    assert [row["reads"] for row in rows(series, 1_000_010)] == [3, 4]
    assert [row["reads"] for row in rows(series, 1_000_014.9)] == [3, 4]
    assert [row["reads"] for row in rows(series, 1_000_015)] == [4]
    assert series.after(1_000_020) == series.after(2_000_000) == []


def test_the_ring_is_of_fixed_size_and_small() -> None:
    series, operations = Series(NOW), Operations()
    for step in range(1, 3 * COLUMNS_MAX):
        operations.read.done += step
        series.add(NOW + 5 * step, totals(operations))
    last = 3 * COLUMNS_MAX - 1
    assert [row["reads"] for row in rows(series)] == [*range(last - COLUMNS_MAX + 1, last + 1)]
    assert sys.getsizeof(series._cells) < 12_000

    series.add(NOW + 1_000_000, totals(operations))
    assert [row["reads"] for row in rows(series)] == [0] * COLUMNS_MAX


def test_a_clock_that_was_set_back_begins_again() -> None:
    series, operations = Series(NOW), Operations()
    series.add(NOW + 20, totals(operations))
    assert not series.is_due(NOW + 15)  # a little: the next column is longer
    assert series.is_due(NOW)

    series.add(NOW, totals(operations))
    assert series.after(0) == []
    operations.read.done += 1
    series.add(NOW + 5, totals(operations))
    assert [row["reads"] for row in rows(series)] == [1]
