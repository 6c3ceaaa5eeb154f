"""What happens to members, the ring and lookups, as one stream that an application reads.

Nothing is paid while nobody reads: a ring that tells of its lookups takes the place of the plain
one only while a stream wants them.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

import trio

from ringpop_py.base.arguments import checked_kind
from ringpop_py.base.errors import ConfigError
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.member.swim.effects import StatusChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

UNREAD_MAX: Final = 10_000
"""How many events wait for a reader by default; a further one displaces the oldest."""


@dataclass(frozen=True, slots=True)
class RingChanged:
    """The ring has other members, or one has come back under another identity.

    Attributes:
        added, removed: the names of members, sorted.
        checksum: that of the new ring.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    checksum: int


@dataclass(frozen=True, slots=True)
class LookedUp:
    """This node has looked *key* up on its ring; *owners* has its owner, then its successors."""

    key: str
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventsLost:
    """Here *count* events are missing: the reader was too slow."""

    count: int


RingpopEvent = StatusChanged | RingChanged | LookedUp | EventsLost


class EventReader:
    """An endless asynchronous iterator over events; for one task."""

    def __init__(self, unread_max: int, *, lookups: bool) -> None:
        self.lookups = lookups
        self._unread: deque[RingpopEvent] = deque(maxlen=unread_max)
        self._lost_count = 0
        self._more = trio.Event()

    def put(self, event: RingpopEvent) -> None:
        """Add *event* to those that wait."""
        self._lost_count += len(self._unread) == self._unread.maxlen
        self._unread.append(event)
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RingpopEvent:
        while not self._unread:
            self._more = trio.Event()
            await self._more.wait()
        # With events at hand nothing above waits, and a long series must not starve other tasks.
        await trio.lowlevel.checkpoint()
        if self._lost_count:
            lost, self._lost_count = self._lost_count, 0
            return EventsLost(lost)
        return self._unread.popleft()


class AsksRing(Protocol):
    """What asks its `ring` for owners."""

    ring: HashRing


class EventStreams:
    """All streams of one node; they replace the ring that *node* asks."""

    def __init__(self, node: AsksRing) -> None:
        self._node = node
        self._ring = node.ring
        self._all: list[EventReader] = []

    @asynccontextmanager
    async def opened(self, unread_max: int, *, lookups: bool) -> AsyncIterator[EventReader]:
        """Yield a stream of what happens within the block. Raises ConfigError."""
        checked_kind(unread_max, int, "unread_max", "a whole number")
        if unread_max < 1:
            raise ConfigError(f"unread_max is 1 or more, not {unread_max}")
        stream = EventReader(unread_max, lookups=lookups)
        self._all.append(stream)
        self._use_ring()
        try:
            yield stream
        finally:
            self._all.remove(stream)
            self._use_ring()

    def follow(self, changes: Sequence[StatusChanged], ring: HashRing) -> None:
        """Tell of *changes* that came together, and of the *ring* that they lead to."""
        before, self._ring = self._ring, ring
        if ring is not before:
            self._use_ring()
        if not self._all:
            return
        events: list[RingpopEvent] = [*changes]
        if ring is not before:
            added = sorted(ring.members.keys() - before.members)
            removed = sorted(before.members.keys() - ring.members)
            events.append(RingChanged(tuple(added), tuple(removed), ring.checksum))
        for stream in self._all:
            for event in events:
                stream.put(event)

    def _use_ring(self) -> None:
        ring = self._ring
        tells = any(stream.lookups for stream in self._all)
        self._node.ring = ToldRing(ring, self._tell_lookup) if tells else ring

    def _tell_lookup(self, key: str, owners: tuple[str, ...]) -> None:
        for stream in self._all:
            if stream.lookups:
                stream.put(LookedUp(key, owners))


class ToldRing(HashRing):
    """A ring that tells of each key for whose owners it is asked; it is equal to the plain one."""

    __slots__ = ("_tell",)

    def __init__(self, ring: HashRing, tell: Callable[[str, tuple[str, ...]], None]) -> None:
        super().__init__(ring.members, dialect=ring.dialect, points_count=ring.points_count)
        self._known_points = ring._known_points  # noqa: SLF001 - our own base
        self._tell = tell

    def lookup(self, key: str) -> str:
        """See `HashRing`."""
        owner = super().lookup(key)
        self._tell(key, (owner,))
        return owner

    def lookup_n(self, key: str, n: int) -> tuple[str, ...]:
        """See `HashRing`."""
        owners = super().lookup_n(key, n)
        self._tell(key, owners)
        return owners

    def owner_indexes(self, keys: Sequence[str]) -> NDArray[np.int32]:
        """See `HashRing`; `lookup_many`, `grouped` and `weights_of` ask here."""
        indexes = super().owner_indexes(keys)
        for key, index in zip(keys, indexes.tolist(), strict=True):
            self._tell(key, (self.owners[index],))
        return indexes
