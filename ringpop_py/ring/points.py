"""The points of a ring: where its members stand on the circle of hashes, in order."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ringpop_py.dialect import Dialect


class Points(NamedTuple):
    """Points ordered by hash, then by the index of their owner among all owners, sorted."""

    hashes: NDArray[np.uint64]
    owners_at: NDArray[np.int32]

    def owners_ending(self, edges: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the index of the owner at each of *edges*; quick if they ascend."""
        return self.owners_at.take(self.hashes.searchsorted(edges), mode="wrap")

    def without(
        self, leaving: Sequence[str], owners: Sequence[str], joining: Sequence[str]
    ) -> Points:
        """Return the points that stay, by the indexes of owners once all have come and gone.

        Args:
            owners: whose points these are.
        """
        stays = np.ones(len(owners), bool)
        step = np.zeros(len(owners) + 1, np.int32)
        for owner in leaving:
            index = bisect_left(owners, owner)
            stays[index] = False
            step[index + 1] -= 1
        for owner in joining:
            step[bisect_left(owners, owner)] += 1
        renumbered = np.arange(len(owners), dtype=np.int32) + np.cumsum(step[:-1])
        hashes, owners_at = self
        if leaving:
            kept = stays[owners_at]
            hashes, owners_at = hashes[kept], owners_at[kept]
        return Points(hashes, renumbered.astype(np.int32)[owners_at])

    def merged(self, added: Points) -> Points:
        """Return these points and those *added*, whose owners have the same indexes."""
        at = self.hashes.searchsorted(added.hashes)
        hashes = np.insert(self.hashes, at, added.hashes)
        owners_at = np.insert(self.owners_at, at, added.owners_at)
        tied = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(tied):
            tied = np.union1d(tied, tied + 1)
            owners_at[tied] = owners_at[tied[np.lexsort((owners_at[tied], hashes[tied]))]]
        return Points(hashes, owners_at)


def points_of(
    owners: Sequence[str], identities: Mapping[str, str], dialect: Dialect, points_count: int
) -> Points:
    """Return the points of *owners*, which are sorted; a point has its owner's index among them."""
    name, hash_key = dialect.point_name, dialect.hash_key
    hashes = np.fromiter(
        (
            hash_key(name(identities[owner], index, is_address=identities[owner] == owner))
            for owner in owners
            for index in range(points_count)
        ),
        np.uint64,
        len(owners) * points_count,
    )
    order = np.argsort(hashes, kind="stable")  # stable: equal hashes keep the order of owners
    return Points(hashes[order], (order // points_count).astype(np.int32))


def shares_of(
    edges: NDArray[np.uint64], groups: NDArray[Any], groups_count: int, hash_bits: int
) -> list[float]:
    """Return how much of the circle belongs to each group; edge *i* ends a part of group *i*."""
    if not len(edges):
        return [0.0] * groups_count
    lengths = (edges - np.roll(edges, 1)) & np.uint64((1 << hash_bits) - 1)
    # In two halves: floats hold sums of 32-bit numbers exactly, but one arc may be 2**64 long.
    high, low = lengths >> np.uint64(32), lengths & np.uint64(0xFFFFFFFF)
    if edges[0] == edges[-1]:
        high[0] = 1 << (hash_bits - 32)
    return cast(
        "list[float]",
        (
            np.ldexp(np.bincount(groups, high, groups_count), 32 - hash_bits)
            + np.ldexp(np.bincount(groups, low, groups_count), -hash_bits)
        ).tolist(),
    )
