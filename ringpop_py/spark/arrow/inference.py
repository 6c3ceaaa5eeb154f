"""A schema for values that nobody has described: what a sample of them has in common."""

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
    """The columns of packed *values* (NULL: not there): *key*, and what all of these fit into.

    Whole numbers are of 64 bits, and doubles where some have fractions; maps within a value become
    structs. What is None in all of the sample is text. Dates and others that are kept as numbers
    stay numbers: only a given schema can tell.

    Args:
        value: the column that a value is as a whole; None: values are maps of columns.

    Raises:
        ConfigError: no columns hold all of the values, or they are no maps.
        BodyError: something is no value.
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
    """The types of all fields of *rows*, in the order in which they come up."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        for name, item in row.items():
            found.setdefault(name, []).append(item)
    return {name: _common(items, f"{path}{name}") for name, items in found.items()}


def _common(values: list[Any], column: str) -> pa.DataType:
    """What holds all *values*; null if there is none but None."""
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
