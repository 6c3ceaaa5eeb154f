"""The types of keys and columns that jobs have written, which are kept with the keyspace.

Values have the types of msgpack: a date is a number there, and a decimal is text. So the driver
keeps the columns of what it writes, and a read without a schema returns these types. A write whose
types cannot be read together with those that are kept is refused (`refuse_other_types`): otherwise
no read without a schema would succeed any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
)

from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.spark.options import quoted
from ringpop_py.state.jobs.messages import SCHEMA_CHARACTERS_MAX
from ringpop_py.state.table.aggregations import DIGITS_MAX, FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.spark.options import WriteOptions

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_FLOATS: Final = (FloatType, DoubleType)
_EXACT: Final = (*_FLOATS, ByteType, ShortType, IntegerType)
"""The types all of whose values a double holds; a read refuses other values."""
_UDT: Final = "'udt'"
_AS_IT_IS: Final = frozenset({"put", "put_if_absent", "max", "min"})
_COUNT: Final = "count"
TYPE_CHARACTERS_MAX: Final = 200
"""The most characters of a type in a message."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What jobs have kept of a keyspace.

    Attributes:
        key: the type of the keys; None if nothing is kept.
        columns: the types of columns, if values are maps.
        single: the type of values that are one column; None if they are maps, or nothing is kept.
    """

    key: DataType | None = None
    columns: dict[str, DataType] = field(default_factory=dict)
    single: DataType | None = None

    def types(self, value: str | None) -> dict[str, DataType]:
        """Return the type of each column; *value* is as in `ReadOptions`."""
        if value is None:
            return self.columns
        return {} if self.single is None else {value: self.single}


def kept_schema(options: WriteOptions, schema: StructType) -> str:
    """Return what is kept of the columns that a write leaves; empty if there is nothing to keep.

    Args:
        options: the result of `fitted`.
    """
    kept = StructType()
    kinds = {each.name: each.dataType for each in schema.fields}
    if options.operation == FIELDS:
        for name, operation in options.fields.items():
            _keep(kept, name, operation, kinds.get(name))
    elif options.value is not None:
        _keep(kept, options.value, options.operation, kinds[options.value])
    elif options.operation in _AS_IT_IS:
        for name, kind in kinds.items():
            if name not in (options.key, options.expires_at):
                _keep(kept, name, options.operation, kind)
    elif options.operation == _COUNT:
        _keep(kept, _COUNT, _COUNT, None)
    if options.operation == "delete":
        return ""
    found = {
        "key": kinds[options.key].jsonValue(),
        "single": bool(kept.fields) and (options.value is not None or options.operation == _COUNT),
        "columns": kept.jsonValue(),
    }
    text = encode_value("json", found).decode()
    return text if len(text) <= SCHEMA_CHARACTERS_MAX else ""


def _keep(kept: StructType, name: str, operation: str, kind: DataType | None) -> None:
    left = LongType() if operation == _COUNT else None if kind is None else _left(operation, kind)
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


def kept_in(schemas: Iterable[str]) -> Kept:
    """Return what *schemas* say together: of numbers the widest type, of other types the first."""
    found = Kept()
    for text in schemas:
        more = _read(text)
        if more is not None:
            found = _merged(found, more)
    return found


def _read(text: str) -> Kept | None:
    """Return what one schema says; None if it is none of ours."""
    try:
        kept = decode_value("json", text.encode())
        columns = {each.name: each.dataType for each in _struct_of(kept["columns"]).fields}
        key_field = {"name": "key", "type": kept["key"], "nullable": True, "metadata": {}}
        key = _struct_of({"type": "struct", "fields": [key_field]})["key"].dataType
        single = next(iter(columns.values())) if kept["single"] else None
    except (
        *(BodyError, ValueError, TypeError, LookupError, AttributeError),
        *(PySparkException, StopIteration),
    ):
        return None
    return Kept(key, {} if single is not None else columns, single)


def _merged(before: Kept, more: Kept) -> Kept:
    columns = dict(before.columns)
    for name, kind in more.columns.items():
        columns[name] = _wider(columns.get(name, kind), kind) or columns[name]
    key, single = before.key or more.key, before.single or more.single
    if before.key is not None and more.key is not None:
        key = _wider(before.key, more.key) or before.key
    if before.single is not None and more.single is not None:
        single = _wider(before.single, more.single) or before.single
    return Kept(key, columns, single)


def unkept(schema: str, kept: Kept) -> bool:
    """Return whether *schema*, a result of `kept_schema`, says what *kept* does not."""
    mine = _read(schema)
    return mine is not None and _merged(kept, mine) != kept


def refuse_other_types(options: WriteOptions, schema: str, kept: Kept) -> None:
    """Raise ConfigError if a write leaves types that no read could return with those *kept*.

    Args:
        options: of the write.
        schema: what `kept_schema` returns for it; empty to check nothing.
    """
    mine = _read(schema)
    if mine is None:
        return
    keyspace = options.target.keyspace
    if kept.key is not None and mine.key is not None and _wider(kept.key, mine.key) is None:
        raise ConfigError(
            f"key column {options.key!r} is of type {_shown(mine.key)}, and the keys of keyspace"
            f" {keyspace!r} were written as {_shown(kept.key)}: no read without a schema could"
            f" return both. Nothing was written: {_way_out(options.key, kept.key)}"
        )
    if (kept.single is not None and mine.columns) or (mine.single is not None and kept.columns):
        there, here = "one column each", "maps of columns"
        if kept.single is None:
            there, here = here, there
        raise ConfigError(
            f"the values of keyspace {keyspace!r} are {there}, and this write would leave {here}"
            " (option value, or operation, says which): no read without a schema could return"
            " both. Nothing was written: write them as before, or into another keyspace"
        )
    whole = options.value or _COUNT
    for name, kind in mine.types(None if mine.single is None else whole).items():
        before = kept.types(None if mine.single is None else whole).get(name)
        if before is not None and _wider(before, kind) is None:
            how = options.fields.get(name, options.operation)
            raise ConfigError(
                f"column {name!r}: operation {how} would leave {_shown(kind)}, and keyspace"
                f" {keyspace!r} has it as {_shown(before)}: no read without a schema could return"
                f" both. Nothing was written: {_way_out(name, before)}"
            )


def _way_out(column: str, kind: DataType) -> str:
    cast = f"cast it, such as CAST({quoted(column)} AS {_shown(kind)})"
    return f"{cast}, give the column another name, or write into another keyspace"


def _shown(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= TYPE_CHARACTERS_MAX else f"{text[: TYPE_CHARACTERS_MAX - 1]}…"


def _struct_of(kept: Any) -> StructType:  # noqa: ANN401 - as it was read
    if _UDT in str(kept):  # PySpark would import the module that it names
        raise ValueError("a type of a program's own")
    return StructType.fromJson(kept)


def _wider(one: DataType, other: DataType) -> DataType | None:  # noqa: PLR0911 - a rule a line
    """Return the type that holds all values of both; None if there is none."""
    if isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, _INTEGERS) and isinstance(other, _INTEGERS):
        return max(one, other, key=lambda kind: _INTEGERS.index(type(kind)))
    if isinstance(one, _FLOATS) and isinstance(other, _FLOATS):
        return one if one == other else DoubleType()
    if isinstance(one, _EXACT) and isinstance(other, _EXACT):
        return DoubleType()
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        return _wider_decimal(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        item = _wider(one.elementType, other.elementType)
        return None if item is None else ArrayType(item)
    if isinstance(one, MapType) and isinstance(other, MapType):
        item = _wider(one.valueType, other.valueType)
        return None if item is None else MapType(one.keyType, item)
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _wider_struct(one, other)
    alike = isinstance(one, StringType | DayTimeIntervalType) and type(one) is type(other)
    return one if alike or one == other else None


def _wider_decimal(one: DecimalType, other: DecimalType) -> DecimalType | None:
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    if whole + scale > DIGITS_MAX and DIGITS_MAX not in (one.precision, other.precision):
        return None
    # 38 digits are those of sums, and mean as many as there can be.
    return DecimalType(min(whole + scale, DIGITS_MAX), scale)


def _wider_struct(one: StructType, other: StructType) -> StructType | None:
    found = {each.name: each.dataType for each in one.fields}
    for each in other.fields:
        kind = _wider(found.get(each.name, each.dataType), each.dataType)
        if kind is None:
            return None
        found[each.name] = kind
    return StructType([StructField(name, kind) for name, kind in found.items()])


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
