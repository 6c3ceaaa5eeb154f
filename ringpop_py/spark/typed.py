"""The types of columns that jobs have written, which are kept with the keyspace.

Values have the types of msgpack: a date is a number there, and a decimal is text. So the driver
keeps the columns of what it writes, and a read without a schema returns these types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
    UserDefinedType,
)

from ringpop_py.errors import BodyError
from ringpop_py.jobs.messages import SCHEMA_CHARACTERS_MAX
from ringpop_py.keyed.aggregations import DIGITS_MAX, FIELDS
from ringpop_py.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.spark.options import WriteOptions

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_UDT: Final = "'udt'"
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
        kept.add(name, _plain(left))


def _plain(kind: DataType) -> DataType:
    """Return *kind* with NULL allowed everywhere, as other clients may put it, and without UDTs."""
    if isinstance(kind, UserDefinedType):
        return _plain(kind.sqlType())
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType), _plain(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _plain(each.dataType)) for each in kind.fields])
    return kind


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
    """Return the type of each column in *schemas*: the widest of several numbers, or the last type.

    Args:
        value: as in `ringpop_py.spark.options.ReadOptions`.
    """
    found: dict[str, DataType] = {}
    for text in schemas:
        try:
            kept = decode_value("json", text.encode())
            columns = _columns_of(kept["columns"])
            single = bool(kept["single"])
        except (BodyError, ValueError, TypeError, LookupError, AttributeError, PySparkException):
            continue  # of another program
        if single == (value is not None):
            for field in columns.fields[:1] if single else columns.fields:
                name = field.name if value is None else value
                before = found.get(name, field.dataType)
                found[name] = _wider(before, field.dataType)
    return found


def _columns_of(kept: Any) -> StructType:  # noqa: ANN401 - as it was read
    if _UDT in str(kept):  # PySpark would import the module that it names
        raise ValueError("a type of a program's own")
    return StructType.fromJson(kept)


def _wider(before: DataType, last: DataType) -> DataType:
    if isinstance(before, IntegralType) and isinstance(last, IntegralType):
        return max(before, last, key=lambda kind: _INTEGERS.index(type(kind)))
    if isinstance(before, FloatType | DoubleType) and isinstance(last, FloatType | DoubleType):
        return before if before == last else DoubleType()
    if isinstance(before, DecimalType) and isinstance(last, DecimalType):
        scale = max(before.scale, last.scale)
        whole = max(before.precision - before.scale, last.precision - last.scale)
        return DecimalType(min(whole + scale, DIGITS_MAX), scale)
    return last


def covers(kept: DataType, found: DataType) -> bool:
    """Return whether *kept* has all fields of maps that values have, which are of type *found*."""
    if isinstance(kept, StructType) and isinstance(found, StructType):
        fields = {each.name: each.dataType for each in kept.fields}
        return all(
            each.name in fields and covers(fields[each.name], each.dataType)
            for each in found.fields
        )
    if isinstance(kept, ArrayType) and isinstance(found, ArrayType):
        return covers(kept.elementType, found.elementType)
    if isinstance(kept, MapType) and isinstance(found, StructType):
        return all(covers(kept.valueType, each.dataType) for each in found.fields)
    return True
