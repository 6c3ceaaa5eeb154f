"""Rows of Arrow as keys with packed values, and back, without a step of Python for each row.

(Reading takes such steps if values are not alike, see `ringpop_py.state.rows.uniform_columns`.)
Usage:

- a write: `packed_puts` (operation ``put``), or `combined` for other operations; both return
  `Changes`, which `chunks_of` cuts by partition for `ringpop_py.state.rows.stagefile`;
- a read: `unpack_rows` into a schema, given or inferred (`ringpop_py.spark.source.scan`).

A value is a map of columns, or one column by itself (*value*); for the types of columns see
`stored`. Keys and values are checked against the rules of keyspaces here, because a committed job
is applied.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.errors import BadKey, BadOperation, BodyError, SchemaMismatch
from ringpop_py.base.values.operations import KEY_BYTES_MAX
from ringpop_py.base.values.requests import value_of
from ringpop_py.spark.arrow.stored import (
    ARROW_ERRORS,
    built_type,
    python_types,
    restored_column,
    stored_column,
    stored_type,
)
from ringpop_py.spark.keys import key_texts
from ringpop_py.state.rows import hashes, uniform_columns
from ringpop_py.state.rows.packed import (
    offsets_of,
    pack_column,
    places_of_valid,
    stamp_column,
    unpack_column,
)
from ringpop_py.state.rows.stagefile import CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, Chunk
from ringpop_py.state.table.due import EXPIRES_S_MAX
from ringpop_py.state.table.evaluator import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ringpop_py.state.placement.keys import Placing

SHOWN_CHARACTERS: Final = 60
"""The most characters of a key or a value that a message shows."""

Rows = Any
"""A `pa.RecordBatch` or a `pa.Table`."""


class Changes(NamedTuple):
    """One change for each row, all by one operation: the content of a stage file."""

    operation: str
    keys: pa.Array  # large_string; a key may occur several times, in the order of its changes
    values: pa.Array  # large_binary: packed new values (``put``), or packed arguments


# Writing.


def key_column(rows: Rows, key: str) -> pa.Array:
    """Return the keys of *rows* as `large_string`. Raises BadKey, also if one is missing."""
    column = rows.column(key)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    keys = key_texts(column).cast(pa.large_string())
    if keys.null_count:
        raise BadKey(f"a row without a key: column {key!r} is NULL")
    sizes = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    if len(sizes) and not 0 < sizes.min() <= sizes.max() <= KEY_BYTES_MAX:
        at = int(np.flatnonzero((sizes == 0) | (sizes > KEY_BYTES_MAX))[0])
        raise BadKey(
            f"a key has 1 to {KEY_BYTES_MAX} bytes, not {sizes[at]}: {shown(keys[at].as_py())}"
        )
    return keys


def argument_of(rows: Rows, key: str, value: str | None) -> pa.Array:
    """Return column *value* in the form that is kept; by default a map of all columns but *key*."""
    if value is not None:
        return stored_column(rows.column(value), value)
    names = [name for name in rows.schema.names if name != key]
    if not names:
        return pa.array([{}] * rows.num_rows, pa.struct([]))
    stored = [stored_column(rows.column(name), name) for name in names]
    return pa.StructArray.from_arrays(stored, names=names)


def packed_puts(
    rows: Rows, key: str, value: str | None = None, expires: str | float | None = None
) -> Changes:
    """Return new values for the keys of *rows*, see `combined`; the last row of a key counts.

    Args:
        expires: when all of the keys expire, in seconds since 1970; or the column that says it.

    Raises:
        BadOperation: also if an instant is too late to be one in seconds.
    """
    keys = key_column(rows, key)
    last = last_of_each(codes_of(keys)[0])
    if len(last) < len(keys):
        chosen = pa.array(last)
        rows, keys = rows.take(chosen), keys.take(chosen)
    kept = rows.select([name for name in rows.schema.names if name != expires])
    changes = checked(Changes("put", keys, pack_column(argument_of(kept, key, value))))
    if expires is None:
        return changes
    if isinstance(expires, str):
        at_ms = _instants_ms(
            stored_column(rows.column(expires), expires), rows.schema.field(expires)
        )
    else:
        at_ms = pa.array(np.full(len(keys), math.ceil(expires * 1_000), np.int64))
    return changes._replace(values=stamp_column(changes.values, at_ms))


def instant_problem(kind: pa.DataType) -> str:
    """Return why a column of type *kind* says no instants; empty if it does."""
    if pa.types.is_integer(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None):
        return ""
    return f"is a timestamp with a zone, or whole seconds since 1970, not {kind}"


def _instants_ms(stored: pa.Array, field: pa.Field) -> pa.Array:
    # Timestamps are stored as microseconds. What is before 1970 is past, as 1970 is.
    numbers = stored.cast(pa.int64())
    is_time = pa.types.is_timestamp(field.type)
    latest = pc.max(numbers).as_py() or 0
    if latest > 2 * EXPIRES_S_MAX * (1_000_000 if is_time else 1):
        what = "microseconds" if is_time else "seconds"
        raise BadOperation(f"column {field.name!r}: {latest} is too large for {what} since 1970")
    numbers = pc.max_element_wise(numbers, 1, skip_nulls=False)
    return pc.divide(pc.add(numbers, 999), 1_000) if is_time else pc.multiply(numbers, 1_000)


def checked(changes: Changes) -> Changes:
    """Return *changes* if none of its values is too large. Raises BadOperation."""
    sizes = pc.binary_length(changes.values).to_numpy(zero_copy_only=False)
    if len(sizes) and sizes.max() > VALUE_BYTES_MAX:
        at = int(sizes.argmax())
        raise BadOperation(
            f"the value of key {shown(changes.keys[at].as_py())} has {sizes[at]} bytes when packed,"
            f" of at most {VALUE_BYTES_MAX}"
        )
    return changes


def codes_of(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return for each row the index of its text among the distinct texts, and these."""
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def codes_after(
    known: pa.LargeStringArray, column: pa.LargeStringArray
) -> tuple[NDArray[np.int64], pa.LargeStringArray]:
    """Return `codes_of` *column* where texts that are *known* keep their places, and come first."""
    none = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), known)
    encoded = pa.chunked_array([none, column.dictionary_encode()])
    # Arrow itself merges both dictionaries: encoding all texts again would take half as long again.
    chunk = encoded.unify_dictionaries().chunk(1)
    return chunk.indices.to_numpy(zero_copy_only=False).astype(np.int64), chunk.dictionary


