"""`lookup`: the rows of a DataFrame, with what a keyspace has of their keys.

It asks for the keys that there are, and reads nothing else: it pays if these are few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ringpop_py.errors import ConfigError
from ringpop_py.spark.arrow.columns import stored_type
from ringpop_py.spark.keys import key_type
from ringpop_py.spark.options import TIMEOUT_S, ReadOptions, Target
from ringpop_py.spark.schemas import EXAMPLE, arrow_schema, struct_of
from ringpop_py.spark.snapshot import peer_list
from ringpop_py.spark.source.reader import KeyspaceReader, Lookup
from ringpop_py.spark.source.scan import infer_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from ringpop_py.address import Address


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
    """*df*, with a column for each of what *keyspace* has of the *key* of a row.

    Each row stays, in its place; the columns are NULL where its key is not there, or is NULL. The
    state is looked at while the result is computed, so anew each time that is, and a key's value
    at one moment, another key's at another.

    Args:
        key: the column of keys (what a key may be says `ringpop_py.spark.keys`).
        peers: daemons, the first that answers serves.
        schema: the columns, as DDL or a type: of the entries of each value, which is a map, or
            *value* alone. By default what some values have in common.
        value: the column that the value becomes as a whole.
        direct: False where the addresses of owners cannot be reached from executors.
        stale: what owners last knew will do.
        timeout_s: how long a partition may be on its way.

    Raises:
        ConfigError: an argument cannot be used, or a column is there already; or the values have
            nothing in common, and *schema* is needed.
        KeyspaceUnknown: there is no such keyspace.
        PartitionUnavailable: no peer answers.

    What goes wrong later fails the query: `SchemaMismatch`, if a value does not fit its column.
    """
    key_type(df.schema, key)
    target = Target(keyspace, peer_list(peers), direct, timeout_s)
    with KeyspaceReader(target) as reader:
        struct = struct_of(schema) if schema is not None else _inferred(reader, value)
    _check(df, struct, value)
    columns = arrow_schema(struct)
    for field in columns:
        stored_type(field.type, field.name)
    options = ReadOptions(target, key, value, keys=None, splits=None, stale=stale)
    return df.mapInArrow(Lookup(options, columns), StructType([*df.schema.fields, *struct.fields]))


def _inferred(reader: KeyspaceReader, value: str | None) -> StructType:
    # No value has an entry without a name that it would hide.
    found = infer_schema(reader.sample().values, key="", value=value).remove(0)
    if not found.names:
        raise ConfigError(
            f"keyspace {reader.keyspace!r} has no values yet that would say which columns there"
            f" are; give a schema, for example {EXAMPLE}"
        )
    return from_arrow_schema(found)


def _check(df: DataFrame, struct: StructType, value: str | None) -> None:
    if value is not None and struct.names != [value]:
        raise ConfigError(f"the value becomes column {value!r} alone; schema has {struct.names}")
    taken = {name.lower() for name in df.columns}
    twice = [name for name in struct.names if name.lower() in taken]
    if twice:
        raise ConfigError(
            f"column {twice[0]!r} is there already: rename it beforehand, or give a schema"
            " without it"
        )
