"""Arrays as literals in a query plan: a table that Spark's generated code reads by index.

In a classic session the driver makes them in its JVM. Numbers are in Spark's own binary form, and a
printed plan has a hash code in their place; it names texts. Spark Connect has no JVM at hand. There
a table of numbers is a text that the optimizer splits and casts once, and that is printed whole.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray
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
    literal = _literal(kind, lambda spark: _packed(spark, table)) if _LITTLE else None
    if literal is not None:
        return literal
    # One text; a literal for each element would cost a message each.
    return F.split(F.lit(",".join(map(str, table.tolist()))), ",").cast(f"array<{kind}>")


def texts(values: Sequence[str]) -> Column:
    """Return *values*, which have no NUL, as an array of ``string``."""
    literal = _literal("string", lambda spark: _objects(spark, values))
    return F.array(*map(F.lit, values)).cast("array<string>") if literal is None else literal


def _literal(kind: str, make: Callable[[Any], Any]) -> Column | None:
    """Return the array that *make* returns, given the package of Spark in the driver's JVM."""
    context = driver()
    if context is None:
        return None
    from py4j.protocol import Py4JError  # noqa: PLC0415 - not part of pyspark-client
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415

    with suppress(Py4JError):  # a platform that keeps its JVM to itself
        spark: Any = context._jvm.org.apache.spark  # type: ignore[union-attr] # noqa: SLF001
        element = spark.sql.types.DataType.fromDDL(kind)
        of = spark.sql.types.DataTypes.createArrayType(element, False)  # noqa: FBT003 - of Java
        literal = spark.sql.catalyst.expressions.Literal(make(spark), of)
        return ClassicColumn(spark.sql.classic.ExpressionUtils.column(literal))
    return None


def _packed(spark: Any, table: NDArray[Any]) -> Any:  # noqa: ANN401 - objects of Java
    """Return numbers in the form of Spark's class UnsafeArrayData.

    It is the number of elements, a bit for each that is NULL (none is), and the elements.
    """
    bits = bytes(_WORD * -(-len(table) // 64))
    elements = table.tobytes()
    padding = bytes(-len(elements) % _WORD)
    data = len(table).to_bytes(_WORD, sys.byteorder) + bits + elements + padding
    array = spark.sql.catalyst.expressions.UnsafeArrayData()
    array.pointTo(bytearray(data), spark.unsafe.Platform.BYTE_ARRAY_OFFSET, len(data))
    return array


def _objects(spark: Any, values: Sequence[str]) -> Any:  # noqa: ANN401 - as above
    """Return texts as objects: each counts its characters once, and not again for each row."""
    text = spark.unsafe.types.UTF8String.fromString
    # One message for all: a message for each text takes a fifth of a millisecond.
    elements = text("\0".join(values)).split(text("\0"), -1)
    return spark.sql.catalyst.util.GenericArrayData(elements)
