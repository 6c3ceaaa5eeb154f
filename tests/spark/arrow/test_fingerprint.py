"""The same rows have the same fingerprint in any order and in any pieces, and others another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ringpop_py.spark.arrow.stored import fingerprint  # noqa: E402
from ringpop_py.state.rows.fingerprint import added  # noqa: E402

if TYPE_CHECKING:
    from random import Random

Rows = list[dict[str, Any]]
pa.array([""])  # with the first array, pyarrow imports pandas: no hypothesis should wait for it
SCHEMA = pa.schema(
    [("key", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))]
)
ROWS = st.fixed_dictionaries(
    {
        "key": st.none() | st.text(max_size=3),
        "x": st.none() | st.floats(-1, 1),
        "n": st.none() | st.integers(-5, 5),
        "tags": st.none() | st.lists(st.text("ab", max_size=1), max_size=2),
    }
)


def cells(row: dict[str, Any]) -> list[str]:
    return [repr(row[name] + 0.0 if name == "x" and row[name] else row[name]) for name in names()]


def names() -> list[str]:
    return list(SCHEMA.names)


def print_of(rows: Rows) -> int:
    return fingerprint(pa.RecordBatch.from_pylist(rows, SCHEMA))


@given(st.lists(ROWS, max_size=8), st.randoms(use_true_random=False), st.integers(0, 8))
def test_neither_order_nor_pieces_matter(rows: Rows, rng: Random, cut: int) -> None:
    whole = print_of(rows)
    shuffled = list(rows)
    rng.shuffle(shuffled)

    parts = [print_of(shuffled[:cut]), print_of(shuffled[cut:])]

    assert added(parts) == added([whole]) == whole


@given(st.lists(ROWS, max_size=5), st.lists(ROWS, max_size=5))
def test_other_rows_have_another_one(one: Rows, other: Rows) -> None:
    assert (print_of(one) == print_of(other)) == (
        sorted(map(cells, one)) == sorted(map(cells, other))
    )


def test_columns_that_change_places_are_other_rows() -> None:
    rows = pa.record_batch({"a": [1, 2], "b": [2, 1]})

    assert fingerprint(rows) != fingerprint(rows.rename_columns(["b", "a"]))
