"""A keyspace as a DataFrame: ranges of its partitions, or the keys that were asked for.

Spark reads the keyspace as it is by then, each partition at a moment of its own, and once more each
time the DataFrame is computed. A column that a value does not have is NULL; what it has besides the
columns is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ringpop_py.columns.packed import unpack_column
from ringpop_py.errors import ConfigError
from ringpop_py.spark.arrow.columns import shown, stored_type, unpack_rows
from ringpop_py.spark.source.reader import KeyspaceReader, Packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from ringpop_py.spark.options import ReadOptions

SPLITS_AN_OWNER: Final = 2
SPLITS_MIN: Final = 8
"""At least, if there are as many partitions: for an executor's cores."""
KEYS_A_SPLIT: Final = 50_000
COLUMNS_MAX: Final = 1_000
_SCALARS: Final = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


@dataclass
class Split(InputPartition):
    """What one task reads: partitions of the keyspace, or some *keys*."""

    numbers: range
    keys: tuple[str, ...] = ()


class Scan(DataSourceReader):
    """See `scan_of`."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """On the driver."""
        options = self._options
        if options.keys is not None:
            count = options.splits or -(-len(options.keys) // KEYS_A_SPLIT)
            shares = _shares(len(options.keys), count)
            return [Split(range(0), options.keys[some.start : some.stop]) for some in shares]
        with KeyspaceReader(options.target, stale=options.stale) as reader:
            described = reader.description
        owners_count = len({name for name, _ in described.routes.destinations.values() if name})
        usual = max(SPLITS_MIN, SPLITS_AN_OWNER * owners_count)
        shares = _shares(described.partitions_count, options.splits or usual)
        return [Split(some) for some in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        assert isinstance(partition, Split)
        options = self._options
        with KeyspaceReader(options.target, stale=options.stale) as reader:
            for rows in self._packed(reader, partition):
                yield unpack_rows(
                    rows.keys, rows.values, self._schema, key=options.key, value=options.value
                )

    def _packed(self, reader: KeyspaceReader, split: Split) -> Iterator[Packed]:
        if not split.keys:
            yield from reader.scan(split.numbers)
            return
        keys = pa.array(split.keys, pa.large_string())
        values = reader.read(keys)
        there = values.is_valid()
        yield Packed(keys.filter(there), values.filter(there))


def scan_of(options: ReadOptions, schema: StructType) -> Scan:
    """What reads a keyspace into *schema*.

    Raises:
        ConfigError: a column of it cannot be read.
    """
    from ringpop_py.spark.schemas import arrow_schema  # noqa: PLC0415 - on the driver

    arrow = arrow_schema(schema)
    for field in arrow:
        if field.name != options.key:
            stored_type(field.type, field.name)
            if options.value not in (None, field.name):
                raise ConfigError(
                    f"the value becomes column {options.value!r}, so there is no {field.name!r}"
                )
        elif field.type != pa.string():
            raise ConfigError(
                f"the key is text: column {field.name!r} is of type string, not {field.type}"
            )
    return Scan(options, arrow)


def inferred_schema(options: ReadOptions) -> StructType:
    """The columns that a sample of the values fits into.

    Raises:
        ConfigError: there is no value, or they have nothing in common.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - on the driver

    with KeyspaceReader(options.target, stale=options.stale) as reader:
        sample = reader.sample()
    if not len(sample.keys):
        raise ConfigError(
            f"keyspace {options.target.keyspace!r} is empty, so nothing says which columns there"
            " are: give a schema, for example .schema('key string, flights bigint')"
        )
    return from_arrow_schema(infer_schema(sample.values, key=options.key, value=options.value))


def _shares(count: int, parts: int) -> list[range]:
    """The numbers up to *count* in as many ranges of like size, none of them empty."""
    parts = max(1, min(count, parts))
    return [range(count * at // parts, count * (at + 1) // parts) for at in range(parts)]


# A schema for values that nobody has described: what a sample of them has in common.


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
            raise ConfigError(
                f"values are no maps of columns ({shown(row)} is one): say by option value which"
                " column they should become"
            )
    fields = _fields([row for row in unpacked if row], "")
    columns = [(name, _or_text(kind)) for name, kind in fields.items() if name != key]
    if len(columns) > COLUMNS_MAX:
        raise ConfigError(f"values have {len(columns)} different columns; give a schema with fewer")
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
        raise ConfigError(f"column {column!r} has values of {names}: give a schema without it")
    if kinds == [dict]:
        fields = _fields([row for row in values if row], f"{column}.")
        return pa.struct([(name, _or_text(kind)) for name, kind in fields.items()])
    if kinds == [list]:
        items = [item for row in values if row for item in row]
        return pa.list_(_or_text(_common(items, f"{column}[]")))
    return _SCALARS[kinds[0]]


def _or_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind
