"""The types of columns that jobs have written, which are kept with the keyspace.

Values have the types of msgpack: a date is a number there, and a decimal is text. So the driver
keeps the columns of what it writes, and a read without a schema returns these types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StructType,
)

from ringpop_py.errors import BodyError
from ringpop_py.jobs.messages import SCHEMA_CHARACTERS_MAX
from ringpop_py.keyed.aggregations import DIGITS_MAX, FIELDS
from ringpop_py.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.spark.options import WriteOptions

_AS_IT_IS: Final = frozenset({"put", "put_if_absent", "max", "min"})


def kept_schema(options: WriteOptions, schema: StructType) -> str:
    """Return what is kept of the columns that a write leaves; empty if there is nothing to keep.

    Args:
        options: the result of `fitted`.
    """
    kept = StructType()
    kinds = {field.name: field.dataType for field in schema.fields if field.name != options.key}
    if options.operation == FIELDS:
        for name, operation in options.fields.items():
            _keep(kept, name, operation, kinds.get(name))
    elif options.value is not None:
        _keep(kept, options.value, options.operation, kinds[options.value])
    elif options.operation in _AS_IT_IS:
        for name, kind in kinds.items():
            _keep(kept, name, options.operation, kind)
    if not kept.fields:
        return ""
    found = {"single": options.value is not None, "columns": kept.jsonValue()}
    text = encode_value("json", found).decode()
    return text if len(text) <= SCHEMA_CHARACTERS_MAX else ""


def _keep(kept: StructType, name: str, operation: str, kind: DataType | None) -> None:
    left = LongType() if operation == "count" else None if kind is None else _left(operation, kind)
    if left is not None:
        kept.add(name, left)


def _left(operation: str, kind: DataType) -> DataType | None:
    """Return the type of what *operation* makes of values of a *kind*; None if it is not kept."""
    operation = operation.removesuffix("_decimal")
    if operation in _AS_IT_IS:
        return kind
    if operation == "append" or (operation == "union" and not isinstance(kind, ArrayType)):
        return ArrayType(kind)
    if operation == "union":
        return kind
    return _sum(kind) if operation == "add" else None


def _sum(kind: DataType) -> DataType | None:
    if isinstance(kind, DecimalType):
        return DecimalType(DIGITS_MAX, kind.scale)
    if isinstance(kind, IntegralType):
        return LongType()
    return DoubleType() if isinstance(kind, FloatType | DoubleType) else None


def kept_types(schemas: Iterable[str], value: str | None) -> dict[str, DataType]:
    """Return the type of each column in *schemas*; of several types of one, the last.

    Args:
        value: as in `ringpop_py.spark.options.ReadOptions`.
    """
    found: dict[str, DataType] = {}
    for text in schemas:
        try:
            kept = decode_value("json", text.encode())
            columns, single = StructType.fromJson(kept["columns"]), bool(kept["single"])
        except (BodyError, ValueError, TypeError, KeyError, AttributeError):
            continue  # of another program
        if single and value is not None:
            found[value] = columns.fields[0].dataType
        elif not single and value is None:
            found |= {field.name: field.dataType for field in columns.fields}
    return found
