"""The order of rows by key columns, and where cuts fall in it.

Null is the last in each column, and NaN stands between the numbers and null. Texts are in the order
of their code points, bytes in that of their values, False before True.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.errors import ShuffleRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS_MAX: Final = 16
"""A shuffle has at most so many key columns."""
RANDOM: Final = "__order"
"""The key column of a random order: numbers that are drawn for the rows, and not kept."""


class Order:
    """The order of rows with *schema* by the columns *by*.

    Raises:
        ShuffleRefused: if a column is not there, or its type has no order.
    """

    def __init__(self, schema: pa.Schema, by: Sequence[str]) -> None:
        if not 0 < len(by) <= KEYS_MAX or len(set(by)) < len(by):
            raise ShuffleRefused(f"by names 1 to {KEYS_MAX} different columns, not {list(by)}")
        for name in by:
            if schema.names.count(name) != 1:
                there = ", ".join(schema.names)
                raise ShuffleRefused(f"there is no column {name!r} to sort by, among: {there}")
            if not _has_order(schema.field(name).type):
                raise ShuffleRefused(
                    f"column {name!r} is of type {schema.field(name).type}, which has no order: "
                    "sort by numbers, texts, bytes, booleans, decimals, dates and times"
                )
        self.schema = schema
        self.by = tuple(by)
        self.key_schema = pa.schema([schema.field(name) for name in by])

    def sorted(self, table: pa.Table) -> pa.Table:
        """Return the rows of *table* in order; that of equal keys follows from *table* alone."""
        table = table.combine_chunks()
        if table.num_rows < 2:  # noqa: PLR2004 - one row is in order
            return table
        return table.take(self._places(table))

    def _places(self, table: pa.Table) -> pa.Array:
        if len(self.by) == 1:
            numbers = _numbers(_array(table.column(self.by[0])))
            if numbers is not None and not table.column(self.by[0]).null_count:
                return pa.array(np.argsort(numbers))  # faster than Arrow's, by far
        keys = [(name, "ascending") for name in self.by]
        return pc.sort_indices(table.select(self.by), sort_keys=keys)  # null is the last

    def ranges(self, table: pa.Table, keys: pa.Table) -> list[tuple[int, int]]:
        """Return where each row of *keys* stands in *table*, which is in order.

        Returns:
            The first row that is not below the key, and the first one above it.
        """
        columns = [_array(table.column(name)) for name in self.by]
        wanted = [_array(keys.column(name)) for name in self.by]
        if len(self.by) == 1 and not columns[0].null_count and not wanted[0].null_count:
            numbers, values = _numbers(columns[0]), _numbers(wanted[0])
            if numbers is not None and values is not None:
                firsts = np.searchsorted(numbers, values, "left").tolist()
                ends = np.searchsorted(numbers, values, "right").tolist()
                return list(zip(firsts, ends, strict=True))
        searches = [_Search(column) for column in columns]
        return [
            _narrowed(searches, [column[row] for column in wanted], table.num_rows)
            for row in range(keys.num_rows)
        ]


def _narrowed(searches: Sequence[_Search], key: Sequence[Any], rows: int) -> tuple[int, int]:
    first, end = 0, rows
    for search, scalar in zip(searches, key, strict=True):
        first, end = search.range(scalar, first, end)
    return first, end


class _Search:
    """Finds values in a part of a column that is in order."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        self._numbers = _numbers(column) if not column.null_count else None

    def __getitem__(self, place: int) -> Any:  # noqa: ANN401 - of any type
        value = self._column[place].as_py()
        return _NAN if value != value else value  # noqa: PLR0124 - NaN

    def __len__(self) -> int:
        return len(self._column)

    def range(self, scalar: pa.Scalar, first: int, end: int) -> tuple[int, int]:
        """Return where the value is among the rows from *first* to *end*."""
        valid = end
        if self._column.null_count:
            valid -= self._column.slice(first, end - first).null_count
        if not scalar.is_valid:
            return valid, end
        if self._numbers is not None:
            values = _numbers(pa.array([scalar]))
            assert values is not None
            part, value = self._numbers[first:valid], values[0]
            return (
                first + int(np.searchsorted(part, value, "left")),
                first + int(np.searchsorted(part, value, "right")),
            )
        value = scalar.as_py()
        value = _NAN if value != value else value  # noqa: PLR0124 - NaN
        return bisect_left(self, value, first, valid), bisect_right(self, value, first, valid)


class _Nan:
    """Above all numbers, and equal to itself."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return 0


_NAN: Final = _Nan()


def comparable(value: object) -> tuple[int, Any]:
    """Return what compares as *value*, of a key column, does in this order."""
    if value is None:
        return 2, 0
    return (1, 0) if value != value else (0, value)  # noqa: PLR0124 - NaN


def _has_order(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_one(kind)
        for is_one in (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
            types.is_decimal,
            types.is_temporal,
        )
    ) and not types.is_interval(kind)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(column: pa.Array) -> np.ndarray[Any, Any] | None:
    """Return *column*, in which nothing is null, as numbers of the same order, if there are."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
        return numbers
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        width = pa.int64() if kind.bit_width == 64 else pa.int32()  # noqa: PLR2004 - bits
        return column.view(width).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    return None
