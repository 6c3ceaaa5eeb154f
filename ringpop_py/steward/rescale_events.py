"""What an application is told when partitions come to its node and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

import trio

from ringpop_py.values.operations import Value  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Gained:
    """This node owns *partition* now.

    Attributes:
        offsets: how far which source of input is in the state: go on from there.
    """

    partition: int
    epoch: int
    offsets: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Lost:
    """This node owns *partition* no more."""

    partition: int


RescaleEvent = Gained | Lost


class RescaleEvents:
    """Tells each listener all that happens from the moment when it began to listen."""

    def __init__(self) -> None:
        self._listeners: WeakSet[RescaleListener] = WeakSet()
        self._watchers: list[Callable[[RescaleEvent], None]] = []

    def tell(self, event: RescaleEvent) -> None:
        """Something has happened."""
        for watcher in self._watchers:
            watcher(event)
        for listener in self._listeners:
            listener.put(event)

    def watch(self, watcher: Callable[[RescaleEvent], None]) -> None:
        """Have *watcher* told all that happens, at the very moment. It must not block."""
        self._watchers.append(watcher)

    def listen(self, already: Iterable[RescaleEvent]) -> RescaleListener:
        """What is *already* so, then what happens, for as long as somebody has the listener."""
        listener = RescaleListener(already)
        self._listeners.add(listener)
        return listener


class RescaleListener:
    """An endless asynchronous iterator over events; for one task."""

    def __init__(self, already: Iterable[RescaleEvent]) -> None:
        # Without a bound: there are two events a partition and rescale, and none may be missed.
        self._events = deque(already)
        self._more = trio.Event()

    def put(self, event: RescaleEvent) -> None:
        """One more has happened."""
        self._events.append(event)
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RescaleEvent:
        while not self._events:
            self._more = trio.Event()
            await self._more.wait()
        await trio.lowlevel.checkpoint()
        return self._events.popleft()