def last_of_each(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the last place in *codes* of each number in it, in the order of these places."""
    places = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    places[codes] = np.arange(len(codes))  # NumPy keeps the last of several assignments
    places = places[places >= 0]
    places.sort()
    return places


def gathered(
    batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
) -> Iterator[list[pa.RecordBatch]]:
    """Yield *batches* in lists, each as soon as it has *rows_max* rows or *bytes_max* bytes."""
    found: list[pa.RecordBatch] = []
    rows_count = size_bytes = 0
    for batch in batches:
        found.append(batch)
        rows_count += batch.num_rows
        size_bytes += batch.nbytes
        if rows_count >= rows_max or size_bytes >= bytes_max:
            yield found
            found, rows_count, size_bytes = [], 0, 0
    if rows_count:
        yield found


def placed(values: pa.Array, at: NDArray[np.int64], count: int) -> pa.Array:
    """Return *count* rows, with *values* *at* these places, and NULL elsewhere."""
    sources = np.full(count, -1)
    sources[at] = np.arange(len(at))
    return values.take(pa.array(sources, mask=sources < 0))


# By partition.


def partitions_of(keys: pa.Array, placing: Placing) -> NDArray[np.int64]:
    """Return the partition of each of *keys*, as *placing* does for one."""
    texts = keys.cast(pa.large_binary())
    data = texts.buffers()[2]
    return hashes.partitions_of(offsets_of(texts), data or b"", placing)


def chunks_of(changes: Changes, placing: Placing) -> list[Chunk]:
    """Cut *changes* into chunks by partition; changes of one partition stay in their order."""
    numbers = partitions_of(changes.keys, placing)
    order = np.argsort(numbers.astype(np.uint16), kind="stable")  # 16 bits: NumPy uses radix sort
    sorted_by = pa.array(order)
    keys, values = changes.keys.take(sorted_by), changes.values.take(sorted_by)
    numbers = numbers[order]
    sizes = np.zeros(len(keys) + 1, np.int64)
    lengths = pc.add(pc.binary_length(keys), pc.binary_length(values))
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=sizes[1:])
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(keys)]
    return [
        Chunk(int(numbers[start]), keys[start:end], values[start:end])
        for first, last in pairwise(edges)
        for start, end in _cuts(sizes, first, last)
    ]


def _cuts(sizes: NDArray[np.int64], first: int, last: int) -> Iterator[tuple[int, int]]:
    while first < last:
        full = int(np.searchsorted(sizes, sizes[first] + CHUNK_BYTES_MAX, side="right")) - 1
        end = max(first + 1, min(last, first + CHUNK_ROWS_MAX, full))  # a huge row goes alone
        yield first, end
        first = end


# Reading.


def unpack_rows(
    keys: pa.Array,
    values: pa.Array,
    schema: pa.Schema,
    *,
    key: str | None,
    value: str | None = None,
) -> pa.RecordBatch:
    """Return *keys* and their packed *values* as rows of *schema*.

    A column is NULL if the value is, or if it is a map without that entry. Entries of maps that
    *schema* does not name are ignored.

    Args:
        key: the column of keys, which *schema* may leave out; None to leave keys out.
        value: the column for the value as a whole; None if each column is an entry of a map.

    Raises:
        SchemaMismatch: if a value does not fit; the message names its key and the column.
        StateDamaged: if something is not a value; the message names its key.
    """
    present = places_of_valid(values)
    packed = values.drop_null().cast(pa.large_binary())
    fields = [field for field in schema if field.name != key]
    columns = _alike(packed, fields, value)
    if columns is None:
        chosen = keys.take(pa.array(present))
        unpacked = _unpacked(chosen, packed)
        try:
            columns = _columns_of(unpacked, fields, value)
        except _Unfit:
            raise _mismatch(chosen, unpacked, fields, value) from None
    if len(present) < len(values):
        columns = {name: placed(column, present, len(values)) for name, column in columns.items()}
    if key is not None and key in schema.names:
        columns[key] = keys_as(schema.field(key), keys)
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _unpacked(keys: pa.Array, packed: pa.LargeBinaryArray) -> list[Any]:
    try:
        return unpack_column(packed)
    except BodyError:
        for key, value in zip(keys.to_pylist(), packed.to_pylist(), strict=True):
            value_of(key, value)  # raises StateDamaged for the first broken value
        raise


def keys_as(field: pa.Field, keys: pa.Array) -> pa.Array:
    """Return *keys* in the type of *field*, one of those that keys are written in.

    Raises:
        SchemaMismatch: a key is not what a key of this type is written as.
    """
    try:
        found = keys.cast(field.type)
        if not pa.types.is_integer(field.type):
            return found
        other = pc.not_equal(found.cast(keys.type), keys)  # "007" is not the key of a number
        why = (
            f"{shown(keys.filter(other)[0].as_py())} is another key"
            if pc.any(other).as_py()
            else ""
        )
    except pa.ArrowException as error:
        why = str(error)
    if not why:
        return found
    raise SchemaMismatch(
        f"a key does not fit column {field.name!r} of type {field.type}: {why}; give a schema in"
        f" which column {field.name!r} is a string"
    )


class _Unfit(Exception):
    """A value does not fit; the message, which may be empty, says why."""


def _alike(
    packed: pa.LargeBinaryArray, fields: Sequence[pa.Field], value: str | None
) -> dict[str, pa.Array] | None:
    # The quick way, which most values allow.
    if any(pa.types.is_nested(field.type) for field in fields):
        return None
    kinds = {field.name: stored_type(field.type, field.name) for field in fields}
    if value is None:
        found = uniform_columns.columns_of(packed, kinds)
    else:
        column = uniform_columns.column_of(packed, kinds[value]) if value in kinds else None
        found = None if column is None else {value: column}
    if found is None:
        return None
    try:
        return {
            field.name: restored_column(found[field.name].cast(kinds[field.name]), field)
            for field in fields
        }
    except ARROW_ERRORS:
        return None  # the slow way finds the value that does not fit


def _columns_of(
    values: list[Any], fields: Sequence[pa.Field], value: str | None
) -> dict[str, pa.Array]:
    if value is not None:
        return {field.name: _converted(values, field) for field in fields}
    if not set(map(type, values)) <= {dict, type(None)}:
        raise _Unfit
    rows = [row or {} for row in values]
    return {
        field.name: _converted([row.get(field.name) for row in rows], field) for field in fields
    }


def _converted(values: list[Any], field: pa.Field) -> pa.Array:
    if not set(map(type, values)) <= python_types(field.type) | {type(None)}:
        raise _Unfit
    kept = stored_type(field.type, field.name)
    if pa.types.is_nested(field.type):
        values = [_fitted(value, field.type) for value in values]
        kept = built_type(field.type, field.name)
    try:
        return restored_column(pa.array(values, kept), field)
    except ARROW_ERRORS as error:
        raise _Unfit(str(error)) from None


def _fitted(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any value
    """Return *value* as Arrow needs it for a *kind*: checked, and with numbers for decimals."""
    if value is None:
        return None
    if type(value) not in python_types(kind):
        raise _Unfit(f"{shown(value)} in it does not fit {kind}")
    if isinstance(value, list):
        return [_fitted(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return {name: _fitted(item, kind.item_type) for name, item in value.items()}
    if isinstance(value, dict):
        return {field.name: _fitted(value.get(field.name), field.type) for field in kind}
    return _decimal(value) if pa.types.is_decimal(kind) else value


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _Unfit(f"{shown(text)} is not a decimal") from None


def _mismatch(
    keys: pa.Array, values: list[Any], fields: Sequence[pa.Field], value: str | None
) -> SchemaMismatch:
    # Convert value by value, and cell by cell, until one does not fit.
    for at, row in enumerate(values):
        for field in fields:
            try:
                _columns_of([row], [field], value)
            except _Unfit as unfit:
                where = f"the value of key {shown(keys[at].as_py())}"
                if value is None and not isinstance(row, dict):
                    return SchemaMismatch(f"{where} is not a map of columns: {shown(row)}")
                cell = row if value is not None else row.get(field.name)
                why = f" ({unfit})" if unfit.args else ""
                text = f"{where} does not fit column {field.name!r} of type {field.type}"
                return SchemaMismatch(f"{text}: {shown(cell)}{why}")
    return SchemaMismatch("a value does not fit the columns that it is read into")


def shown(value: object) -> str:
    """Return *value* as a message shows it."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
