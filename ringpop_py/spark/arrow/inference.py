"""A schema for values without a given one: the common columns of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringpop_py.columns.packed import unpack_column
from ringpop_py.errors import ConfigError
from ringpop_py.spark.arrow.columns import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS_MAX: Final = 1_000
_SCALARS: Final = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


def infer_schema(values: pa.Array, *, key: str, value: str | None = None) -> pa.Schema:
    """Return the columns of packed *values* (NULL: absent): *key*, and types that hold them all.

    Whole numbers become 64-bit integers, or doubles if some have fractions. Maps within a value
    become structs. A column that is None in the whole sample becomes text. Dates and other types
    that are kept as numbers stay numbers, because only a given schema can tell them apart.

    Args:
        value: the column for the value as a whole; None: values are maps of columns.

    Raises:
        ConfigError: if no columns hold all of the values, or they are not maps.
        BodyError: if one of them is not a value.
    """
    unpacked = unpack_column(values.drop_null().cast(pa.large_binary()))
    if value is not None:
        kind = _common(unpacked, value)
        return pa.schema([(key, pa.string()), (value, _or_text(kind))])
    for row in unpacked:
        if not isinstance(row, dict | None):
            message = (
                f"values are no maps of columns ({shown(row)} is one): say by option value which"
                " column they should become"
            )
            raise ConfigError(message)
    fields = _fields([row for row in unpacked if row], "")
    columns = [(name, _or_text(kind)) for name, kind in fields.items() if name != key]
    if len(columns) > COLUMNS_MAX:
        message = f"values have {len(columns)} different columns; give a schema with fewer"
        raise ConfigError(message)
    return pa.schema([(key, pa.string()), *columns])


def _fields(rows: Iterable[dict[str, Any]], path: str) -> dict[str, pa.DataType]:
    """Return the types of all fields of *rows*, in the order in which they first occur."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        for name, item in row.items():
            found.setdefault(name, []).append(item)
    return {name: _common(items, f"{path}{name}") for name, items in found.items()}


def _common(values: list[Any], column: str) -> pa.DataType:
    """Return a type that holds all *values*; null if all of them are None."""
    kinds = sorted(set(map(type, values)) - {type(None)}, key=lambda kind: kind.__name__)
    if not kinds:
        return pa.null()
    if kinds == [float, int]:
        return pa.float64()
    if len(kinds) > 1:
        names = " and ".join(kind.__name__ for kind in kinds)
        message = f"column {column!r} has values of {names}: give a schema without it"
        raise ConfigError(message)
    if kinds == [dict]:
        fields = _fields([row for row in values if row], f"{column}.")
        return pa.struct([(name, _or_text(kind)) for name, kind in fields.items()])
    if kinds == [list]:
        items = [item for row in values if row for item in row]
        return pa.list_(_or_text(_common(items, f"{column}[]")))
    return _SCALARS[kinds[0]]


def _or_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind
