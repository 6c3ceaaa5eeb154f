"""In which partition of a keyspace is it, as a Spark SQL expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.errors import ConfigError
from ringpop_py.partitions.keys import PARTITIONS_MAX
from ringpop_py.spark.keys import key_text

if TYPE_CHECKING:
    from pyspark.sql import Column


def ring_partition(column: Column | str, partitions: int) -> Column:
    """The partition of the key in *column* in a keyspace of so many; NULL where the key is NULL.

    Equal to `ringpop_py.partitions.keys.partition_of` for every key.

    Raises:
        ConfigError: no keyspace has that many partitions.
    """
    if not 0 < partitions <= PARTITIONS_MAX:
        message = f"a keyspace has 1 to {PARTITIONS_MAX} partitions, not {partitions!r}"
        raise ConfigError(message)
    text = key_text(column)
    number = F.pmod(F.xxhash64(text), F.lit(partitions)).cast("int")
    return F.when(text.isNotNull(), number)
