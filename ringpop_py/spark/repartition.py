"""Rows with the rows of the same owner: each Spark partition holds the keys of one member.

Good for work that speaks to owners by hand (`foreachPartition`), or that writes a file an owner.
`route` and the data source need it not: they send from every task to every owner, which is quicker
than a shuffle first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.errors import ConfigError, NoOwner
from ringpop_py.placing.keys import NOBODY
from ringpop_py.spark.keys import key_text, key_type
from ringpop_py.spark.options import quoted
from ringpop_py.spark.owner import NONE, by_partition, native_ring, owner_index
from ringpop_py.spark.snapshot import KeyspaceSnapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ringpop_py.client.client import RingSnapshot
    from ringpop_py.ring.hashring import HashRing

SPARK_PARTITIONS_MAX: Final = 1 << 20


def repartition_by_owner(
    df: DataFrame,
    key: str,
    ring: HashRing | RingSnapshot | KeyspaceSnapshot,
    *,
    partitions_per_owner: int = 1,
) -> DataFrame:
    """*df* with the rows of one owner in each Spark partition; equal keys stay together.

    With *n* `partitions_per_owner`, the Spark partitions *n* * *i* to *n* * *i* + *n* - 1 belong
    to the *i*-th name in `HashRing.owners` or `KeyspaceSnapshot.members`. After these comes one for
    rows that nobody owns: those without a key, and in partitions that nobody served. Of a
    keyspace, all rows of a partition are in one Spark partition.

    Raises:
        ConfigError: the column cannot hold keys, or there would be too many Spark partitions.
        NoOwner: there are no owners.
    """
    key_type(df.schema, key)
    if isinstance(ring, KeyspaceSnapshot):
        owners_count = len(ring.members)
    else:
        owners_count = len(native_ring(ring))
    count = owners_count * partitions_per_owner + 1
    if not (partitions_per_owner > 0 and count <= SPARK_PARTITIONS_MAX):
        message = (
            f"partitions_per_owner is 1 or more, and all together {SPARK_PARTITIONS_MAX} at most;"
            f" not {partitions_per_owner!r} for {owners_count} owners"
        )
        raise ConfigError(message)
    if not owners_count:
        message = "nobody owns anything, so there is nobody to partition by"
        raise NoOwner(message)
    if isinstance(ring, KeyspaceSnapshot):
        place = by_partition(quoted(key), _places(ring, partitions_per_owner))
    else:
        place = _place(quoted(key), ring, partitions_per_owner)
    return df.repartitionById(count, F.coalesce(place, F.lit(count - 1)))


def _place(column: str, ring: HashRing | RingSnapshot, per_owner: int) -> Column:
    owner = owner_index(column, ring)
    if per_owner == 1:
        return owner
    # An owner has its keys by the upper bits of this hash, so the lower ones spread them.
    spread = F.pmod(F.xxhash64(key_text(column)), F.lit(per_owner)).cast("int")
    return owner * F.lit(per_owner) + spread


def _places(keyspace: KeyspaceSnapshot, per_owner: int) -> list[int]:
    """For each partition of *keyspace* a Spark partition: those of an owner in turn."""
    index_of = {name: index for index, name in enumerate(keyspace.members)}
    had: Counter[str] = Counter()
    places = []
    for owner in keyspace.owners:
        if owner == NOBODY:
            places.append(NONE)
        else:
            places.append(index_of[owner] * per_owner + had[owner] % per_owner)
            had[owner] += 1
    return places
