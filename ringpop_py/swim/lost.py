"""Where the members were that were given up and then forgotten: they may live beyond a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.swim.member import Member, Status

if TYPE_CHECKING:
    from ringpop_py.address import Address

LOST_MAX: Final = 1_000


class LostMembers:
    """The last addresses of members whose rows ended as tombstones, the newest last.

    A cut may last longer than a tombstone; without this, a side without hosts in common with the
    other could never find it again. It is all that is left of an evicted member: no row, no
    timer, an address, and `LOST_MAX` of them at most. Who left by itself is not remembered, and
    who is seen again is not lost.

    Attributes:
        version: another after each change.
        given_up_at: when a member was last given up that had been reachable.
    """

    def __init__(self) -> None:
        self._addresses: dict[str, Address] = {}
        self.version = 0
        self.given_up_at: int | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All that are remembered, each once, in the order in which they were lost."""
        return tuple(dict.fromkeys(self._addresses.values()))

    def follow(self, before: Member | None, after: Member, now: int) -> None:
        """A row was replaced: remember it if it was given up, drop it if it is back."""
        if before is not None and before.status.reachable and after.status is Status.FAULTY:
            self.given_up_at = now
        if after.status is Status.TOMBSTONE:
            if before is not None and before.status not in (Status.LEAVE, Status.TOMBSTONE):
                self._remember(after)
        elif after.name in self._addresses:
            del self._addresses[after.name]
            self.version += 1

    def _remember(self, member: Member) -> None:
        self._addresses.pop(member.name, None)
        while len(self._addresses) >= LOST_MAX:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[member.name] = member.address
        self.version += 1

    def __len__(self) -> int:
        return len(self._addresses)
