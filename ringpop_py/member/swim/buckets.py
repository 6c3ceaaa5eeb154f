"""A member list in buckets: two lists are compared by their sums, without sending either.

A member's bucket is the top bits of the hash of its name. A bucket's sum is the sum of its
members' shares of the checksum. If the sums are equal, so are the rows, tombstones excepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim.memberlist import MemberList

BITS_MAX: Final = 16
WHOLE_MAX: Final = 64
"""A list of at most this many members is one bucket."""
BUCKET_MEMBERS_MAX: Final = 32
"""A longer list has this many members in a bucket on average, or down to half as many."""
SUM_MASK: Final = (1 << 64) - 1


def bits_for(member_count: int) -> int:
    """Return how many bits number the buckets of *member_count* members: 12 for 100,000."""
    if member_count <= WHOLE_MAX:
        return 0
    return min(BITS_MAX, ((member_count - 1) // BUCKET_MEMBERS_MAX).bit_length())


class Buckets:
    """A snapshot: the names of *members* in ``2**bits`` buckets, and the sums of the buckets.

    Attributes:
        names: those in each bucket, tombstones included, in the order of the list.
    """

    def __init__(self, members: MemberList, bits: int, dialect: Dialect) -> None:
        self.bits = bits
        self.sums = [0] * (1 << bits)
        self.names: list[list[str]] = [[] for _ in self.sums]
        shift = dialect.hash_bits - bits  # the top bits of a hash are the bucket
        hash_key, counted = dialect.hash_key, members.counted
        for member in members:
            name = member.name
            bucket = hash_key(name) >> shift
            self.names[bucket].append(name)
            self.sums[bucket] = (self.sums[bucket] + counted(name)) & SUM_MASK

    def names_in(self, buckets: Iterable[int]) -> list[str]:
        """Return the names in any of *buckets*."""
        return [name for bucket in buckets for name in self.names[bucket]]

    def differing(self, bits: int, first: int, sums: Sequence[int]) -> list[int]:
        """Return which of our buckets differ from another list, in order.

        Args:
            bits: of the other list's buckets, at most our own number of bits. If one of its
                buckets differs, all of ours that it covers count as differing.
            first: the other list's bucket that *sums* begin with.
        """
        width = 1 << self.bits - bits  # how many of our buckets one of theirs covers
        found: list[int] = []
        for coarse, theirs in enumerate(sums, first):
            ours = range(coarse * width, (coarse + 1) * width)
            if sum(self.sums[ours.start : ours.stop]) & SUM_MASK != theirs:
                found.extend(ours)
        return found
