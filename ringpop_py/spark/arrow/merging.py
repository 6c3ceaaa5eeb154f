"""Rows of a task, combined as they come, so that each key is sent as seldom as memory permits.

What `combined` and `combined_fields` make of a batch can be combined with the next one, for the
operations of `MERGED`. For all other operations, rows are gathered and combined once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.spark.arrow.columns import Changes, codes_after, gathered, key_column
from ringpop_py.spark.arrow.combined import (
    COUNT,
    OF_DECIMALS,
    Given,
    changes_of,
    changes_of_fields,
    combined_again,
    given_of,
    left_of,
    present_of,
)
from ringpop_py.spark.arrow.packing import packed
from ringpop_py.state.table.aggregations import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ringpop_py.spark.arrow.columns import Rows
    from ringpop_py.spark.options import WriteOptions

MERGED: Final = frozenset({"add", COUNT, "max", "min", "put", "delete", *OF_DECIMALS.values()})
KEPT_MAX: Final = 0.5
"""If combining leaves a greater share of the rows, they are sent: more rows would not help."""


def changes_in(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[Changes]:
    """Yield the changes that the rows of *batches* make. Raises as `combined` does.

    Rows are combined whenever `flushRows` of them have come, or as many as are left of those
    before; the rows that are left are yielded when they have `flushBytes` bytes.

    Args:
        options: the result of `fitted`.
    """
    operations = options.fields.values() if options.operation == FIELDS else [options.operation]
    if options.operation == "put" or not MERGED.issuperset(operations):
        for some in gathered(batches, options.flush_rows, options.flush_bytes):
            yield packed(options, pa.Table.from_batches(some))
        return
    merged = Merged(options)
    waiting: list[pa.RecordBatch] = []
    rows_count = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows_count += batch.num_rows
        size_bytes += batch.nbytes
        if size_bytes < options.flush_bytes and rows_count < max(
            options.flush_rows, merged.rows_count
        ):
            continue
        before = merged.rows_count
        merged.add(pa.Table.from_batches(waiting))
        is_alike = merged.rows_count - before <= KEPT_MAX * rows_count
        waiting, rows_count, size_bytes = [], 0, 0
        if not is_alike or merged.size_bytes >= options.flush_bytes:
            yield merged.take()
    if waiting:
        merged.add(pa.Table.from_batches(waiting))
    if merged.rows_count:
        yield merged.take()


class Merged:
    """Combined rows, by key.

    Attributes:
        rows_count: the number of keys that have rows.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._key = options.key
        self._is_of_fields = options.operation == FIELDS
        self._operations: Mapping[str, str] = (
            options.fields if self._is_of_fields else {"": options.operation}
        )
        self._value = options.value
        self._begin()

    def _begin(self) -> None:
        self._keys = pa.array([], pa.large_string())
        self._parts: dict[str, tuple[str, Given]] = {}
        self.rows_count = 0

    @property
    def size_bytes(self) -> int:
        """The size of the rows in memory."""
        columns = [int(given.column.nbytes) for _, given in self._parts.values()]
        return int(self._keys.nbytes) + sum(columns)

    def add(self, rows: Rows) -> None:
        """Combine *rows* with those before. Raises as `combined` does."""
        codes, self._keys = codes_after(self._keys, key_column(rows, self._key))
        for name, operation in self._operations.items():
            column = self._column(name, operation, rows)
            new = given_of(rows, column, codes, self._keys, self._key)
            if name not in self._parts:
                self._parts[name] = left_of(operation, new)
                continue
            sent, before = self._parts[name]
            if operation in (COUNT, "delete"):
                new = left_of(operation, new)[1]
            else:
                new = present_of(operation, new)
            self._parts[name] = sent, combined_again(sent, _joined(before, new))
        self.rows_count = len(self._keys)

    def _column(self, name: str, operation: str, rows: Rows) -> str | None:
        if not self._is_of_fields:
            return self._value
        return None if operation == COUNT and name not in rows.schema.names else name

    def take(self) -> Changes:
        """Return the changes that all rows make, and begin again."""
        parts, keys = self._parts, self._keys
        self._begin()
        if not self._is_of_fields:
            ((sent, left),) = parts.values()
            return changes_of(sent, left, keys)
        return changes_of_fields(parts, keys)


def _joined(before: Given, new: Given) -> Given:
    one, other = before.column, new.column
    if one.type != other.type:
        one, other = _alike(one, other)
    return new._replace(
        codes=np.concatenate([before.codes, new.codes]),
        column=pa.concat_arrays([one, other]),
    )


def _alike(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return both in one type: sums of small numbers are large ones."""
    kinds = (one.type, other.type)
    if all(map(pa.types.is_integer, kinds)):
        wide = pa.uint64() if pa.uint64() in kinds else pa.int64()
    elif all(map(pa.types.is_floating, kinds)):
        wide = pa.float64()
    else:
        wide = one.type
    return pc.cast(one, wide), pc.cast(other, wide)
