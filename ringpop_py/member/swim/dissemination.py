"""Which changes ride on the next message, and how often each has ridden."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringpop_py.member.swim.messages import MemberChange


@dataclass(slots=True)
class _Rider:
    change: MemberChange
    sent_count: int = 0


class Dissemination:
    """Recent changes by member; each rides ``maximum`` times (SWIM, section 4.1).

    Args:
        changes_max: how many ride on one message; None: all. If there are more, those that have
            ridden least go first, so that no change starves.
    """

    def __init__(self, piggyback_factor: int, changes_max: int | None = None) -> None:
        self._factor = piggyback_factor
        self._changes_max = changes_max
        self._riders: dict[str, _Rider] = {}
        # The same riders by how often they have ridden: a message takes the first ones, at a cost
        # that does not depend on how many are left over.
        self._by_sent_count: list[dict[str, _Rider]] = [{}]
        self.maximum = piggyback_factor

    def adjust(self, pingable_count: int) -> None:
        """Set how often a change rides, for a cluster with *pingable_count* other members."""
        # log10 is exact at powers of ten, where log(x, 10) is not.
        self.maximum = self._factor * max(1, math.ceil(math.log10(pingable_count + 1)))

    def record(self, change: MemberChange) -> None:
        """Let *change* ride from now on; it replaces an older one about the same member."""
        name = change.member.name
        self.forget(name)
        self._riders[name] = self._by_sent_count[0][name] = _Rider(change)

    def forget(self, name: str) -> None:
        """Drop the change about *name*, if one rides."""
        rider = self._riders.pop(name, None)
        if rider is not None:
            del self._by_sent_count[rider.sent_count][name]

    def pending(self) -> tuple[MemberChange, ...]:
        """Return the changes for the next message, without counting them as sent."""
        if not self._riders:
            return ()
        changes = (rider.change for rider in self._in_order())
        return tuple(islice(changes, self._changes_max))

    def for_peer(self, name: str, incarnation: int) -> tuple[MemberChange, ...]:
        """Return the changes for an answer to that peer, without those that it said first."""
        if not self._riders:
            return ()
        changes = (
            rider.change
            for rider in self._in_order()
            if rider.change.source != name or rider.change.source_incarnation != incarnation
        )
        return tuple(islice(changes, self._changes_max))

    def _in_order(self) -> Iterator[_Rider]:
        """Iterate by least ridden, then oldest; only by oldest if all fit into one message."""
        if self._changes_max is None or len(self._riders) <= self._changes_max:
            return iter(self._riders.values())
        return chain.from_iterable(riders.values() for riders in self._by_sent_count)

    def count_sent(self, changes: Iterable[MemberChange]) -> None:
        """Count that each of *changes* has ridden once more, and drop those at the maximum."""
        for change in changes:
            name = change.member.name
            rider = self._riders.get(name)
            if rider is None or rider.change is not change:
                continue  # dropped or replaced while the message was under way
            del self._by_sent_count[rider.sent_count][name]
            rider.sent_count += 1
            if rider.sent_count >= self.maximum:
                del self._riders[name]
                continue
            if rider.sent_count == len(self._by_sent_count):
                self._by_sent_count.append({})
            self._by_sent_count[rider.sent_count][name] = rider

    def __len__(self) -> int:
        return len(self._riders)

    def _check(self) -> None:
        """Check the invariants (for tests)."""
        counted = {
            name: (sent_count, rider)
            for sent_count, riders in enumerate(self._by_sent_count)
            for name, rider in riders.items()
        }
        assert counted == {name: (r.sent_count, r) for name, r in self._riders.items()}
