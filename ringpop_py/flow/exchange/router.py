"""Routes records: of a key to its key group, of a key group to its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.placement.strategies import assign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

R = TypeVar("R")

KEY_GROUPS: Final = 256


class ShuffleRouter:
    """The worker of each key, by ranges of key groups: ``hash(key) % key_groups``.

    A key never changes its group. If workers come or go, the ranges change, as those of a keyspace
    with the strategy ``range``: of three workers [0, 86), [86, 171) and [171, 256).

    Attributes:
        workers: in their order: by their names, with numbers in these as numbers.
    """

    def __init__(self, workers: Iterable[str], key_groups: int = KEY_GROUPS) -> None:
        self._owners = assign("range", key_groups, workers)
        self.workers = tuple(dict.fromkeys(self._owners))
        self._key_groups = key_groups

    def group_of(self, key: str) -> int:
        """Return the key group of *key*."""
        return partition_of(key, self._key_groups)

    def worker_of(self, key: str) -> str:
        """Return the worker that has *key*."""
        return self._owners[partition_of(key, self._key_groups)]

    def groups_of(self, worker: str) -> range:
        """Return the key groups of *worker*; an empty range if it is not one of the workers."""
        if worker not in self.workers:
            return range(0)
        first = self._owners.index(worker)
        return range(first, first + self._owners.count(worker))

    def route(self, records: Sequence[R], key_of: Callable[[R], str]) -> dict[str, list[R]]:
        """Return the records of each worker that has some, in their order."""
        owners, count = self._owners, self._key_groups
        routed: dict[str, list[R]] = {}
        for record in records:
            routed.setdefault(owners[partition_of(key_of(record), count)], []).append(record)
        return routed
