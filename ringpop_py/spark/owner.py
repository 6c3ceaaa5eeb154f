"""The owner and the partition of a key as Spark SQL: no row passes through Python.

Spark's ``xxhash64`` and a native ring give a text the same hash, so the lookup of `RadixIndex`
(`ringpop_py.ring`) can be written as columns: the table, the points and the names are array
literals. Each literal is used once, because a printed plan repeats it for each use.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle
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
    from collections.abc import Iterable, Iterator, Sequence

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
    """Return the name of the member that owns the key in *column*; NULL if the key is NULL.

    The result equals `HashRing.lookup`. For types of keys see `ringpop_py.spark.keys`; a column of
    another type fails the query.

    Raises:
        ConfigError: the ring is of the ``ringpop`` dialect, whose hash Spark does not have, or
            has more points than a query plan should carry.
        NoOwner: the ring is empty.
    """
    names = F.array(*map(F.lit, native_ring(ring).owners))
    return F.get(names, owner_index(column, ring))


def owner_index(column: Column | str, ring: HashRing | RingSnapshot) -> Column:
    """Return, as `ring_owner`, the owner's index in `HashRing.owners`: smaller to group by."""
    text = key_text(column)
    return F.when(text.isNotNull(), _index_of(F.xxhash64(text), native_ring(ring)))


def native_ring(ring: HashRing | RingSnapshot) -> HashRing:
    """Return the ring itself. Raises ConfigError if Spark does not have its hash."""
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
    hashes = _integers(radix.hashes.view(np.int64) ^ _SIGN, "bigint")
    # After the last point the circle closes, so the first point's owner comes once more.
    owners_at = _integers([*radix.owners_at, radix.owners_at[0]], "int")
    slot = F.shiftrightunsigned(hashed, radix.shift).cast("int")
    first = F.get(_integers(radix.first, "int"), slot)
    # Spark's integers are signed: with the top bit flipped, they compare as unsigned ones do.
    flipped = hashed.bitwiseXOR(F.lit(_SIGN))
    near = F.slice(hashes, first + F.lit(1), F.lit(radix.scan_max))
    below = F.size(F.filter(near, lambda point: point < flipped))
    settled = F.get(_integers(radix.settled, "int"), slot)
    return F.coalesce(settled, F.get(owners_at, first + below))


def _integers(values: Iterable[int] | NDArray[Any], kind: str) -> Column:
    # One text, which the optimizer parses once; a literal for each element costs a call to the JVM.
    text = ",".join("" if value == NONE and kind == "int" else str(value) for value in values)
    return F.split(F.lit(text), ",").try_cast(f"array<{kind}>")


# Partitions of keyspaces.


def ring_partition(column: Column | str, partitions: int) -> Column:
    """Return the partition of the key in *column*, of so many; NULL if the key is NULL.

    The result equals `ringpop_py.placing.keys.partition_of`.

    Raises:
        ConfigError: no keyspace has that many partitions.
    """
    if not 0 < partitions <= PARTITIONS_MAX:
        raise ConfigError(f"a keyspace has 1 to {PARTITIONS_MAX} partitions, not {partitions!r}")
    text = key_text(column)
    number = F.pmod(F.xxhash64(text), F.lit(partitions)).cast("int")
    return F.when(text.isNotNull(), number)


def partition_owner(column: Column | str, keyspace: KeyspaceSnapshot) -> Column:
    """Return the name of the member that serves the partition of the key in *column*.

    It is NULL if the key is NULL, or if no member served that partition.
    """
    names = F.array(*map(F.lit, keyspace.members)) if keyspace.members else F.lit(None)
    index_of = {name: index for index, name in enumerate(keyspace.members)} | {NOBODY: NONE}
    served_by = _by_partition(column, [index_of[owner] for owner in keyspace.owners])
    return F.get(names.cast("array<string>"), served_by)


def _by_partition(column: Column | str, numbers: Sequence[int]) -> Column:
    # One number for each partition; `NONE` becomes NULL.
    return F.get(_integers(numbers, "int"), ring_partition(column, len(numbers)))


# Rows together with the rows of the same owner: for work that calls owners itself
# (`foreachPartition`), or that writes a file for each owner. `route` and the data source do not
# need it: they send from every task to every owner, which is quicker than a shuffle first.


def repartition_by_owner(
    df: DataFrame,
    key: str,
    ring: HashRing | RingSnapshot | KeyspaceSnapshot,
    *,
    partitions_per_owner: int = 1,
) -> DataFrame:
    """Return *df* with the rows of one owner in each Spark partition; equal keys stay together.

    With *n* `partitions_per_owner`, the Spark partitions *n* * *i* to *n* * *i* + *n* - 1 belong
    to the *i*-th name in `HashRing.owners` or `KeyspaceSnapshot.members`. One more follows for
    rows without an owner: those without a key, and those of partitions that no member served. All
    rows of one partition of a keyspace are in one Spark partition.

    Raises:
        ConfigError: the column cannot hold keys, or there would be too many Spark partitions.
        NoOwner: there are no owners.
    """
    key_type(df.schema, key)
    owners_count = len(ring.members if isinstance(ring, KeyspaceSnapshot) else native_ring(ring))
    count = owners_count * partitions_per_owner + 1
    if not (partitions_per_owner > 0 and count <= SPARK_PARTITIONS_MAX):
        raise ConfigError(
            f"partitions_per_owner is 1 or more, and all together {SPARK_PARTITIONS_MAX} at most;"
            f" not {partitions_per_owner!r} for {owners_count} owners"
        )
    if not owners_count:
        raise NoOwner("nothing has an owner, so rows cannot be partitioned by owner")
    if isinstance(ring, KeyspaceSnapshot):
        place = _by_partition(quoted(key), _places(ring, partitions_per_owner))
    else:
        place = owner_index(quoted(key), ring)
        if partitions_per_owner > 1:
            # An owner has its keys by the upper bits of this hash, so the lower ones spread them.
            hashed = F.xxhash64(key_text(quoted(key)))
            spread = F.pmod(hashed, F.lit(partitions_per_owner)).cast("int")
            place = place * F.lit(partitions_per_owner) + spread
    return df.repartitionById(count, F.coalesce(place, F.lit(count - 1)))


def _places(keyspace: KeyspaceSnapshot, per_owner: int) -> list[int]:
    # A Spark partition for each partition: those of its owner in turn.
    index_of = {name: index for index, name in enumerate(keyspace.members)}
    turn_of: defaultdict[str, Iterator[int]] = defaultdict(lambda: cycle(range(per_owner)))
    return [
        NONE if owner == NOBODY else index_of[owner] * per_owner + next(turn_of[owner])
        for owner in keyspace.owners
    ]
