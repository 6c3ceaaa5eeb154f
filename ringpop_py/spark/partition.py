"""In which partition of a keyspace is it, and who serves that, as Spark SQL expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.errors import ConfigError
from ringpop_py.placing.keys import NOBODY, PARTITIONS_MAX
from ringpop_py.spark.keys import key_text
from ringpop_py.spark.owner import NONE, integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from ringpop_py.spark.snapshot import KeyspaceSnapshot


def ring_partition(column: Column | str, partitions: int) -> Column:
    """The partition of the key in *column* in a keyspace of so many; NULL where the key is NULL.

    Equal to `ringpop_py.placing.keys.partition_of` for every key.

    Raises:
        ConfigError: no keyspace has that many partitions.
    """
    if not 0 < partitions <= PARTITIONS_MAX:
        message = f"a keyspace has 1 to {PARTITIONS_MAX} partitions, not {partitions!r}"
        raise ConfigError(message)
    text = key_text(column)
    number = F.pmod(F.xxhash64(text), F.lit(partitions)).cast("int")
    return F.when(text.isNotNull(), number)


def partition_owner(column: Column | str, keyspace: KeyspaceSnapshot) -> Column:
    """The name of the member that serves the partition of the key in *column*.

    NULL where the key is NULL, and where nobody served that partition.
    """
    names = F.array(*map(F.lit, keyspace.members)) if keyspace.members else F.lit(None)
    index_of = {name: index for index, name in enumerate(keyspace.members)} | {NOBODY: NONE}
    served_by = by_partition(column, [index_of[owner] for owner in keyspace.owners])
    return F.get(names.cast("array<string>"), served_by)


def by_partition(column: Column | str, numbers: Sequence[int]) -> Column:
    """The one of *numbers*, one a partition, that is at the partition of the key in *column*.

    NULL where the key is NULL, and where that number is `NONE`.
    """
    return F.get(integers(numbers, "int"), ring_partition(column, len(numbers)))
