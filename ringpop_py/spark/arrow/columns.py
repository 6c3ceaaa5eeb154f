"""Rows of Arrow as keys with packed values, and back, without a step of Python for each row.

(Reading takes such steps if values are not alike, see `ringpop_py.columns.alike`.) How it is used:

- a write: `check_columns` where the job starts, then `packed_puts` (operation ``put``), or what
  `combined` makes of other operations; both give `Changes`, which `chunks_of` cuts by partition for
  `ringpop_py.jobs.stagefile`;
- a read: `unpack_rows` into a schema, given or inferred (`ringpop_py.spark.source.scan`).

A value is a map of columns, or one column by itself (*value*). A type that msgpack does not have is
kept as one that it has, and a schema turns it back:

| Arrow | kept as |
|---|---|
| bool, integers, text, bytes | themselves |
| float of any width | a double |
| date | a number: days since 1970-01-01 |
| timestamp, time, duration | a number: microseconds (since 1970-01-01 in UTC, or on the wall) |
| decimal | text, such as ``"12.50"`` |
| list, struct, map (keys: text) | a list, a map, a map |

Keys and values are checked against the rules of keyspaces here, because it would be too late
later: a committed job is applied.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.columns import alike
from ringpop_py.columns.packed import offsets_of, pack_column, unpack_column
from ringpop_py.errors import BadKey, BadOperation, BodyError, ConfigError, SchemaMismatch
from ringpop_py.jobs.stagefile import CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, Chunk
from ringpop_py.keyed.aggregations import NESTING_MAX
from ringpop_py.keyed.evaluator import KEY_BYTES_MAX, VALUE_BYTES_MAX
from ringpop_py.placing import hashes
from ringpop_py.spark.arrays import places_of_valid
from ringpop_py.spark.arrow.wellformed import check_maps, check_texts
from ringpop_py.spark.keys import key_texts
from ringpop_py.values.requests import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

SHOWN_CHARACTERS: Final = 60
"""The most characters of a key or a value that a message shows."""

Rows = Any
"""A `pa.RecordBatch` or a `pa.Table`."""


class Changes(NamedTuple):
    """One change for each row, all by one operation: the content of a stage file.

    Attributes:
        keys: `large_string`; a key may occur several times, and the order of its rows counts.
        values: `large_binary`: packed new values (``put``), or packed arguments.
    """

    operation: str
    keys: pa.Array
    values: pa.Array


# Types.


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the Arrow type in which values of type *kind* are kept.

    Raises:
        ConfigError: if no value can hold it.
    """
    if _holds_void(kind):
        # Arrow's casts of such lists are too short, and using the result crashes the process.
        raise ConfigError(
            f"column {column!r} is of type {kind}, whose items have no type; cast it first"
        )
    return _mapped(kind, _stored_leaf, column)


def _holds_void(kind: pa.DataType, *, within: bool = False) -> bool:
    """Return whether *kind* has lists or maps of items that can only be NULL, as ``array()``."""
    types = pa.types
    if types.is_null(kind):
        return within
    if types.is_struct(kind):
        return any(_holds_void(field.type, within=within) for field in kind)
    if types.is_map(kind):
        return _holds_void(kind.item_type, within=True)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and _holds_void(kind.value_type, within=True)


def check_columns(schema: pa.Schema, key: str, value: str | None = None) -> None:
    """Check that rows of *schema* can be written; for the key itself see `key_type`.

    Raises:
        ConfigError: if there is no such *key* or *value*, or a type cannot be kept.
    """
    names = schema.names
    for name in (key, value):
        if name is not None and name not in names:
            raise ConfigError(
                f"there is no column {name!r}; there are {', '.join(map(repr, names))}"
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"there are two columns {twice!r}")
    for field in schema:
        if field.name != key and value in (None, field.name):
            stored_type(field.type, field.name)


