"""The forms in which columns of Arrow are kept in values, and the conversion there and back.

A type that msgpack does not have is kept as one that it has, and a schema turns it back:

| Arrow | kept as |
|---|---|
| bool, integers, text, bytes | themselves |
| float of any width | a double |
| date | a number: days since 1970-01-01 |
| timestamp, time, duration | a number: microseconds (since 1970-01-01 in UTC, or local time) |
| decimal | text, such as ``"12.50"`` |
| list, struct, map (keys: text) | a list, a map, a map |

Values are checked before they are staged: a committed job is applied, so an unreadable value would
stay in the keyspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ringpop_py.base.errors import BadOperation, BodyError, ConfigError
from ringpop_py.base.values.arrow import sound
from ringpop_py.state.rows.fingerprint import fingerprint as fingerprint_of
from ringpop_py.state.rows.packed import entries_of
from ringpop_py.state.table.aggregations import NESTING_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

ARROW_ERRORS: Final = (pa.ArrowException, OverflowError, UnicodeError)
"""The errors of Arrow's conversions from and to values."""


# Types.


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the Arrow type in which values of type *kind* are kept. Raises ConfigError."""
    if _holds_void(kind):
        # Arrow's casts of such lists are too short, and using the result crashes the process.
        raise ConfigError(
            f"column {column!r} is of type {kind}, whose items have no type; cast it first"
        )
    return _mapped(kind, _stored_leaf, column)


def built_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return `stored_type` with decimals as they are: the type to build nested values in.

    Arrow would cast the texts of decimals itself, but also the empty texts of NULL structs.
    """
    return _mapped(kind, lambda k: k if pa.types.is_decimal(k) else _stored_leaf(k), column)


def python_types(kind: pa.DataType) -> set[type]:
    """Return the Python types, besides None, of a value that is read as a *kind*."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return {dict}
    return next((found for holds, (_, found) in _KEPT.items() if holds(kind)), {list})


def _holds_void(kind: pa.DataType, *, within: bool = False) -> bool:
    """Return whether *kind* has lists or maps of items that can only be NULL, as ``array()``."""
    types = pa.types
    if types.is_null(kind):
        return within
    if types.is_struct(kind):
        return any(_holds_void(field.type, within=within) for field in kind)
    if types.is_map(kind):
        return _holds_void(kind.item_type, within=True)
    return _is_list(kind) and _holds_void(kind.value_type, within=True)


def _mapped(
    kind: pa.DataType,
    leaf: Callable[[pa.DataType], pa.DataType | None],
    column: str,
    depth: int = NESTING_MAX,
) -> pa.DataType:
    """Return *kind* with *leaf* applied to each type within that is not nested."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    found = None  # a struct with a name twice, or a map with keys that are not text
    if not depth:
        raise ConfigError(f"column {column!r} is nested deeper than {NESTING_MAX}")
    if _is_list(kind):
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


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


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
"""The types in which types that are not nested are kept, in Arrow (None: unchanged) and Python.

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


# Columns.


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
    try:
        sound(column)  # Spark makes text of any bytes
    except BodyError as error:
        raise BadOperation(
            f"column {name!r} has text that is not UTF-8 ({error}); keep the bytes, with"
            " CAST(… AS BINARY), or decode them, such as with decode(…, 'ISO-8859-1') of that"
        ) from None
    _check_maps(column, name)
    return column


def restored_column(column: pa.Array, field: pa.Field) -> pa.Array:
    """Convert *column* from the form that is kept to the type of *field*. Raises `ARROW_ERRORS`."""
    if column.type == field.type:
        return column
    return column.cast(_mapped(field.type, _in_units, field.name)).cast(field.type)


def _check_maps(column: pa.Array, name: str) -> None:
    # Spark refuses a key that is twice in a map when it makes the map, but not when it reads one.
    kind = column.type
    if pa.types.is_map(kind):
        counts, keys, values = entries_of(column)
        owners = np.repeat(np.arange(len(counts)), counts)
        encoded = keys.dictionary_encode()
        texts = encoded.dictionary
        pairs = np.sort(owners * len(texts) + encoded.indices.to_numpy(zero_copy_only=False))
        twice = pairs[1:][np.diff(pairs) == 0]
        if len(twice):
            key = texts[int(twice[0]) % len(texts)].as_py()
            raise BadOperation(
                f"column {name!r} has a map with key {key!r:.60} twice; rebuild it, with"
                " map_from_entries(map_entries(…)) where spark.sql.mapKeyDedupPolicy is LAST_WIN"
            )
        _check_maps(values, name)
    elif pa.types.is_large_list(kind):
        _check_maps(column.flatten(), name)
    elif pa.types.is_struct(kind):
        for field in column.flatten():
            _check_maps(field, name)


def fingerprint(rows: pa.RecordBatch) -> int:
    """Return a number that depends on all *rows*, but not on their order.

    Raises: as `stored_column`.
    """
    names = rows.schema.names
    columns = [stored_column(rows.column(name), name) for name in names]
    return fingerprint_of(pa.RecordBatch.from_arrays(columns, names))
