"""Whose key is it, and in which partition, as Spark SQL: no row of it passes through Python.

Spark's ``xxhash64`` and a native ring hash a text alike, so the lookup of
`RadixIndex` (`ringpop_py.ring`) can be spelled in columns: the table, the points and the names are
array literals. Each literal is named once, because a plan is printed with every copy of one.
Spark's integers are signed, hence hashes are compared with their top bit flipped.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.client.client import RingSnapshot
from ringpop_py.dialect import NATIVE
from ringpop_py.errors import ConfigError, NoOwner
from ringpop_py.placing.keys import NOBODY, PARTITIONS_MAX
from ringpop_py.spark.keys import key_text, key_type
from ringpop_py.spark.options import quoted
from ringpop_py.spark.snapshot import KeyspaceSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from ringpop_py.ring.hashring import HashRing

SLOTS_MAX: Final = 1 << 16
"""The largest table that travels in a query plan; denser points share its slots."""
SPARK_PARTITIONS_MAX: Final = 1 << 20
POINTS_MAX: Final = 1 << 20
_SIGN: Final = -(1 << 63)
NONE: Final = -1


def ring_owner(column: Column | str, ring: HashRing | RingSnapshot) -> Column:
    """The name of the member that owns the key in *column*; NULL where the key is NULL.

    Equal to `HashRing.lookup` for every key; `ringpop_py.spark.keys` says what keys are. A column
    of another type fails the query that reads it.

    Raises:
        ConfigError: the ring is of the ``ringpop`` dialect, whose hash Spark does not have, or
            has more points than a query plan should carry.
        NoOwner: the ring is empty.
    """
    names = F.array(*map(F.lit, native_ring(ring).owners))
    return F.get(names, owner_index(column, ring))


def owner_index(column: Column | str, ring: HashRing | RingSnapshot) -> Column:
    """As `ring_owner`, but the owner's place in `HashRing.owners`: smaller to group and sort by."""
    text = key_text(column)
    return F.when(text.isNotNull(), _index_of(F.xxhash64(text), native_ring(ring)))


def native_ring(ring: HashRing | RingSnapshot) -> HashRing:
    """The ring itself, if Spark can hash for it.

    Raises:
        ConfigError: it is of another dialect.
    """
    found = ring.ring if isinstance(ring, RingSnapshot) else ring
    if found.dialect != NATIVE:
        raise ConfigError(
            f"this cluster speaks the {found.dialect.name!r} dialect, whose 32-bit hash Spark does"
            " not have; ring_owner and route need a cluster started with --dialect native"
        )
    return found


def _index_of(hashed: Column, ring: HashRing) -> Column:
    points_count = len(ring) * ring.points_count
    if points_count > POINTS_MAX:
        raise ConfigError(f"a query plan carries at most {POINTS_MAX} points, not {points_count}")
    radix = ring.radix_index(SLOTS_MAX)
    hashes = integers(radix.hashes.view(np.int64) ^ _SIGN, "bigint")
    # Past the last point the circle closes: one more owner, the first point's.
    owners_at = integers([*radix.owners_at, radix.owners_at[0]], "int")
    slot = F.shiftrightunsigned(hashed, radix.shift).cast("int")
    first = F.get(integers(radix.first, "int"), slot)
    flipped = hashed.bitwiseXOR(F.lit(_SIGN))
    near = F.slice(hashes, first + F.lit(1), F.lit(radix.scan_max))
    below = F.size(F.filter(near, lambda point: point < flipped))
    settled = F.get(integers(radix.settled, "int"), slot)
    return F.coalesce(settled, F.get(owners_at, first + below))


def integers(values: Iterable[int] | NDArray[Any], kind: str) -> Column:
    """An array literal, with NULL for the -1 that means none.

    It travels as one text that the optimizer parses once: a literal for each element would be a
    call to the JVM each.
    """
    text = ",".join("" if value == NONE and kind == "int" else str(value) for value in values)
    return F.split(F.lit(text), ",").try_cast(f"array<{kind}>")


# Partitions of keyspaces.


def ring_partition(column: Column | str, partitions: int) -> Column:
    """The partition of the key in *column* in a keyspace of so many; NULL where the key is NULL.

    Equal to `ringpop_py.placing.keys.partition_of` for every key.

    Raises:
        ConfigError: no keyspace has that many partitions.
    """
    if not 0 < partitions <= PARTITIONS_MAX:
        raise ConfigError(f"a keyspace has 1 to {PARTITIONS_MAX} partitions, not {partitions!r}")
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


# Rows with the rows of the same owner. Good for work that speaks to owners by hand
# (`foreachPartition`), or that writes a file an owner. `route` and the data source need it not:
# they send from every task to every owner, which is quicker than a shuffle first.


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
        raise ConfigError(
            f"partitions_per_owner is 1 or more, and all together {SPARK_PARTITIONS_MAX} at most;"
            f" not {partitions_per_owner!r} for {owners_count} owners"
        )
    if not owners_count:
        raise NoOwner("nobody owns anything, so there is nobody to partition by")
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
