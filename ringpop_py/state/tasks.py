"""How what has no nursery and no thread of its own gets one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable  # noqa: TC003 - read at run time
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from ringpop_py.state.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class Spawn(Protocol):
    """Runs a function in a task of its own, which lasts no longer than the node."""

    def __call__(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Begin to run ``function(*arguments)``; what it raises ends the node."""


class Worker:
    """Runs what blocks, such as calls of *store*, in threads; as many at a time as said.

    What a store in memory does blocks nobody, and takes no thread: so tests have virtual time.
    """

    def __init__(self, store: Store, threads_max: int) -> None:
        self._inline = store.in_memory
        self._limiter = trio.CapacityLimiter(threads_max)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What *function* returns or raises. A caller that is cancelled leaves it to its end."""
        if self._inline:
            await trio.lowlevel.checkpoint()
            return function(*args, **kwargs)
        return await trio.to_thread.run_sync(
            lambda: function(*args, **kwargs), limiter=self._limiter, abandon_on_cancel=True
        )