def _mapped(
    kind: pa.DataType,
    leaf: Callable[[pa.DataType], pa.DataType | None],
    column: str,
    depth: int = NESTING_MAX,
) -> pa.DataType:
    """*kind*, with *leaf* of each type that has no others in it."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    found = None
    if not depth:
        raise ConfigError(f"column {column!r} is nested deeper than {NESTING_MAX}")
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        found = pa.large_list(_mapped(kind.value_type, leaf, column, depth - 1))
    elif types.is_struct(kind):
        fields = [(field.name, _mapped(field.type, leaf, column, depth - 1)) for field in kind]
        if len(dict(fields)) == len(fields):
            found = pa.struct(fields)
    elif types.is_map(kind):
        if _is_text(kind.key_type):
            item = _mapped(kind.item_type, leaf, column, depth - 1)
            found = pa.map_(pa.large_string(), item)
    else:
        found = leaf(kind)
    if found is None:
        raise ConfigError(
            f"column {column!r} is of type {kind}, which no value can hold; cast it first"
        )
    return found


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    plain = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(plain or types.is_fixed_size_binary(kind) or types.is_binary_view(kind))


_KEPT: Final[dict[Callable[[pa.DataType], bool], tuple[pa.DataType | None, set[type]]]] = {
    pa.types.is_null: (None, set()),
    pa.types.is_boolean: (None, {bool}),
    pa.types.is_integer: (None, {int}),
    pa.types.is_floating: (pa.float64(), {int, float}),
    pa.types.is_decimal: (pa.large_string(), {str}),
    _is_text: (pa.large_string(), {str}),
    _is_bytes: (pa.large_binary(), {bytes}),
    pa.types.is_date: (pa.int32(), {int}),
    pa.types.is_timestamp: (pa.int64(), {int}),
    pa.types.is_time: (pa.int64(), {int}),
    pa.types.is_duration: (pa.int64(), {int}),
}
"""The types in which types without nested ones are kept (None: as themselves), in Arrow and Python.

Arrow would convert values of more Python types.
"""


def _stored_leaf(kind: pa.DataType) -> pa.DataType | None:
    return next((kept or kind for holds, (kept, _) in _KEPT.items() if holds(kind)), None)


def _in_units(kind: pa.DataType) -> pa.DataType:
    """Return *kind* in the unit that is kept, which Arrow converts to a plain number and back."""
    types = pa.types
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_time(kind):
        return pa.time64("us")
    return pa.duration("us") if types.is_duration(kind) else kind


# Writing.


def stored_column(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """Return *column* in the form that is kept.

    Raises:
        ConfigError: if no value can hold that type.
        BadOperation: if an item has no such form (such as a nanosecond), or is not a value: text
            that is not UTF-8, or a map with a key twice.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kept = stored_type(column.type, name)
    if column.type != kept:
        try:
            column = column.cast(_mapped(column.type, _in_units, name)).cast(kept)
        except pa.ArrowException as error:
            raise BadOperation(f"column {name!r} cannot be kept: {error}") from None
    check_texts(column, name)
    check_maps(column, name)
    return column


def key_column(rows: Rows, key: str) -> pa.Array:
    """Return the keys of *rows* as `large_string`; for allowed keys see `ringpop_py.spark.keys`.

    Raises:
        BadKey: if a row has no key, or one that a keyspace refuses.
    """
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
    """Return the column *value* in the form that is kept; without one a map of all but the key."""
    if value is not None:
        return stored_column(rows.column(value), value)
    names = [name for name in rows.schema.names if name != key]
    if not names:
        return pa.array([{}] * rows.num_rows, pa.struct([]))
    stored = [stored_column(rows.column(name), name) for name in names]
    return pa.StructArray.from_arrays(stored, names=names)


def packed_puts(rows: Rows, key: str, value: str | None = None) -> Changes:
    """Return new values for the keys of *rows*; of several rows of one key, the last counts.

    Args:
        value: the column that is the value; None: a map of all columns but the key.

    Raises:
        BadKey: if a key is missing, or a keyspace refuses it.
        BadOperation: if a value is too large, or has no form that can be kept.
    """
    keys = key_column(rows, key)
    last = last_of_each(codes_of(keys)[0])
    if len(last) < len(keys):
        chosen = pa.array(last)
        rows, keys = rows.take(chosen), keys.take(chosen)
    return checked(Changes("put", keys, pack_column(argument_of(rows, key, value))))


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


