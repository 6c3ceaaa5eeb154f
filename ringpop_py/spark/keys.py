"""The types of keys in Spark: for columns, jobs and the data source.

A key is text, and its hash is that of its UTF-8 bytes. So

- text (``string``) is used unchanged: not normalised, not trimmed, in its case;
- an integer (``tinyint`` to ``bigint``) stands for its decimal text: the int 7, the long 7 and the
  text ``7`` are one key;
- ``binary`` stands for the text with these UTF-8 bytes. Bytes that are not UTF-8 have an owner and
  a partition as well, but cannot be the key of a row in a keyspace;
- NULL is not a key, and has no owner;
- other types are refused: their text depends on settings (a double, a timestamp), or Spark
  considers texts equal that are different keys (a collated string).

Rules for this file: it runs in Spark's workers as well, so pyspark is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.errors import BadKey, BodyError, ConfigError
from ringpop_py.base.values.arrow import sound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import StructType

TEXT: Final = "string"
BINARY: Final = "binary"
INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
KEY_TYPES: Final = (TEXT, BINARY, *INTEGERS)
"""As Spark's ``typeof`` and ``DataType.simpleString`` call them."""

_RULE: Final = "a key is text that is compared byte by byte, an integer, or binary; this one is "
_HINT: Final = "; cast it first, for example with .cast('string')"


def key_text(column: Column | str) -> Column:
    """Return the text of the key in *column*, as Spark SQL; NULL if the key is NULL.

    A column that cannot hold keys fails the query when a row is read. Binary that is not UTF-8
    becomes text that is not UTF-8 either: it can be hashed, but not shown.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents call it

    found = F.col(column) if isinstance(column, str) else column
    kind = F.typeof(found)
    # The type is known only when Spark has analysed the query; then the optimizer drops this test.
    refusal = F.raise_error(F.concat(F.lit(_RULE), kind, F.lit(_HINT)))
    return F.when(kind.isin(*KEY_TYPES), found.cast(TEXT)).otherwise(refusal)


def column_named(name: str, names: Sequence[str], where: str = "") -> str:
    """Return the one of *names* that *name* means, whatever its case, as in Spark.

    If several names differ only by their case (`spark.sql.caseSensitive`), return the one that is
    spelled exactly so.

    Args:
        where: begins the text of an error: it says which argument *name* is.

    Raises:
        ConfigError: no name fits, or several names do.
    """
    exact = [each for each in names if each == name]
    found = exact or [each for each in names if each.lower() == name.lower()]
    if not found:
        there = ", ".join(map(repr, names))
        raise ConfigError(f"{where}there is no column {name!r}; there are {there}")
    if len(found) > 1:
        called = "" if exact else f", whatever its case: {', '.join(map(repr, found))}"
        raise ConfigError(f"{where}{len(found)} columns are called {name!r}{called}")
    return found[0]


def key_type(schema: StructType, key: str) -> str:
    """Return the type of the one column *key*, one of `KEY_TYPES`. Raises ConfigError."""
    name = column_named(key, schema.names)
    kind: str = schema[name].dataType.simpleString()
    if kind not in KEY_TYPES:
        raise ConfigError(f"key column {name!r}: {_RULE}{kind}{_HINT}")
    return kind


def key_texts(keys: pa.Array) -> pa.Array:
    """Return *keys*, of `KEY_TYPES`, as text. Raises BadKey for bytes that are not UTF-8."""
    kind = keys.type
    try:
        if pa.types.is_integer(kind) or pa.types.is_binary(kind):
            return pc.cast(keys, pa.string())
        if pa.types.is_large_binary(kind):
            return pc.cast(keys, pa.large_string())
        assert pa.types.is_string(kind) or pa.types.is_large_string(kind)
        sound(keys)  # Spark makes text of any bytes: CAST(binary AS STRING)
    except (pa.ArrowInvalid, BodyError) as error:
        raise BadKey(f"a key is not text: {error}") from None
    return keys


def refuse_null_keys(count: int, key: str) -> NoReturn:
    """Raise BadKey: *count* rows have no *key*."""
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    raise BadKey(
        f"{rows} no key in column {key!r}; filter them out, or choose what becomes of such rows:"
        " onNullKey (on_null_key in Python) is 'fail', 'skip' or 'count'"
    )
