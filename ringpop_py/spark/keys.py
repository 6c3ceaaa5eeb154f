"""What a key may be in Spark, for all of this package: columns, jobs and the data source alike.

A key is text, and its place is the hash of its UTF-8 bytes. So

- text (``string``) is taken as it is: no normalising, no trimming, no case;
- an integer (``tinyint`` to ``bigint``) stands for its decimal text: the int 7, the long 7 and the
  text ``7`` are one key;
- ``binary`` stands for the text with these UTF-8 bytes. Bytes that are no text have an owner and
  a partition as well, but cannot be the key of a row in a keyspace;
- NULL is no key, and has no owner;
- all else is refused, because its text would depend on settings (a double, a timestamp), or
  because Spark holds texts for equal that are different keys (a collated string).

Rules for this file: it runs in Spark's workers as well, so pyspark is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.errors import BadKey, ConfigError

if TYPE_CHECKING:
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
    """The text of the key in *column*, as Spark SQL; NULL where it is NULL.

    The type of a column is not known before Spark has analysed the query, so one that is no key
    fails the query, with the reason, as soon as a row is read. It costs nothing where it is one:
    the optimizer takes the test out.

    Binary that is no UTF-8 becomes text that is none either: hash it, do not show it.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents call it

    found = F.col(column) if isinstance(column, str) else column
    kind = F.typeof(found)
    refusal = F.raise_error(F.concat(F.lit(_RULE), kind, F.lit(_HINT)))
    return F.when(kind.isin(*KEY_TYPES), found.cast(TEXT)).otherwise(refusal)


def key_type(schema: StructType, key: str) -> str:
    """The type of the column *key*, one of `KEY_TYPES`.

    Raises:
        ConfigError: there is no such column, or more than one, or it cannot hold keys.
    """
    kinds = [field.dataType.simpleString() for field in schema if field.name == key]
    problem = None
    if not kinds:
        problem = f"there is no column {key!r}; there are {', '.join(map(repr, schema.names))}"
    elif len(kinds) > 1:
        problem = f"{len(kinds)} columns are called {key!r}"
    elif kinds[0] not in KEY_TYPES:
        problem = f"key column {key!r}: {_RULE}{kinds[0]}{_HINT}"
    if problem is not None:
        raise ConfigError(problem)
    return kinds[0]


def key_texts(keys: pa.Array) -> pa.Array:
    """The texts of Arrow's *keys*, whose type is one that Spark makes of `KEY_TYPES`.

    Raises:
        BadKey: some are bytes that are no UTF-8, so they are the key of nothing.
    """
    try:
        if pa.types.is_integer(keys.type):
            return pc.cast(keys, pa.string())
        if pa.types.is_binary(keys.type):
            return pc.cast(keys, pa.string())
        if pa.types.is_large_binary(keys.type):
            return pc.cast(keys, pa.large_string())
        assert pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)
        # Spark makes text of any bytes, where it is told to: CAST(binary AS STRING).
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadKey(f"a key is no text: {error}") from None
    return keys


def refuse_null_keys(count: int, key: str) -> None:
    """Raise BadKey if *count*, of rows without a *key* in a job that is to fail then, is not 0."""
    if count:
        rows = "1 row has" if count == 1 else f"{count:,} rows have"
        raise BadKey(
            f"{rows} no key in column {key!r}; filter them out, or say what becomes of such rows:"
            " onNullKey (on_null_key in Python) is 'fail', 'skip' or 'count'"
        )
