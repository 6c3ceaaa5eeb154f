"""The order of rows by key columns, and where cuts fall in it.

Null is the last in each column, and NaN stands between the numbers and null. Texts are in the order
of their code points, bytes in that of their values, False before True.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.errors import ShuffleRefused
from ringpop_py.base.values.arrow import is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS_MAX: Final = 16
"""The most key columns of a shuffle."""
RANDOM: Final = "__order"
"""The key column of a random order: numbers that are drawn for the rows, and not kept."""
RESERVED: Final = frozenset((RANDOM, "__weight", "__share"))
"""Names of columns that are added to those of users."""


class Order:
    """The order of rows with *schema* by the columns *by*.

    Raises:
        ShuffleRefused: if a column is not there, or its type has no order.
    """

    def __init__(self, schema: pa.Schema, by: Sequence[str]) -> None:
        if not 0 < len(by) <= KEYS_MAX or len(set(by)) < len(by):
            raise ShuffleRefused(f"by names 1 to {KEYS_MAX} different columns, not {list(by)}")
        for name in RESERVED.intersection(schema.names) - {RANDOM}:
            raise ShuffleRefused(f"a column cannot be called {name!r}")
        counts = Counter(schema.names)
        for field in schema:
            if counts[field.name] > 1:
                raise ShuffleRefused(f"there are two columns called {field.name!r}: rename one")
            if not is_plain(field.type):
                raise ShuffleRefused(
                    f"column {field.name!r} is of type {field.type}, which cannot be kept: cast it "
                    "to its plain values"
                )
        for name in by:
            if name not in schema.names:
                there = ", ".join(schema.names)
                raise ShuffleRefused(f"there is no column {name!r} to sort by, among: {there}")
            if not _has_order(schema.field(name).type):
                raise ShuffleRefused(
                    f"column {name!r} is of type {schema.field(name).type}, which has no order: "
                    "sort by numbers, texts, bytes, booleans, decimals, dates and times"
                )
        self.schema = schema
        self.by = tuple(by)
        # Nullable, because cuts of columns without null are cast to this schema, too.
        self.key_schema = pa.schema([pa.field(name, schema.field(name).type) for name in by])

    def sorted(self, table: pa.Table) -> pa.Table:
        """Return the rows of *table* in order; that of equal keys follows from *table* alone."""
        table = table.combine_chunks()
        if table.num_rows < 2:  # noqa: PLR2004 - one row is in order
            return table
        return table.take(self._places(table))

    def _places(self, table: pa.Table) -> pa.Array:
        if len(self.by) == 1:
            column = _array(table.column(self.by[0]))
            numbers = _numbers(column) if not column.null_count else None
            if numbers is not None:
                return pa.array(np.argsort(numbers))  # faster than Arrow's, by far
        keys = [(name, "ascending") for name in self.by]
        return pc.sort_indices(table.select(self.by), sort_keys=keys)  # null is the last

    def ranges(self, table: pa.Table, keys: pa.Table) -> list[tuple[int, int]]:
        """Return where each row of *keys* stands in *table*, which is in order.

        Returns:
            The first row that is not below the key, and the first one above it.
        """
        columns = [_Column(table.column(name)) for name in self.by]
        wanted = [_Column(keys.column(name)) for name in self.by]
        numbers, values = columns[0].without_null, wanted[0].without_null
        if len(self.by) == 1 and numbers is not None and values is not None:
            firsts = np.searchsorted(numbers, values, "left").tolist()
            ends = np.searchsorted(numbers, values, "right").tolist()
            return list(zip(firsts, ends, strict=True))
        found = []
        for row in range(keys.num_rows):
            first, end = 0, table.num_rows
            for column, key in zip(columns, wanted, strict=True):
                first, end = column.range(key.value(row), first, end)
            found.append((first, end))
        return found

    def keys_of(self, table: pa.Table) -> list[tuple[tuple[int, Any], ...]]:
        """Return the keys of the rows of *table* as values that compare as the rows do."""
        columns = [_Column(table.column(name)) for name in self.by]
        return [
            tuple(comparable(column.value(row)) for column in columns)
            for row in range(table.num_rows)
        ]


class _Column:
    """A key column, as numbers if its values are in the order of some.

    Attributes:
        numbers: None if there are no such numbers. Where the column is null they mean nothing.
        without_null: the numbers, if nothing is null.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = _array(column)
        kind = self._column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            # As bytes: UTF-8 is in the order of code points, and need not be decoded.
            self._column = self._column.cast(
                pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
            )
        self._nulls = self._column.null_count
        self.numbers = _numbers(self._column)
        self.without_null = self.numbers if not self._nulls else None

    def value(self, row: int) -> Any:  # noqa: ANN401 - of any type
        """Return the value at *row* as a number, bytes or a decimal; None if it is null."""
        if self.numbers is None:
            return self._column[row].as_py()
        return self.numbers[row] if not self._nulls or self._column[row].is_valid else None

    def __getitem__(self, place: int) -> Any:  # noqa: ANN401 - of any type
        return self._column[place].as_py()

    def __len__(self) -> int:
        return len(self._column)

    def range(self, value: Any, first: int, end: int) -> tuple[int, int]:  # noqa: ANN401 - as above
        """Return where *value* is among the rows from *first* to *end*, which are in order."""
        valid = end
        if self._nulls:
            valid -= self._column.slice(first, end - first).null_count
        if value is None:
            return valid, end
        if self.numbers is not None:
            part = self.numbers[first:valid]
            return (
                first + int(np.searchsorted(part, value, "left")),
                first + int(np.searchsorted(part, value, "right")),
            )
        return bisect_left(self, value, first, valid), bisect_right(self, value, first, valid)


def comparable(value: object) -> tuple[int, Any]:
    """Return a value that compares as *value*, of a key column, does in this order."""
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
    """Return *column* as numbers of the same order, if there are; of null, any number."""
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())  # noqa: PLR2004
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    if column.null_count:
        column = column.fill_null(pa.scalar(0).cast(column.type))
    numbers: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
    return numbers
