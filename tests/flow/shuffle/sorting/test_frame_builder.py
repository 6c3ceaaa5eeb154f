"""A random order does not show how its rows were put."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from ringpop_py.flow.shuffle.sorting.frame_builder import with_random_keys
from ringpop_py.flow.shuffle.sorting.order import RANDOM

ROWS = 5_000


def drawn(rows: int, *, part: int = 3, first: int = 0, seed: int = 7) -> list[int]:
    table = pa.table({"key": range(rows)})
    keys: list[int] = with_random_keys(table, seed, part, first).column(RANDOM).to_pylist()
    return keys


def test_each_put_of_a_task_draws_other_keys() -> None:
    """One put of many rows, or two of half as many, are the same rows in the same order."""
    whole = drawn(2 * ROWS)

    assert drawn(ROWS) + drawn(ROWS, first=ROWS) == whole
    assert len(set(whole)) == 2 * ROWS
    assert not set(whole) & {*drawn(ROWS, part=4), *drawn(ROWS, seed=8)}


def test_the_order_of_the_keys_is_not_that_of_the_rows() -> None:
    """Of two neighbours, either may be the first; and so may rows of either half."""
    keys = drawn(2 * ROWS)

    rises = sum(one < other for one, other in pairwise(keys))
    middle = sorted(keys)[ROWS]
    early = sum(key < middle for key in keys[:ROWS])
    assert 0.48 < rises / len(keys) < 0.52
    assert 0.48 < early / ROWS < 0.52
