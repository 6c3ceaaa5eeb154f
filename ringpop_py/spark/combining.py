"""Rows combined by Spark itself, in its JVM, before the data source writes them.

The data source combines the rows of each task, in Python. Where a key has many rows, Spark does
this faster, and also across tasks: its `groupBy` leaves one row of each key. What is written stays
the same, so only operations whose order does not matter are combined, in types that Spark adds up
or compares as an owner does:

- A sum of whole numbers, or of decimals, never wraps round, nor becomes NULL: beyond 64 bits (38
  digits) the query fails, whether `spark.sql.ansi.enabled` is set or not.
- NaN stays NaN, which the write then refuses. Spark's own `min` prefers any number to it.
- A count is added: its column is marked, and the data source takes ``count`` of it as ``add``.
- NULL is passed over by Spark as by a task. What has no value at all stays NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it
from pyspark.sql.types import BinaryType, DoubleType, FloatType, NullType, StringType, StructType

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.arrow.packing import COUNTED, counted_in, fitted
from ringpop_py.spark.options import quoted, write_options
from ringpop_py.state.table.aggregations import DIGITS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

COMBINED: Final = ("add", "count", "max", "min", "add_decimal", "max_decimal", "min_decimal")
"""The operations that Spark can do first."""
_FLOATS: Final = (FloatType, DoubleType)
_OTHERWISE: Final = "write the rows as they are, and each task combines its own"


def combined(df: DataFrame, key: str, operations: Mapping[str, str]) -> DataFrame:
    """Return one row for each key of *df*, to be written with the same *operations*.

    The rows that have no key become one without a key.

    Args:
        operations: by column, as in the option ``operation`` of the data source; other columns are
            left out. ``count`` of a column that does not exist counts rows.

    Raises:
        ConfigError: an operation, or the type of its column, cannot be combined; a column or the
            key cannot be written; or *df* is a stream, whose totals would be written repeatedly.
    """
    if df.isStreaming:
        raise ConfigError("a stream cannot be combined: call combined in foreachBatch")
    for name, operation in operations.items():
        if operation not in COMBINED:
            raise ConfigError(
                f"column {name!r}: {operation} cannot be combined in Spark first, only"
                f" {', '.join(COMBINED)}: {_OTHERWISE}; or choose the row of each key that counts,"
                " such as with max_by"
            )
    said = ",".join(f"{quoted(name)}={operation}" for name, operation in operations.items())
    meant = {name.lower() for name in (key, *operations)}
    chosen = StructType([field for field in df.schema.fields if field.name.lower() in meant])
    options = fitted(write_options({"keyspace": "any", "key": key, "operation": said}), chosen)
    fields = {field.name: field for field in chosen.fields}
    counts = counted_in(chosen)
    columns = []
    for name, operation in options.fields.items():
        column = _combined(operation, name, fields.get(name), options.key)
        is_count = operation == "count" or name in counts
        columns.append(column.alias(name, metadata={COUNTED: True} if is_count else {}))
    return df.groupBy(F.col(quoted(options.key))).agg(*columns)


def _combined(operation: str, name: str, field: StructField | None, key: str) -> Column:
    if field is None:
        return F.count(F.lit(1))
    column, kind = F.col(quoted(name)), field.dataType
    if operation == "count":
        return F.count(column)
    if isinstance(kind, StringType | BinaryType):
        raise ConfigError(
            f"column {name!r}: Spark would sort all rows for {operation} of {kind.simpleString()},"
            f" which is slower: {_OTHERWISE}"
        )
    if isinstance(kind, NullType):
        return F.max(column)  # nothing in a type of its own: no sum, which would be a number
    if operation.startswith("add"):
        return F.sum(column) if isinstance(kind, _FLOATS) else _exact_sum(column, name, key)
    if operation.startswith("min"):
        return -F.max(-column) if isinstance(kind, _FLOATS) else F.min(column)
    return F.max(column)


def _exact_sum(column: Column, name: str, key: str) -> Column:
    """Return the sum of *column*, which fails the query if it is too large."""
    total = F.try_sum(column)  # NULL if it is, whereas `sum` may wrap round
    shown = F.coalesce(F.col(quoted(key)).cast("string"), F.lit("NULL"))
    why = f": the sum does not fit into 64 bits, or {DIGITS_MAX} digits of a decimal"
    refusal = F.raise_error(F.concat(F.lit(f"column {name!r}, key "), shown, F.lit(why)))
    has_numbers = F.max(column).isNotNull()  # for which a count would take longer
    return F.when(total.isNull() & has_numbers, refusal).otherwise(total)
