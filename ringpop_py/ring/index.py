"""A table over the top bits of hashes, which finds owners without a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringpop_py.ring.points import Points

SLOTS_PER_POINT: Final = 8
_BATCH: Final = 1 << 15
"""Hashes looked up at a time, so that intermediate arrays stay in the processor's cache."""
_SPLIT: Final = -1


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

    def owner_indexes_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the index of the owner of each hash; it takes a few nanoseconds each."""
        found = np.empty(len(hashes), np.int32)
        for start in range(0, len(hashes), _BATCH):
            batch = hashes[start : start + _BATCH]
            # Signed, because NumPy uses such indexes without a copy; the top bit is clear.
            slots = (batch >> np.uint64(self.shift)).view(np.int64)
            owners = found[start : start + _BATCH]
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
