"""Read a keyspace as a DataFrame: its partitions, some keys, or the keys of another (`lookup`).

Spark reads the keyspace whenever it computes the DataFrame, each partition at its own moment. A
column that a value does not have is NULL; other entries of values are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ringpop_py.base.errors import ConfigError, SchemaMismatch
from ringpop_py.spark.arrow.columns import keys_as, shown, unpack_rows
from ringpop_py.spark.arrow.stored import stored_type
from ringpop_py.spark.keys import column_named, key_type
from ringpop_py.spark.options import TIMEOUT_S, ReadOptions, Target
from ringpop_py.spark.schemas import EXAMPLE, arrow_schema, struct_of
from ringpop_py.spark.snapshot import peer_list
from ringpop_py.spark.source.reader import KeyspaceReader, Lookup, Packed
from ringpop_py.spark.typed import Kept, covers, kept_in
from ringpop_py.state.rows.packed import unpack_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from ringpop_py.base.address import Address

SPLITS_AN_OWNER: Final = 2
SPLITS_MIN: Final = 8
"""The fewest splits by default, for an executor's cores; a split has at least one partition."""
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
    """The share of one task: partitions of the keyspace, or some *keys*."""

    numbers: range
    keys: tuple[str, ...] = ()


class Scan(DataSourceReader):
    """Reads a keyspace into a schema; `scan_of` makes it."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return a split for each task. Called on the driver."""
        options = self._options
        if options.keys is not None:
            count = options.splits or -(-len(options.keys) // KEYS_A_SPLIT)
            shares = _shares(len(options.keys), count)
            return [Split(range(0), options.keys[some.start : some.stop]) for some in shares]
        with KeyspaceReader(options.target, stale=options.stale) as reader:
            described = reader.description
        # A partition without an owner has the name "".
        owners_count = len({name for name, _ in described.routes.destinations.values() if name})
        usual = max(SPLITS_MIN, SPLITS_AN_OWNER * owners_count)
        shares = _shares(described.partitions_count, options.splits or usual)
        return [Split(some) for some in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *partition*. Called in a task."""
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
    """Return the reader of a keyspace into *schema*. Raises ConfigError for unusable columns."""
    arrow = arrow_schema(schema)
    if any(name.lower() == options.key.lower() for name in arrow.names):  # else it is not wanted
        options = replace(options, key=column_named(options.key, arrow.names))
        key_type(schema, options.key)
    for field in arrow:
        if field.name != options.key:
            stored_type(field.type, field.name)
            if options.value not in (None, field.name):
                raise ConfigError(
                    f"the value becomes column {options.value!r}, so there is no {field.name!r}"
                )
    return Scan(options, arrow)


def inferred_schema(options: ReadOptions) -> StructType:
    """Return the key, and the columns that jobs have kept or that a sample of the values has."""
    with KeyspaceReader(options.target, stale=options.stale) as reader:
        sample, kept = reader.sample(), kept_in(reader.schemas())
        columns = _columns_in(sample, kept, options.key, options.value)
    if columns is None:
        raise ConfigError(
            f"keyspace {options.target.keyspace!r} is empty, so its columns are unknown: give a"
            " schema, for example .schema('key string, flights bigint')"
        )
    key = StructField(options.key, kept.key or StringType())
    if not _fits_key(sample, key):  # other clients may have put any text
        key = StructField(options.key, StringType())
    return StructType([key, *columns.fields])


def _columns_in(sample: Packed, kept: Kept, key: str, value: str | None) -> StructType | None:
    """Return the columns of values; None if there is no value and nothing is kept."""
    types = kept.types(value)
    if not len(sample.keys) and not types:
        return None
    inferred = from_arrow_schema(infer_schema(sample.values, key=key, value=value).remove(0))
    there = {field.name: field.dataType for field in inferred.fields}
    columns = {
        name: kind
        for name, kind in types.items()
        if name.lower() != key.lower()
        and covers(kind, there.get(name, kind))
        and _fits(sample, StructField(name, kind), value)
    }
    for field in inferred.fields:
        columns.setdefault(field.name, field.dataType)
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _fits(sample: Packed, field: StructField, value: str | None) -> bool:
    # Somebody else may have written other values since: then they are read as they are.
    try:
        schema = arrow_schema(StructType([field]))
        unpack_rows(sample.keys, sample.values, schema, key=None, value=value)
    except (ConfigError, SchemaMismatch):
        return False
    return True


def _fits_key(sample: Packed, field: StructField) -> bool:
    try:
        keys_as(arrow_schema(StructType([field])).field(0), sample.keys)
    except SchemaMismatch:
        return False
    return True


def _shares(count: int, parts: int) -> list[range]:
    # Of like size, and none of them empty.
    parts = max(1, min(count, parts))
    return [range(count * at // parts, count * (at + 1) // parts) for at in range(parts)]


# The keys of another DataFrame. Only those are requested, so this pays if they are few.


def lookup(  # noqa: PLR0913 - options of one query, by name
    df: DataFrame,
    keyspace: str,
    key: str,
    *,
    peers: str | Address | Sequence[str | Address],
    schema: StructType | str | None = None,
    value: str | None = None,
    direct: bool = True,
    stale: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> DataFrame:
    """Return *df* with further columns: the values in *keyspace* of the keys in column *key*.

    Rows stay in their order. The new columns are NULL if the key is not in the keyspace, or is
    NULL. The keyspace is read whenever Spark computes the result, each key at its own moment.

    Args:
        key: the column of keys; for its types see `ringpop_py.spark.keys`.
        peers: daemons; the first that answers is used.
        schema: the new columns, as DDL or a type: entries of the values, which are maps, or the
            column *value* alone. By default the columns that hold a sample of the values.
        value: the column that the value becomes as a whole.
        direct: False if executors cannot reach the addresses of owners.
        stale: whether owners may answer without making sure that they still are the owners.
        timeout_s: the time limit for a request to a partition, with its retries.

    Raises:
        ConfigError: an argument cannot be used, or a column exists already; or no columns hold all
            values of the sample, and *schema* is needed.
        KeyspaceUnknown: the keyspace does not exist.
        PartitionUnavailable: no peer answers.

    Later errors fail the query, such as `SchemaMismatch` if a value does not fit its column.
    """
    key_type(df.schema, key)
    key = column_named(key, df.columns)
    target = Target(keyspace, peer_list(peers), direct, timeout_s)
    with KeyspaceReader(target) as reader:  # even with a schema: it checks the keyspace
        struct = struct_of(schema) if schema is not None else _inferred(reader, value)
    if value is not None and struct.names != [value]:
        raise ConfigError(f"the value becomes column {value!r} alone; schema has {struct.names}")
    taken = {name.lower() for name in df.columns}  # as Spark compares names
    for name in struct.names:
        if name.lower() in taken:
            raise ConfigError(
                f"column {name!r} exists already: rename it beforehand, or give a schema without it"
            )
    columns = arrow_schema(struct)
    for field in columns:
        stored_type(field.type, field.name)
    options = ReadOptions(target, key, value, keys=None, splits=None, stale=stale)
    return df.mapInArrow(Lookup(options, columns), StructType([*df.schema.fields, *struct.fields]))


def _inferred(reader: KeyspaceReader, value: str | None) -> StructType:
    # No entry of a value has the name "", so the column of keys hides none.
    found = _columns_in(reader.sample(), kept_in(reader.schemas()), "", value)
    if not found:
        raise ConfigError(
            f"keyspace {reader.keyspace!r} has no values yet, so its columns are unknown; give a"
            f" schema, for example {EXAMPLE}"
        )
    return found


# Schemas for values without one: the types that hold all values of a sample.


def infer_schema(values: pa.Array, *, key: str, value: str | None = None) -> pa.Schema:
    """Return columns that hold all of the packed *values* (NULL: absent), and *key* before them.

    Whole numbers become 64-bit integers, or doubles if some have fractions. Maps within a value
    become structs. A column that is None in the whole sample becomes text. Types that are kept as
    numbers, such as dates, stay numbers: a schema can tell them apart (`ringpop_py.spark.typed`).

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
                f"values are not maps of columns (such as {shown(row)}): name the column that they"
                " should become with option value"
            )
    fields = _fields([row for row in unpacked if row], "")
    columns = [(name, _or_text(kind)) for name, kind in fields.items() if name != key]
    if len(columns) > COLUMNS_MAX:
        raise ConfigError(f"values have {len(columns)} different columns; give a schema with fewer")
    return pa.schema([(key, pa.string()), *columns])


def _fields(rows: Iterable[dict[str, Any]], path: str) -> dict[str, pa.DataType]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        for name, item in row.items():
            found.setdefault(name, []).append(item)
    return {name: _common(items, f"{path}{name}") for name, items in found.items()}


def _common(values: list[Any], column: str) -> pa.DataType:
    # Null if all of them are None.
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
