"""How a task packs its rows before they are sent, and whether it can: checked on the driver.

Tasks import this module; it imports parts of pyspark only where the driver calls it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ringpop_py.errors import ConfigError
from ringpop_py.keyed.aggregations import BUILT_IN, FIELDS
from ringpop_py.spark.arrow.columns import Changes, check_columns
from ringpop_py.spark.arrow.combined import check_operation, combined, combined_fields
from ringpop_py.spark.keys import key_texts, key_type, refuse_null_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from ringpop_py.spark.options import WriteOptions


def keyed(options: WriteOptions, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return the rows of *batch* that have a key, as text, and the number of those without.

    Raises:
        BadKey: if some have no key, and that is not allowed.
    """
    keys = batch.column(options.key)
    null_count = keys.null_count
    if null_count:
        if options.on_null_key == "fail":
            refuse_null_keys(null_count, options.key)
        batch = batch.filter(keys.is_valid())
        keys = batch.column(options.key)
    texts = key_texts(keys)
    if texts is not keys:
        batch = batch.set_column(batch.schema.get_field_index(options.key), options.key, texts)
    return batch, null_count if options.on_null_key == "count" else 0


def packed(options: WriteOptions, rows: pa.Table) -> Changes:
    """Return the changes that *rows* make to their keys; *options* are of `fitted`.

    Raises:
        BadOperation: if one of them holds something that is not a value, or is too large.
    """
    if options.operation == FIELDS:
        return combined_fields(rows, options.key, options.fields)
    return combined(rows, options.key, options.operation, options.value)


def fitted(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return *options* with the column of *schema* that is the argument, if there is only one.

    Raises:
        ConfigError: if such rows cannot be packed; the message names the column.
    """
    key_type(schema, options.key)
    arrow = _arrow_schema(options, schema)
    if options.operation == FIELDS:
        _check_fields(options.fields, arrow, options.key)
        return options
    value = _argument(options, arrow)
    if value is not None:
        _check(options.operation, arrow, value)
    return replace(options, value=value)


def _arrow_schema(options: WriteOptions, schema: StructType) -> pa.Schema:
    """Return *schema* as tasks see it, with the key as text."""
    from ringpop_py.spark.schemas import arrow_schema  # noqa: PLC0415 - on the driver

    arrow = arrow_schema(schema)
    arrow = arrow.set(arrow.get_field_index(options.key), pa.field(options.key, pa.string()))
    check_columns(arrow, options.key, options.value)
    return arrow


def _argument(options: WriteOptions, arrow: pa.Schema) -> str | None:
    """Return the column that the operation takes; None for a map of all, or for no column."""
    if options.value is not None or options.operation in ("put", "count", "delete"):
        return options.value
    others: list[str] = [name for name in arrow.names if name != options.key]
    if len(others) == 1:
        return others[0]
    if options.operation in BUILT_IN and options.operation != "put_if_absent":
        raise ConfigError(
            f"operation {options.operation} takes one column, and there are"
            f" {', '.join(map(repr, others)) or 'none'}: say option('value', COLUMN), or one"
            " aggregation a column: option('operation', 'COLUMN=AGGREGATION,…')"
        )
    return None


def _check_fields(fields: Mapping[str, str], arrow: pa.Schema, key: str) -> None:
    columns = [name for name in arrow.names if name != key]
    unsaid = [name for name in columns if name not in fields]
    if unsaid:
        raise ConfigError(
            f"operation says nothing of the columns {', '.join(map(repr, unsaid))}: name them, or"
            " leave them out of the DataFrame"
        )
    for name, operation in fields.items():
        if name == key:
            message = f"{name!r} is the key, so it is no column of its value"
        elif name in columns:
            _check(operation, arrow, name)
            continue
        elif operation == "count":
            continue
        else:
            there = ", ".join(map(repr, columns)) or "none but the key"
            message = f"operation names column {name!r}; there are {there}"
        raise ConfigError(message)


def _check(operation: str, arrow: pa.Schema, column: str) -> None:
    if operation in BUILT_IN:
        check_operation(operation, arrow.field(column).type, column)
