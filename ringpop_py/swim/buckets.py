"""A member list in buckets, so that two lists are compared without sending either.

A member's bucket is the top bits of the hash of its name; a bucket's sum is the sum of what its
members count for in the checksum. Where the sums are equal, so are the rows, but for tombstones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.dialect import Dialect
    from ringpop_py.swim.memberlist import MemberList

BITS_MAX: Final = 16
WHOLE_MAX: Final = 64
"""Up to so many members are one bucket."""
BUCKET_MEMBERS_MAX: Final = 32
"""Beyond, a bucket holds this many on average, or down to half as many."""
SUM_MASK: Final = (1 << 64) - 1


def bits_for(member_count: int) -> int:
    """How many bits tell the buckets of so many members apart: 12 for 100,000."""
    if member_count <= WHOLE_MAX:
        return 0
    return min(BITS_MAX, ((member_count - 1) // BUCKET_MEMBERS_MAX).bit_length())


class Buckets:
    """The names of *members* in ``2**bits`` buckets, and their sums, as they are just now."""

    def __init__(self, members: MemberList, bits: int, dialect: Dialect) -> None:
        self.bits = bits
        self.sums = [0] * (1 << bits)
        self._names: list[list[str]] = [[] for _ in self.sums]
        shift = dialect.hash_bits - bits
        hash_key, counted = dialect.hash_key, members.counted
        for member in members:
            name = member.name
            bucket = hash_key(name) >> shift
            self._names[bucket].append(name)
            self.sums[bucket] = (self.sums[bucket] + counted(name)) & SUM_MASK

    def names(self, bucket: int) -> list[str]:
        """Who is in *bucket*, tombstones too, in the order of the list."""
        return self._names[bucket]

    def names_in(self, buckets: Iterable[int]) -> list[str]:
        """Who is in one of *buckets*."""
        return [name for bucket in buckets for name in self._names[bucket]]

    def differing(self, bits: int, first: int, sums: Sequence[int]) -> list[int]:
        """Which of our buckets differ from another list, in order.

        Args:
            bits: of the other's buckets, no more than ours: each of them is several of ours, and
                all of those differ where it does.
            first: the bucket of the other that *sums* begin with.
        """
        width = 1 << self.bits - bits
        found: list[int] = []
        for coarse, theirs in enumerate(sums, first):
            ours = range(coarse * width, (coarse + 1) * width)
            if sum(self.sums[ours.start : ours.stop]) & SUM_MASK != theirs:
                found.extend(ours)
        return found
