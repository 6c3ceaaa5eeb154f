"""The table of members, the rotation in which they are probed, and the checksum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedSet

from ringpop_py.member.swim.checksum import checksum_for
from ringpop_py.member.swim.member import Status

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim.member import Member


DAMPED_SERVING_MIN: Final = 3
"""If fewer members could own keys, damping leaves out no member."""


class MemberList:
    """Rows by name, ours included, and which members own keys and hold partitions.

    The rotation is SWIM's: it holds every pingable member once a round and is shuffled anew each
    round. Newcomers are inserted at random, so each is probed within two rounds of its arrival.

    Args:
        damp_share: the share of the members that damping may leave out of the ring. It must be
            the same on all nodes; otherwise equal lists do not mean equal rings.
    """

    def __init__(
        self, local: Member, *, dialect: Dialect, rng: random.Random, damp_share: float = 0.1
    ) -> None:
        self._local_name = local.name
        self._extends = dialect.extends
        self._rng = rng
        self._damp_share = damp_share
        self._members: dict[str, Member] = {}
        self._rotation: list[str] = []
        self._next = 0
        self._checksum = checksum_for(dialect)
        self.damped: SortedSet = SortedSet()
        self.pingable_count = 0  # other members that are reachable
        self.away: SortedSet = SortedSet()  # of those that serve
        self.serving_count = 0  # all that could hold partitions: reachable and not draining
        self.put(local)

    @property
    def local(self) -> Member:
        """Our own row."""
        return self._members[self._local_name]

    @property
    def checksum(self) -> int:
        """A number that is equal on two nodes if their lists are, and otherwise only by chance."""
        return self._checksum.value

    def counted(self, name: str) -> int:
        """Return the share of the row of *name* in the checksum; 0 if it does not count."""
        return self._checksum.counted(name)

    def get(self, name: str) -> Member | None:
        """Return the row of *name*, if there is one."""
        return self._members.get(name)

    def is_pingable(self, member: Member) -> bool:
        """Return whether *member* is reachable and not ourselves."""
        return member.status.reachable and member.name != self._local_name

    def put(self, member: Member) -> None:
        """Add or replace the row of ``member.name``."""
        before = self._members.get(member.name)
        self._members[member.name] = member
        self._checksum.replace(member.name, member)
        if before is not None:
            self._count(before, -1)
        self._count(member, 1)
        if before is None:
            index = self._rng.randint(0, len(self._rotation))
            self._rotation.insert(index, member.name)
            self._next += index < self._next  # otherwise the last target would be probed again

    def remove(self, name: str) -> None:
        """Forget *name*, which must be known and not ourselves."""
        assert name != self._local_name
        before = self._members.pop(name)
        self._count(before, -1)
        self._checksum.replace(name, None)
        index = self._rotation.index(name)
        del self._rotation[index]
        if index < self._next:
            self._next -= 1

    # Which members are in the ring.

    def in_ring(self, member: Member) -> bool:
        """Return whether *member*, a row of this list, owns keys.

        It depends on the rows alone, so equal lists mean equal rings. O(log) of the damped members.
        """
        if self.leaves_out_away and member.away:
            return False
        return self._serves(member) and not self._is_damped_out(member, self.damped_max)

    def holds(self, member: Member) -> bool:
        """As `in_ring`, of partitions: a member whose application is away goes on holding them."""
        damped_max = self._damped_max_of(self.serving_count)
        return self._serves(member) and not self._is_damped_out(member, damped_max)

    @property
    def leaves_out_away(self) -> bool:
        """Whether members whose applications are away own no keys: some are away, and not all.

        If all are, an application that comes back soon is all that requests can wait for.
        """
        return self._extends and 0 < len(self.away) < self.serving_count

    @property
    def left_out(self) -> Sequence[str]:
        """The members that own no keys or hold no partitions, for a reason besides their own row.

        They are the first damped ones by name, and those whose applications are away.
        """
        damped: Sequence[str] = self.damped[: self._damped_max_of(self.serving_count)]
        return (*damped, *self.away) if self.away else damped

    @property
    def damped_max(self) -> int:
        """The number of members that damping may leave out of the ring.

        It is a share of those that could own keys, and at least one; but it is 0 if they are so
        few that the ring could become empty.
        """
        away_count = len(self.away) if self.leaves_out_away else 0
        return self._damped_max_of(self.serving_count - away_count)

    def _damped_max_of(self, count: int) -> int:
        return 0 if count < DAMPED_SERVING_MIN else max(1, math.floor(self._damp_share * count))

    def _is_damped_out(self, member: Member, damped_max: int) -> bool:
        damped = member.damped and self._extends
        return damped and self.damped.bisect_left(member.name) < damped_max

    def _serves(self, member: Member) -> bool:
        return member.status.reachable and not (self._extends and member.draining)

    def _count(self, member: Member, by: int) -> None:
        """Add *member* to the counts that it belongs to (*by* is 1), or remove it (-1)."""
        self.pingable_count += by * self.is_pingable(member)
        serves = self._serves(member)
        self.serving_count += by * serves
        if serves and member.away:
            (self.away.add if by > 0 else self.away.remove)(member.name)
        if member.damped and member.status <= Status.FAULTY:
            (self.damped.add if by > 0 else self.damped.remove)(member.name)

    # Which members to ask.

    def next_to_probe(self) -> Member | None:
        """Return the next pingable member of the rotation; None if there is none."""
        for _ in range(2 * len(self._rotation)):  # the rest of this round, and all of the next
            if self._next >= len(self._rotation):
                self._next = 0
                self._rng.shuffle(self._rotation)
            member = self._members[self._rotation[self._next]]
            self._next += 1
            if self.is_pingable(member):
                return member
        return None

    def random_pingable(self, count: int, *, but: str | None = None) -> list[Member]:
        """Draw up to *count* different pingable members other than *but*."""
        fitting = [m for m in self if m.name != but and self.is_pingable(m)]
        return self._rng.sample(fitting, min(count, len(fitting)))

    def __iter__(self) -> Iterator[Member]:
        """Iterate over all rows, in order of arrival."""
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def _check(self) -> None:
        """Check the invariants (for tests)."""
        assert sorted(self._rotation) == sorted(self._members)
        assert 0 <= self._next <= len(self._rotation)
        assert self.pingable_count == sum(self.is_pingable(m) for m in self)
        assert self.serving_count == sum(self._serves(m) for m in self)
        assert list(self.away) == sorted(m.name for m in self if m.away and self._serves(m))
        assert list(self.damped) == sorted(
            m.name for m in self if m.damped and m.status <= Status.FAULTY
        )
