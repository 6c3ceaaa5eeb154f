"""The table of members, the rotation in which they are probed, and the checksum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedSet

from ringpop_py.swim.checksum import checksum_for
from ringpop_py.swim.member import Status

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from ringpop_py.dialect import Dialect
    from ringpop_py.swim.member import Member


DAMPED_SERVING_MIN: Final = 3
"""Among fewer members than these that could own keys, damping leaves out nobody."""


class MemberList:
    """Rows by name, ourselves among them, and who of them is in the ring.

    The rotation is SWIM's: every pingable member once a round, in an order drawn anew each
    round; who arrives in the middle of a round is put in at random, so that everyone is probed
    within two rounds of arriving.

    Args:
        damp_share: how much of the members damping may leave out of the ring. It must be the
            same on all nodes, or equal lists would not mean equal rings.

    Attributes:
        pingable_count: how many other members may answer.
        serving_count: how many members, ourselves among them, could own keys: they are reachable
            and not draining.
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
        self._damped: SortedSet = SortedSet()
        self.pingable_count = 0
        self.serving_count = 0
        self.put(local)

    @property
    def local(self) -> Member:
        """Our own row."""
        return self._members[self._local_name]

    @property
    def checksum(self) -> int:
        """Equal on two nodes if and, but for a hash collision, only if their lists are equal."""
        return self._checksum.value

    def counted(self, name: str) -> int:
        """A hash of what the row of *name* counts for in the checksum; 0 if it does not."""
        return self._checksum.counted(name)

    def get(self, name: str) -> Member | None:
        """The row of *name*, if there is one."""
        return self._members.get(name)

    def is_pingable(self, member: Member) -> bool:
        """Whether *member* is another node that may answer."""
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
            self._next += index < self._next  # else who was probed last would be probed again

    def remove(self, name: str) -> None:
        """Forget *name*, which must be known and another."""
        assert name != self._local_name
        before = self._members.pop(name)
        self._count(before, -1)
        self._checksum.replace(name, None)
        index = self._rotation.index(name)
        del self._rotation[index]
        if index < self._next:
            self._next -= 1

    # Who is in the ring.

    def in_ring(self, member: Member) -> bool:
        """Whether *member*, a row of this list, owns keys.

        A pure function of the rows: equal lists, equal rings. O(log) of the damped members.
        """
        if not member.damped or not self._extends:
            return self._serves(member)
        left_out = self._damped.bisect_left(member.name) < self.damped_max
        return self._serves(member) and not left_out

    @property
    def damped_count(self) -> int:
        """How many members are damped, but for those that left."""
        return len(self._damped)

    @property
    def left_out(self) -> Sequence[str]:
        """Whom damping keeps out of the ring: of the damped, the first by name, `damped_max`."""
        names: Sequence[str] = self._damped[: self.damped_max]
        return names

    @property
    def damped_max(self) -> int:
        """How many members damping may keep out of the ring now.

        A share of those that could own keys, at least one; and nobody where they are so few
        that the ring could end up empty.
        """
        if self.serving_count < DAMPED_SERVING_MIN:
            return 0
        return max(1, math.floor(self._damp_share * self.serving_count))

    def _serves(self, member: Member) -> bool:
        return member.status.reachable and not (self._extends and member.draining)

    def _count(self, member: Member, by: int) -> None:
        """Count *member* in where it belongs, or out again: *by* is 1 or -1."""
        self.pingable_count += by * self.is_pingable(member)
        self.serving_count += by * self._serves(member)
        if member.damped and member.status <= Status.FAULTY:
            (self._damped.add if by > 0 else self._damped.remove)(member.name)

    # Whom to ask.

    def next_to_probe(self) -> Member | None:
        """The next pingable member of the rotation; None if there is none."""
        for _ in range(2 * len(self._rotation)):
            if self._next >= len(self._rotation):
                self._next = 0
                self._rng.shuffle(self._rotation)
            member = self._members[self._rotation[self._next]]
            self._next += 1
            if self.is_pingable(member):
                return member
        return None

    def random_pingable(self, count: int, *, but: str | None = None) -> list[Member]:
        """Up to *count* different pingable members, in random order, without *but*."""
        fitting = [m for m in self if m.name != but and self.is_pingable(m)]
        return self._rng.sample(fitting, min(count, len(fitting)))

    def __iter__(self) -> Iterator[Member]:
        """All rows, in order of arrival."""
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def _check(self) -> None:
        """State the invariants (for tests)."""
        assert sorted(self._rotation) == sorted(self._members)
        assert 0 <= self._next <= len(self._rotation)
        assert self.pingable_count == sum(self.is_pingable(m) for m in self)
        assert self.serving_count == sum(self._serves(m) for m in self)
        assert list(self._damped) == sorted(
            m.name for m in self if m.damped and m.status <= Status.FAULTY
        )
