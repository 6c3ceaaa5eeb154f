"""The table of members, the rotation in which they are probed, and the checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.membership.checksum import checksum_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from ringpop_py.dialect import Dialect
    from ringpop_py.membership.member import Member


class MemberList:
    """Rows by name, ourselves among them.

    The rotation is SWIM's: every pingable member once a round, in an order drawn anew each
    round; who arrives in the middle of a round is put in at random, so that everyone is probed
    within two rounds of arriving.
    """

    def __init__(self, local: Member, *, dialect: Dialect, rng: random.Random) -> None:
        self._local_name = local.name
        self._rng = rng
        self._members: dict[str, Member] = {}
        self._rotation: list[str] = []
        self._next = 0
        self._checksum = checksum_for(dialect)
        self.pingable_count = 0
        self.put(local)

    @property
    def local(self) -> Member:
        """Our own row."""
        return self._members[self._local_name]

    @property
    def checksum(self) -> int:
        """Equal on two nodes if and, but for a hash collision, only if their lists are equal."""
        return self._checksum.value

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
        self.pingable_count += self.is_pingable(member)
        if before is None:
            index = self._rng.randint(0, len(self._rotation))
            self._rotation.insert(index, member.name)
            self._next += index < self._next  # else who was probed last would be probed again
        else:
            self.pingable_count -= self.is_pingable(before)

    def remove(self, name: str) -> None:
        """Forget *name*, which must be known and another."""
        assert name != self._local_name
        before = self._members.pop(name)
        self.pingable_count -= self.is_pingable(before)
        self._checksum.replace(name, None)
        index = self._rotation.index(name)
        del self._rotation[index]
        if index < self._next:
            self._next -= 1

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