def last_of_each(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the last place in *codes* of each number from 0 up, in the order of these places."""
    places = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    places[codes] = np.arange(len(codes))  # of equal codes, the last assignment stays
    places.sort()
    return places


def gathered(
    batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
) -> Iterator[list[pa.RecordBatch]]:
    """Yield *batches*, several at a time: as soon as they have so many rows, or bytes."""
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


def partitions_of(keys: pa.Array, partitions_count: int) -> NDArray[np.int64]:
    """Return the partition of each of *keys*: `ringpop_py.placing.keys.partition_of` of many."""
    texts = keys.cast(pa.large_binary())
    data = texts.buffers()[2]
    return hashes.partitions_of(offsets_of(texts), data or b"", partitions_count)


def chunks_of(changes: Changes, partitions_count: int) -> list[Chunk]:
    """Cut *changes* into chunks by partition; changes of one partition stay in their order."""
    numbers = partitions_of(changes.keys, partitions_count)
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
    """Cut the rows from *first* to *last* into as few parts as chunks have room for."""
    while first < last:
        full = int(np.searchsorted(sizes, sizes[first] + CHUNK_BYTES_MAX, side="right")) - 1
        end = max(first + 1, min(last, first + CHUNK_ROWS_MAX, full))
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
    """*keys* with their packed *values*, as rows of *schema*.

    Args:
        values: NULL where there is none; all columns but the key are NULL there. So is a column
            that a map does not have. What a map has besides is passed over.
        key: the column of keys, which *schema* may leave out; None: no column is.
        value: the column that is the value as a whole; None: each is an entry of a map.

    Raises:
        SchemaMismatch: a value does not fit; says of which key, and which column.
        StateDamaged: something is no value; says of which key.
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
        columns[key] = _keys_as(schema.field(key), keys)
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _unpacked(keys: pa.Array, packed: pa.LargeBinaryArray) -> list[Any]:
    try:
        return unpack_column(packed)
    except BodyError:
        for key, value in zip(keys.to_pylist(), packed.to_pylist(), strict=True):
            value_of(key, value)  # raises for the one that it is
        raise


def _keys_as(field: pa.Field, keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"a key does not fit column {field.name!r} of type {field.type}: {error}"
        ) from None


class _Unfit(Exception):
    """Something does not fit; the message says why, if the value does not."""


def _alike(
    packed: pa.LargeBinaryArray, fields: Sequence[pa.Field], value: str | None
) -> dict[str, pa.Array] | None:
    """Return the columns in the quick way, which most values allow; None if they do not."""
    if any(pa.types.is_nested(field.type) for field in fields):
        return None
    kinds = {field.name: stored_type(field.type, field.name) for field in fields}
    if value is None:
        found = alike.columns_of(packed, kinds)
    else:
        column = alike.column_of(packed, kinds[value]) if value in kinds else None
        found = None if column is None else {value: column}
    if found is None:
        return None
    try:
        return {
            field.name: _cast(found[field.name].cast(kinds[field.name]), field) for field in fields
        }
    except (_Unfit, pa.ArrowException):
        return None  # the slow way finds which value it is


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
    """Return *values* as a column, of any type."""
    if not set(map(type, values)) <= _kinds_of(field.type) | {type(None)}:
        raise _Unfit
    kept = stored_type(field.type, field.name)
    if pa.types.is_nested(field.type):
        values = [_fitted(value, field.type) for value in values]
        kept = _mapped(field.type, _leaf_of_nested, field.name)
    try:
        column = pa.array(values, kept)
    except _ARROWS as error:
        raise _Unfit(str(error)) from None
    return _cast(column, field)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """Convert *column* from the form that is kept to its own type."""
    if column.type == field.type:
        return column
    try:
        return column.cast(_mapped(field.type, _in_units, field.name)).cast(field.type)
    except _ARROWS as error:
        raise _Unfit(str(error)) from None


_ARROWS: Final = (pa.ArrowException, OverflowError, UnicodeError)


def _kinds_of(kind: pa.DataType) -> set[type]:
    """Return the Python types of a value that is read as a *kind*, besides None."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return {dict}
    return next((found for holds, (_, found) in _KEPT.items() if holds(kind)), {list})


def _leaf_of_nested(kind: pa.DataType) -> pa.DataType | None:
    return kind if pa.types.is_decimal(kind) else _stored_leaf(kind)


def _fitted(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any value
    """Return *value* as Arrow needs it for a *kind*: checked, and with numbers for decimals.

    Arrow itself would cast the texts of decimals, but also those that it makes up in NULL structs.
    """
    if value is None:
        return None
    if type(value) not in _kinds_of(kind):
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
        raise _Unfit(f"{shown(text)} is no decimal") from None


def _mismatch(
    keys: pa.Array, values: list[Any], fields: Sequence[pa.Field], value: str | None
) -> SchemaMismatch:
    """Return the error for the first value that does not fit."""
    for at, row in enumerate(values):
        for field in fields:
            try:
                _columns_of([row], [field], value)
            except _Unfit as unfit:
                where = f"the value of key {shown(keys[at].as_py())}"
                if value is None and not isinstance(row, dict):
                    return SchemaMismatch(f"{where} is no map of columns: {shown(row)}")
                cell = row if value is not None else row.get(field.name)
                why = f" ({unfit})" if unfit.args else ""
                text = f"{where} does not fit column {field.name!r} of type {field.type}"
                return SchemaMismatch(f"{text}: {shown(cell)}{why}")
    return SchemaMismatch("a value does not fit the columns that it is read into")


def shown(value: object) -> str:
    """Return *value* as a message shows it."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
