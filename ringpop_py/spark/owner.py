"""The owner and the partition of a key as Spark SQL: no row passes through Python.

Spark's ``xxhash64`` and a native ring give a text the same hash, so the lookup of `RadixIndex`
(`ringpop_py.member.ring`) can be written as columns, with its tables as literals
(`ringpop_py.spark.tables`).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.base.arguments import checked_kind
from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.errors import ConfigError, NoOwner
from ringpop_py.client.calls import RingSnapshot
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark.keys import TEXT, key_text, key_type
from ringpop_py.spark.options import quoted
from ringpop_py.spark.snapshot import KeyspaceSnapshot
from ringpop_py.spark.tables import driver, integers, texts
from ringpop_py.state.placement.keys import NOBODY, PARTITIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from ringpop_py.member.ring.points import RadixIndex

SLOTS_MAX: Final = 1 << 15
"""The largest table of slots in a query plan, which the caches of a processor hold; denser points
share its slots."""
PRINTED_SLOTS_MAX: Final = 1 << 16
"""The largest table of slots in a plan that has its tables as text."""
COMPARED_MAX: Final = 16
"""The most comparisons in a query plan, one for each point that a slot may have."""
HASH_TAG: Final = r"^[^{]*+\{([^}]++)\}"
"""The rule of `hash_tag` as a pattern of Java; a key without a tag does not match."""
SPARK_PARTITIONS_MAX: Final = 1 << 20
POINTS_MAX: Final = 1 << 20
_LAST: Final = (1 << 63) - 1
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
    index = _index_of(column, native_ring(ring))
    return F.get(texts(native_ring(ring).owners), index).alias("owner")


def owner_index(column: Column | str, ring: HashRing | RingSnapshot) -> Column:
    """Return the owner's index in `HashRing.owners`, smaller to group by; see `ring_owner`."""
    return _index_of(column, native_ring(ring)).alias("owner_index")


def native_ring(ring: HashRing | RingSnapshot) -> HashRing:
    """Return the ring itself. Raises ConfigError if Spark lacks its hash, or it is no ring."""
    found = ring.ring if isinstance(ring, RingSnapshot) else ring
    checked_kind(found, HashRing, "ring", "what ring_snapshot returns")
    if found.dialect != NATIVE:
        raise ConfigError(
            f"this cluster speaks the {found.dialect.name!r} dialect, whose 32-bit hash Spark does"
            " not have; ring_owner and route need a cluster started with --dialect native"
        )
    return found


def _index_of(column: Column | str, ring: HashRing) -> Column:
    points_count = len(ring) * ring.points_count
    if points_count > POINTS_MAX:
        raise ConfigError(f"a query plan carries at most {POINTS_MAX} points, not {points_count}")
    printed = driver() is None
    radix = ring.radix_index(PRINTED_SLOTS_MAX if printed else SLOTS_MAX)
    compared = max(radix.scan_max, 2)  # Spark computes a hash once if it is used twice, always
    points = _signed(radix, compared)
    hashed = F.xxhash64((F.col(column) if isinstance(column, str) else column).cast(TEXT))
    slot = F.shiftrightunsigned(hashed, radix.shift).cast("int")
    # Only a key has a slot, and without a slot there is no owner. The hash itself is used outside
    # of conditions, because Spark does not share what is computed within one.
    slot = F.when(key_text(column).isNotNull(), slot)
    first = F.get(integers(points.first, "int"), slot)
    hashes = integers(points.hashes, "bigint")
    owners_at = integers(points.owners_at, "int")
    if compared <= COMPARED_MAX and not printed:
        place = first
        for number in range(compared):
            place = place + (F.get(hashes, first + F.lit(number)) < hashed).cast("int")
        return F.get(owners_at, place)
    near = F.slice(hashes, first + F.lit(1), F.lit(compared))
    below = F.size(F.filter(near, lambda point: point < hashed))
    settled = F.nullif(F.get(integers(radix.settled, "int"), slot), F.lit(NONE))
    return F.coalesce(settled, F.get(owners_at, first + below))


class _Points(NamedTuple):
    first: NDArray[np.int32]
    hashes: NDArray[np.int64]
    owners_at: NDArray[np.int32]


def _signed(radix: RadixIndex, gap: int) -> _Points:
    # Spark's integers are signed. So the circle has two runs here, the hashes below 2**63 and
    # those from there on, which are negative; within each the order is the same. After each run
    # come *gap* points above all hashes, so a lookup ends there, with the owner that follows.
    half = int(np.searchsorted(radix.hashes, np.uint64(1 << 63)))
    low, high = np.split(radix.hashes.view(np.int64), [half])
    low_owners, high_owners = np.split(radix.owners_at, [half])
    above = np.full(gap, _LAST)
    first = radix.first.copy()
    first[len(first) // 2 :] += gap
    return _Points(
        first,
        np.concatenate([low, above, high, above]),
        np.concatenate(
            [
                low_owners,
                np.full(gap, radix.owners_at[half % len(radix.owners_at)]),
                high_owners,
                np.full(gap, radix.owners_at[0]),
            ]
        ),
    )


# Partitions of keyspaces.


def ring_partition(column: Column | str, partitions: int, *, hash_tags: bool = False) -> Column:
    """Return the partition, out of *partitions*, of the key in *column*; NULL if the key is NULL.

    The result equals `Keyspace.partition_of`.

    Args:
        hash_tags: whether the keyspace has hash tags.

    Raises:
        ConfigError: no keyspace has that many partitions.
    """
    if not 0 < partitions <= PARTITIONS_MAX:
        raise ConfigError(f"a keyspace has 1 to {PARTITIONS_MAX} partitions, not {partitions!r}")
    return _partition_of(column, partitions, hash_tags=hash_tags).alias("partition")


def _partition_of(column: Column | str, partitions: int, *, hash_tags: bool) -> Column:
    text = key_text(column)
    if hash_tags:
        tag = F.regexp_extract(text, HASH_TAG, 1)
        text = F.when(tag == "", text).otherwise(tag)
    number = F.pmod(F.xxhash64(text), F.lit(partitions)).cast("int")
    return F.when(text.isNotNull(), number)


def partition_owner(column: Column | str, keyspace: KeyspaceSnapshot) -> Column:
    """Return the name of the member that serves the partition of the key in *column*.

    It is NULL if the key is NULL, or if no member served that partition. Raises ConfigError if
    *keyspace* is no `KeyspaceSnapshot`.
    """
    checked_kind(keyspace, KeyspaceSnapshot, "keyspace", "what keyspace_snapshot returns")
    index_of = {name: index for index, name in enumerate(keyspace.members)} | {NOBODY: NONE}
    numbers = [index_of[owner] for owner in keyspace.owners]
    served_by = _by_partition(column, numbers, keyspace)
    return F.get(texts(keyspace.members), served_by).alias("owner")


def _by_partition(
    column: Column | str, numbers: Sequence[int], keyspace: KeyspaceSnapshot
) -> Column:
    partition = _partition_of(column, len(numbers), hash_tags=keyspace.hash_tags)
    return F.get(integers(numbers, "int"), partition)


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
        places = _by_partition(quoted(key), _places(ring, partitions_per_owner), ring)
        place = F.nullif(places, F.lit(NONE))
    else:
        place = _index_of(quoted(key), native_ring(ring))
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
