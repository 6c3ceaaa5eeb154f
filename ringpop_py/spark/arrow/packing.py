"""Pack the rows of a task before they are sent; the driver checks beforehand that they can be.

Tasks import this module, so parts of pyspark are imported only in functions for the driver.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.arrow.columns import instant_problem, packed_puts
from ringpop_py.spark.arrow.combined import check_operation, combined, combined_fields
from ringpop_py.spark.arrow.stored import stored_type
from ringpop_py.spark.keys import column_named, key_texts, key_type
from ringpop_py.state.table.aggregations import BUILT_IN, FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from ringpop_py.spark.arrow.columns import Changes
    from ringpop_py.spark.options import WriteOptions

COUNTED: Final = "ringpop.counted"
"""Marks a column in Spark's metadata: its numbers are counts of rows, see `combining`."""


def keyed(options: WriteOptions, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return the rows of *batch* with a key, as text, and the number of others. Raises BadKey."""
    keys = batch.column(options.key)
    null_count = keys.null_count
    if null_count:
        batch = batch.filter(keys.is_valid())
        keys = batch.column(options.key)
    texts = key_texts(keys)
    if texts is not keys:
        batch = batch.set_column(batch.schema.get_field_index(options.key), options.key, texts)
    return batch, null_count


def packed(options: WriteOptions, rows: pa.Table) -> Changes:
    """Return the changes that *rows* make to their keys. Raises as `combined` does.

    Args:
        options: the result of `fitted`.
    """
    if options.operation == FIELDS:
        return combined_fields(rows, options.key, options.fields)
    if options.operation == "put":
        in_s = options.expires_in
        expires = options.expires_at if in_s is None else time.time() + in_s
        return packed_puts(rows, options.key, options.value, expires)
    return combined(rows, options.key, options.operation, options.value)


def fitted(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return *options* with the names of columns as *schema* has them, whatever their case.

    The column of arguments is filled in if only one column can be meant.

    Raises:
        ConfigError: such rows cannot be packed; the message names the column.
    """
    from ringpop_py.spark.schemas import arrow_schema  # noqa: PLC0415 - on the driver

    key_type(schema, options.key)
    options = _added(_named(options, schema.names), counted_in(schema))
    arrow = arrow_schema(schema)
    # As tasks see it: `keyed` makes text of keys, which the value may be as well.
    arrow = arrow.set(arrow.get_field_index(options.key), pa.field(options.key, pa.string()))
    check_columns(arrow, options.key, options.value)
    if (at := options.expires_at) is not None:
        if at in (options.key, options.value):
            raise ConfigError(f"option expiresAtField: {at!r} is the key, or the value")
        if problem := instant_problem(arrow.field(at).type):
            raise ConfigError(f"option expiresAtField: column {at!r} {problem}")
    if options.operation == FIELDS:
        _check_fields(options.fields, arrow, options.key)
        return options
    value = _argument(options, arrow)
    if value is not None:
        _check(options.operation, arrow, value)
    return replace(options, value=value)


def _named(options: WriteOptions, names: Sequence[str]) -> WriteOptions:
    value = None if options.value is None else column_named(options.value, names, "option value: ")
    at = options.expires_at
    at = None if at is None else column_named(at, names, "option expiresAtField: ")
    columns = {name.lower(): name for name in names}
    # An unknown column has an error of its own.
    fields = {columns.get(name.lower(), name): how for name, how in options.fields.items()}
    if len(fields) < len(options.fields):
        raise ConfigError(f"operation names a column twice: {', '.join(options.fields)}")
    key = column_named(options.key, names, "option key: ")
    return replace(options, key=key, value=value, fields=fields, expires_at=at)


def counted_in(schema: StructType) -> list[str]:
    """Return the columns whose numbers are counts already, so that to count is to add them."""
    return [field.name for field in schema.fields if COUNTED in (field.metadata or {})]


def _added(options: WriteOptions, counts: Sequence[str]) -> WriteOptions:
    if options.operation == "count" and counts:
        return replace(options, operation="add", value=counts[0])
    fields = {
        name: "add" if how == "count" and name in counts else how
        for name, how in options.fields.items()
    }
    return replace(options, fields=fields)


def check_columns(schema: pa.Schema, key: str, value: str | None = None) -> None:
    """Raise ConfigError if rows of *schema* cannot be kept; `key_type` checks the key itself."""
    names = schema.names
    if value is not None and value not in names:
        raise ConfigError(f"there is no column {value!r}; there are {', '.join(map(repr, names))}")
    for field in schema:
        if names.count(field.name) > 1:
            raise ConfigError(f"there are two columns {field.name!r}")
        if field.name != key and value in (None, field.name):
            stored_type(field.type, field.name)


def _argument(options: WriteOptions, arrow: pa.Schema) -> str | None:
    # None: a map of all columns, or no column.
    if options.value is not None or options.operation in ("put", "count", "delete"):
        return options.value
    others: list[str] = [name for name in arrow.names if name != options.key]
    if len(others) == 1:
        return others[0]
    if options.operation in BUILT_IN and options.operation != "put_if_absent":
        raise ConfigError(
            f"operation {options.operation} takes one column, and there are"
            f" {', '.join(map(repr, others)) or 'none'}: set option('value', COLUMN), or give an"
            " aggregation for each column: option('operation', 'COLUMN=AGGREGATION,…')"
        )
    return None


def _check_fields(fields: Mapping[str, str], arrow: pa.Schema, key: str) -> None:
    columns = [name for name in arrow.names if name != key]
    unsaid = [name for name in columns if name not in fields]
    if unsaid:
        raise ConfigError(
            f"operation does not name the columns {', '.join(map(repr, unsaid))}: name them, or"
            " leave them out of the DataFrame"
        )
    for name, operation in fields.items():
        if name == key:
            raise ConfigError(f"{name!r} is the key, so it is not a column of its value")
        if name in columns:
            _check(operation, arrow, name)
        elif operation != "count":  # which then counts rows
            there = ", ".join(map(repr, columns)) or "none but the key"
            raise ConfigError(f"operation names column {name!r}; there are {there}")


def _check(operation: str, arrow: pa.Schema, column: str) -> None:
    if operation in BUILT_IN:
        check_operation(operation, arrow.field(column).type, column)
