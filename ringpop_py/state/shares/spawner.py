"""The tasks of a node's keyspaces: they run in its nursery, even if they were begun before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.errors import PartitionUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio


class Spawner:
    """Runs tasks in a nursery; tasks requested before it is open begin when it opens.

    Args:
        contain: runs a function with its arguments; its errors do not end the nursery.
        why_ended: says why no task can begin once the nursery is closed.
    """

    def __init__(
        self, contain: Callable[..., Awaitable[object]], why_ended: Callable[[], str]
    ) -> None:
        self._contain = contain
        self._why_ended = why_ended
        self._nursery: trio.Nursery | None = None
        self._early: list[tuple[object, ...]] = []

    def open(self, nursery: trio.Nursery) -> None:
        """Run tasks in *nursery* from now on."""
        self._nursery = nursery
        for call in self._early:
            nursery.start_soon(self._contain, *call)
        self._early.clear()

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """See `Spawn`. Raises PartitionUnavailable once the nursery is closed."""
        if self._nursery is None:
            self._early.append((function, *arguments))
            return
        try:
            self._nursery.start_soon(self._contain, function, *arguments)
        except RuntimeError:  # it is closed
            raise PartitionUnavailable(self._why_ended()) from None

    def stop(self) -> None:
        """Cancel all tasks."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
