"""Arrays as literals in a query plan: a table that Spark's generated code reads by index.

In a classic session the driver makes them in Spark's own binary form, in its JVM: the elements are
primitive, and a printed plan has a hash code in their place. Spark Connect has no JVM at hand.
There a table is a text that the optimizer splits and casts once, and that is printed whole.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike
    from pyspark import SparkContext
    from pyspark.sql import Column

_WORD: Final = 8
_LITTLE: Final = sys.byteorder == "little"


def driver() -> SparkContext | None:
    """Return the context whose JVM makes literals, or None in a session that has none."""
    if is_remote():
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - not part of pyspark-client

    return SparkContext._active_spark_context  # noqa: SLF001 - as pyspark.sql.functions finds it


def integers(values: ArrayLike, kind: str) -> Column:
    """Return *values* as an array of *kind*, ``int`` or ``bigint``; -1 among ints is -1."""
    table = np.asarray(values, {"int": np.int32, "bigint": np.int64}[kind])
    literal = _literal(len(table), table.tobytes(), kind)
    if literal is not None:
        return literal
    # One text; a literal for each element would cost a message each.
    return F.split(F.lit(",".join(map(str, table.tolist()))), ",").cast(f"array<{kind}>")


def texts(values: Sequence[str]) -> Column:
    """Return *values* as an array of ``string``."""
    encoded = [value.encode() for value in values]
    padded = [text.ljust(_up(len(text)), b"\0") for text in encoded]
    start = _head(len(values)) + _WORD * len(values)
    starts = accumulate(map(len, padded), initial=start)
    places = [(at << 32) | len(text) for at, text in zip(starts, encoded, strict=False)]
    elements = np.array(places, np.int64).tobytes() + b"".join(padded)
    literal = _literal(len(values), elements, "string")
    return F.array(*map(F.lit, values)).cast("array<string>") if literal is None else literal


def _literal(count: int, elements: bytes, kind: str) -> Column | None:
    # The form is that of Spark's class UnsafeArrayData: the number of elements, a bit for each that
    # is NULL (none is), and the elements; texts are (offset, length), and follow them.
    context = driver()
    if context is None or not _LITTLE:
        return None
    bits = bytes(_head(count) - _WORD)
    data = count.to_bytes(_WORD, sys.byteorder) + bits + elements.ljust(_up(len(elements)), b"\0")
    from py4j.protocol import Py4JError  # noqa: PLC0415 - not part of pyspark-client

    with suppress(Py4JError):  # a platform that keeps its JVM to itself
        return _column(context, data, kind)
    return None


def _column(context: SparkContext, data: bytes, kind: str) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415

    spark: Any = context._jvm.org.apache.spark  # type: ignore[union-attr] # noqa: SLF001
    array = spark.sql.catalyst.expressions.UnsafeArrayData()
    array.pointTo(bytearray(data), spark.unsafe.Platform.BYTE_ARRAY_OFFSET, len(data))
    element = spark.sql.types.DataType.fromDDL(kind)
    of = spark.sql.types.DataTypes.createArrayType(element, False)  # noqa: FBT003 - of Java
    literal = spark.sql.catalyst.expressions.Literal(array, of)
    return ClassicColumn(spark.sql.classic.ExpressionUtils.column(literal))


def _head(count: int) -> int:
    return _WORD + _WORD * -(-count // 64)


def _up(size: int) -> int:
    return -(-size // _WORD) * _WORD
