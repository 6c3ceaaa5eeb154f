"""Fingerprints of rows of each type: rows in any order and any batches, and other rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ringpop_py.state.rows.fingerprint import MASK, added, fingerprint  # noqa: E402

DAY, DAYS = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
AT, LATER = dt.datetime(2026, 1, 1, 1), dt.datetime(2026, 1, 1, 2)  # noqa: DTZ001 - of a wall clock
VALUES: list[tuple[Any, Any, Any]] = [
    (pa.bool_(), True, False),
    (pa.int8(), 1, -1),
    (pa.uint64(), 2**64 - 1, 0),
    (pa.float32(), 1.5, float("nan")),
    (pa.float64(), 1.5, 0.0),
    (pa.string(), "a", ""),
    (pa.large_string(), "a", "b" * 40),
    (pa.binary(), b"a", b""),
    (pa.binary(3), b"abc", b"abd"),
    (pa.date32(), DAY, DAYS),
    (pa.date64(), DAY, DAYS),
    (pa.time32("s"), dt.time(1), dt.time(2)),
    (pa.time64("us"), dt.time(1), dt.time(2)),
    (pa.timestamp("us", "UTC"), AT, LATER),
    (pa.duration("us"), dt.timedelta(1), dt.timedelta(2)),
    (pa.month_day_nano_interval(), (1, 2, 3), (1, 2, 4)),
    (pa.decimal128(38, 2), Decimal("1.50"), Decimal("2.50")),
    (pa.decimal256(60, 2), Decimal("1.50"), Decimal("2.50")),
    (pa.list_(pa.int32()), [1, 2], [2, 1]),
    (pa.list_(pa.int32()), [], [0]),
    (pa.large_list(pa.string()), ["a", None], [None, "a"]),
    (pa.list_(pa.int32(), 2), [1, 2], [2, 1]),
    (pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"a": 1, "b": 2}, {"a": 2, "b": 1}),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]),
    (pa.list_(pa.struct([("a", pa.list_(pa.date32()))])), [{"a": [DAY]}], [{"a": []}]),
]


@pytest.mark.parametrize(("kind", "one", "other"), VALUES, ids=[str(each[0]) for each in VALUES])
def test_rows_are_told_from_others_and_neither_order_nor_batches_matter(
    kind: Any,  # noqa: ANN401 - pyarrow has no types
    one: Any,  # noqa: ANN401 - of any type
    other: Any,  # noqa: ANN401 - of any type
) -> None:
    values = pa.array([one, None, other, one, one, None, other], kind)
    rows = pa.record_batch({"x": values, "n": pa.array([1, 2, 3, 4, 1, 2, 3])})

    whole = fingerprint(rows)

    assert 0 <= whole <= MASK
    assert whole == fingerprint(rows.take(pa.array([6, 0, 5, 3, 1, 2, 4])))
    assert whole == added([fingerprint(rows.slice(0, 3)), fingerprint(rows.slice(3))])
    singles = [pa.record_batch({"x": pa.array([each], kind)}) for each in (one, other, None)]
    assert len(set(map(fingerprint, singles))) == 3
    swapped = rows.set_column(1, "n", pa.array([3, 2, 1, 4, 1, 2, 3]))
    assert fingerprint(swapped) != whole, "values of one row belong together"


def test_map_entries_have_no_order() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    one, other = ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])

    assert of(pa.array([one], kind)) == of(pa.array([other], kind))


def test_floating_point_numbers_are_left_out_where_that_is_wanted() -> None:
    kind = pa.list_(pa.float64())
    rows = [pa.record_batch({"x": pa.array([[each]], kind)}) for each in (1.5, 1.5000001)]

    assert len({fingerprint(each) for each in rows}) == 2
    assert len({fingerprint(each, floats=False) for each in rows}) == 1
    assert of(pa.array([0.0])) == of(pa.array([-0.0]))


def of(column: Any) -> int:  # noqa: ANN401 - pyarrow has no types
    return fingerprint(pa.record_batch({"x": column}))
