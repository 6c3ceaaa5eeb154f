"""The points of a ring, in order, and a table over them that finds owners without a search."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ringpop_py.base.dialect import Dialect


SLOTS_PER_POINT: Final = 8
_BATCH: Final = 1 << 15
"""Hashes looked up at a time, so that intermediate arrays stay in the processor's cache."""
_SPLIT: Final = -1


class Points(NamedTuple):
    """Points ordered by hash, then by the index of their owner among all owners, sorted.

    The arrays are read-only.
    """

    hashes: NDArray[np.uint64]
    owners_at: NDArray[np.int32]

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], owners_at: NDArray[np.int32]) -> Points:
        """Return points with those arrays, which become read-only."""
        hashes.flags.writeable = owners_at.flags.writeable = False
        return cls(hashes, owners_at)

    def following(self, position: int) -> int:
        """Return the number of the first point at or after *position*; there is one at least."""
        return int(self.hashes.searchsorted(np.uint64(position))) % len(self.hashes)

    def owners_ending(self, edges: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the index of the owner at each of *edges*; quick if they ascend."""
        return self.owners_at.take(self.hashes.searchsorted(edges), mode="wrap")

    def renumbered(self, owners: Sequence[str], among: Sequence[str]) -> Points:
        """Return these points of *owners* with the indexes that these have *among* others."""
        indexes = np.array([bisect_left(among, owner) for owner in owners], np.int32)
        return Points.of(self.hashes, indexes[self.owners_at])

    def without(
        self, leaving: Sequence[str], owners: Sequence[str], joining: Sequence[str]
    ) -> Points:
        """Return the points that stay, with the indexes that owners have after all changes.

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
        return Points.of(hashes, renumbered.astype(np.int32)[owners_at])

    def merged(self, added: Points) -> Points:
        """Return these points and those *added*, whose owners have the same indexes."""
        at = self.hashes.searchsorted(added.hashes)
        hashes = np.insert(self.hashes, at, added.hashes)
        owners_at = np.insert(self.owners_at, at, added.owners_at)
        # Points of one hash stand by owner, so that the ring does not depend on its history.
        tied = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(tied):
            tied = np.union1d(tied, tied + 1)
            owners_at[tied] = owners_at[tied[np.lexsort((owners_at[tied], hashes[tied]))]]
        return Points.of(hashes, owners_at)


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
    return Points.of(hashes[order], (order // points_count).astype(np.int32))


def array_of(hashes: Iterable[int], count: int) -> NDArray[np.uint64]:
    """Return *count* hashes as an array."""
    return np.fromiter(hashes, np.uint64, count)


def places_by(indexes: NDArray[np.int32]) -> list[list[int]]:
    """Return the places of each of the *indexes*, in their order."""
    order = np.argsort(indexes, kind="stable")
    ends = np.flatnonzero(np.diff(indexes[order], append=-1)) + 1
    return [part.tolist() for part in np.split(order, ends[:-1]) if len(part)]


def share_moved(before: Points, after: Points, hash_bits: int) -> float:
    """Return the share of all positions whose owners have other indexes in *after*."""
    edges = np.union1d(before.hashes, after.hashes)
    have_moved = before.owners_ending(edges) != after.owners_ending(edges)
    return shares_of(edges, have_moved, 2, hash_bits)[1]


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


# The table.


@dataclass(frozen=True, eq=False, slots=True)
class RadixIndex:
    """A ring's points with a table over the top bits of a hash: lookups without a search.

    For a hash ``h`` below ``2**hash_bits``, with all shifts and comparisons unsigned::

        position = first[h >> shift]
        position += how many of the `scan_max` hashes from there on are below h
        owner = owners[owners_at[position % len(hashes)]]

    Positions after the last hash count as not below. If ``settled[h >> shift]`` is not -1, it is
    already the owner's index. The arrays are read-only.

    Attributes:
        shift: how many low bits of a hash the table ignores.
        first: for each slot, the position of the first point at or after the slot's start.
        settled: for each slot, the index of the owner of all of it, or -1 if points split it.
        hashes: the hashes of the points, ascending.
        owners_at: the index in ``owners`` of each point's owner.
        scan_max: the most points that share a slot.
        owners: the names behind the indexes, sorted.
    """

    shift: int
    first: NDArray[np.int32]
    settled: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    owners_at: NDArray[np.int32]
    scan_max: int
    owners: tuple[str, ...]

    def owners_of_slots(self) -> list[str | None]:
        """Return the owner of each slot; None for one that points split."""
        names = np.array([*self.owners, None], dtype=object)  # index -1 takes the last
        return cast("list[str | None]", names[self.settled].tolist())

    def owner_indexes_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the index of the owner of each hash; it takes a few nanoseconds each."""
        found = np.empty(len(hashes), np.int32)
        for start in range(0, len(hashes), _BATCH):
            batch = hashes[start : start + _BATCH]
            # Signed, because NumPy uses such indexes without a copy; the top bit is clear.
            slots = (batch >> np.uint64(self.shift)).view(np.int64)
            owners = found[start : start + _BATCH]
            # Not the default mode, which buffers *out*; no slot is out of range.
            np.take(self.settled, slots, out=owners, mode="clip")
            split = np.flatnonzero(owners == _SPLIT)
            owners[split] = self.owners_at[self._points(batch[split], slots[split])]
        return found

    def _points(self, hashes: NDArray[np.uint64], slots: NDArray[np.int64]) -> NDArray[np.int32]:
        last = len(self.hashes) - 1
        points = self.first[slots]
        for _ in range(self.scan_max):
            # After the last point the comparison must not repeat, or it would count twice.
            points += (self.hashes.take(points, mode="clip") < hashes) & (points <= last)
        points[points > last] = 0
        return points


def index_of(points: Points, owners: tuple[str, ...], hash_bits: int, slots_max: int) -> RadixIndex:
    """Return the index of *points*, one at least, with a table of at most *slots_max* slots."""
    hashes, owners_at = points
    slots_count = slots_for(len(hashes), slots_max)
    shift = hash_bits - (slots_count.bit_length() - 1)
    slot_of_point = (hashes >> np.uint64(shift)).view(np.int64)
    points_in = np.bincount(slot_of_point, minlength=slots_count).astype(np.int32)
    first = np.cumsum(points_in, dtype=np.int32) - points_in
    settled = owners_at.take(first, mode="wrap")
    settled[points_in > 0] = _SPLIT
    first.flags.writeable = settled.flags.writeable = False
    return RadixIndex(
        shift=shift,
        first=first,
        settled=settled,
        hashes=hashes,
        owners_at=owners_at,
        scan_max=int(points_in.max()),
        owners=owners,
    )


def slots_for(points_count: int, slots_max: int) -> int:
    """Return a power of two, at least two: slots for that many points within *slots_max*."""
    assert slots_max > 1
    wanted = 1 << (points_count * SLOTS_PER_POINT).bit_length()
    return min(wanted, 1 << (slots_max.bit_length() - 1))
