"""Events for an application: its node has gained or lost a partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping  # noqa: TC003 - read at run time
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

import trio

from ringpop_py.base.values.operations import Value  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Gained:
    """This node owns *partition* now.

    Attributes:
        offsets: for each source of input, how much of it the state includes: continue from there.
    """

    partition: int
    epoch: int
    offsets: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Lost:
    """This node no longer owns *partition*."""

    partition: int


RescaleEvent = Gained | Lost


class RescaleEvents:
    """Sends each listener all events from the moment on at which it began to listen."""

    def __init__(self) -> None:
        # Weak: an iterator that an application has dropped would otherwise collect events for ever.
        self._listeners: WeakSet[RescaleListener] = WeakSet()
        self._watchers: list[Callable[[RescaleEvent], None]] = []

    def tell(self, event: RescaleEvent) -> None:
        """Send *event* to all watchers and listeners."""
        for watcher in self._watchers:
            watcher(event)
        for listener in self._listeners:
            listener.put(event)

    def watch(self, watcher: Callable[[RescaleEvent], None]) -> None:
        """Call *watcher* with each event, at the moment it happens. It must not block."""
        self._watchers.append(watcher)

    def listen(self, already: Iterable[RescaleEvent]) -> RescaleListener:
        """Return a listener with the events *already* missed; it gets new ones while it exists."""
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
        """Add *event* to those that wait."""
        if isinstance(event, Gained):  # a copy: others get it too, and an application may change it
            event = replace(event, offsets=deepcopy(event.offsets))
        self._events.append(event)
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RescaleEvent:
        while not self._events:
            self._more = trio.Event()
            await self._more.wait()
        # With events at hand nothing above waits, and a long series must not starve other tasks.
        await trio.lowlevel.checkpoint()
        return self._events.popleft()
