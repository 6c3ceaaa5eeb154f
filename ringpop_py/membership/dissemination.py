"""Which changes ride on the next message, and how often each has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.membership.messages import Change


@dataclass(slots=True)
class _Rider:
    change: Change
    sent_count: int = 0


class Dissemination:
    """Recent changes by member, each sent until it has ridden ``maximum`` times (SWIM 4.1)."""

    def __init__(self, piggyback_factor: int) -> None:
        self._factor = piggyback_factor
        self._riders: dict[str, _Rider] = {}
        self.maximum = piggyback_factor

    def adjust(self, pingable_count: int) -> None:
        """Set how often a change rides, for a cluster with that many others."""
        # log10 is exact at powers of ten, where log(x, 10) is not.
        self.maximum = self._factor * max(1, math.ceil(math.log10(pingable_count + 1)))

    def record(self, change: Change) -> None:
        """Let *change* ride from now on, in place of an older one about the same member."""
        self._riders.pop(change.member.name, None)
        self._riders[change.member.name] = _Rider(change)

    def forget(self, name: str) -> None:
        """Send nothing more about *name*."""
        self._riders.pop(name, None)

    def pending(self) -> tuple[Change, ...]:
        """All that is to be sent, oldest first; nothing is counted yet."""
        return tuple(rider.change for rider in self._riders.values())

    def for_peer(self, name: str, incarnation: int) -> tuple[Change, ...]:
        """All that is to be sent, but what that very peer said first."""
        return tuple(
            change
            for change in self.pending()
            if change.source != name or change.source_incarnation != incarnation
        )

    def count_sent(self, changes: Iterable[Change]) -> None:
        """Each of *changes* has ridden once more; those at the maximum are dropped."""
        for change in changes:
            rider = self._riders.get(change.member.name)
            if rider is None or rider.change is not change:
                continue  # dropped or replaced while the message was under way
            rider.sent_count += 1
            if rider.sent_count >= self.maximum:
                del self._riders[change.member.name]

    def __len__(self) -> int:
        return len(self._riders)
