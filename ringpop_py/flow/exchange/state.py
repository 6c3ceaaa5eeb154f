"""The state of a keyed stage, and its changes since it was kept last."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable

HEAP_SLACK: Final = 64
WHOLE_EVERY: Final = 2
"""The changes, as a multiple of the keys, after which the whole state is kept again."""


class StageState:
    """The values of keys, and the time of records at which each is to be woken.

    Attributes:
        values: the values by key.
        wakes: when each key is to be woken, if it is.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.wakes: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._changed: set[str] = set()
        self._kept_count: int | None = None

    def set(self, key: str, value: object, wake: int | None) -> None:
        """Set the value of *key* (None forgets it), and when it is to be woken."""
        self._changed.add(key)
        if value is None:
            self.values.pop(key, None)
            wake = None
        else:
            self.values[key] = value
        if wake is None:
            self.wakes.pop(key, None)
        elif self.wakes.get(key) != wake:
            self.wakes[key] = wake
            heapq.heappush(self._heap, (wake, key))
            if len(self._heap) > 2 * len(self.wakes) + HEAP_SLACK:
                self._heap = [(wake, key) for key, wake in self.wakes.items()]
                heapq.heapify(self._heap)

    def due(self, time: int) -> list[str]:
        """Remove and return the keys to be woken at *time* or before, the earliest first."""
        heap, wakes, found = self._heap, self.wakes, list[str]()
        while heap and heap[0][0] <= time:
            wake, key = heapq.heappop(heap)
            if wakes.get(key) == wake:
                del wakes[key]
                found.append(key)
        return found

    def keep(self, *, whole: bool) -> tuple[bytes, bool]:
        """Return the bytes to keep, and whether they are the whole state; no bytes if unchanged.

        Args:
            whole: whether to keep the whole state, as nothing was kept in this run.
        """
        count = self._kept_count
        is_whole = whole or count is None or count > WHOLE_EVERY * len(self.values)
        keys = self.values.keys() if is_whole else self._changed
        rows = [(key, self.values.get(key), self.wakes.get(key)) for key in keys]
        self._kept_count = 0 if is_whole or count is None else count + len(rows)
        self._changed = set()
        return (encode_value("msgpack", rows) if rows or is_whole else b""), is_whole

    def load(self, kept: bytes, is_mine: Callable[[str], bool]) -> None:
        """Add the *kept* state of the keys for which *is_mine* holds. Raises BodyError."""
        rows = decode_value("msgpack", kept)
        if not isinstance(rows, list):
            raise BodyError("a state is a list of rows")
        for row in rows:
            if not isinstance(row, list) or len(row) != 3:  # noqa: PLR2004 - key, value, wake
                raise BodyError("a row of a state has a key, a value, and when it is woken")
            key, value, wake = row
            if is_mine(key):
                self.set(key, value, wake)

    def restrict(self, is_mine: Callable[[str], bool]) -> None:
        """Forget the keys for which *is_mine* does not hold."""
        for key in [key for key in self.values if not is_mine(key)]:
            del self.values[key]
            self.wakes.pop(key, None)
