"""Where the keys and packed values of a partition are kept: in memory, or in other `Entries`.

They are a copy of what the log and the checkpoints say, and are not used after a restart.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Protocol

from sortedcontainers import SortedList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ENTRY_BYTES: Final = 16
"""The bytes counted for an entry besides its key and value: they bound a piece of tiny entries."""

Piece = tuple[list[str], list[bytes]]
"""Some keys, and their values in the same order."""


class Frozen(Protocol):
    """Entries as they were at one moment. Read them once, in any thread; then close them."""

    def __len__(self) -> int: ...

    def pieces(self, bytes_max: int) -> Iterator[Piece]:
        """Yield all entries in pieces of at most about *bytes_max*, or of a single entry."""

    def close(self) -> None:
        """Release their resources."""


class Entries(Protocol):
    """Keys, each with a packed value. One thread uses them.

    Attributes:
        failed: whether they could not be read or written since they were last cleared, so that the
            partition cannot stay here.
    """

    failed: bool

    def get(self, key: str, /) -> bytes | None:
        """Return the value of *key*; None if there is none."""

    def __len__(self) -> int: ...

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Set *changed* and delete *deleted*, of which some may be absent; no key is in both.

        In a mergeable `KeyedState` a key can be in both: it is deleted, then set.
        """

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """Return the first *limit* with *prefix*, from *start* on, before *end*; ordered by key."""

    def at_most(self, limit: int) -> Piece | None:
        """Return all entries in any order; None if there are more than *limit*.

        It may always be None if `scan` is as fast.
        """

    def clear(self) -> None:
        """Delete all."""

    def freeze(self, keys: Sequence[str] | None = None) -> Frozen:
        """Return all entries, or those of *keys*, all of which exist, as they are now."""


class MemoryEntries:
    """Entries in a dict."""

    failed = False

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._order: SortedList | None = None  # kept from the first scan on: many never scan
        # The method of the dict itself, for the hot path.
        self.get: Callable[[str], bytes | None] = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Set *changed* and delete *deleted*."""
        values, order = self._values, self._order
        if order is not None:
            order.update([key for key in changed if key not in values])
        values.update(changed)
        for key in deleted:
            if values.pop(key, None) is not None and order is not None:
                order.remove(key)

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """See `Entries`."""
        if self._order is None:
            self._order = SortedList(self._values)  # by code points, which is the order of UTF-8
        first = max(prefix, start)
        if end is not None and end <= first:
            return []
        keys = list(islice(self._order.irange(first, end, inclusive=(True, False)), max(limit, 0)))
        if keys and not keys[-1].startswith(prefix):
            keys = list(takewhile(lambda key: key.startswith(prefix), keys))
        return list(zip(keys, map(self._values.__getitem__, keys), strict=True))

    def at_most(self, limit: int) -> Piece | None:
        """See `Entries`. It needs no order of the keys."""
        if len(self._values) > limit:
            return None
        return list(self._values), list(self._values.values())

    def clear(self) -> None:
        """Delete all."""
        self._values.clear()
        self._order = None

    def freeze(self, keys: Sequence[str] | None = None) -> FrozenEntries:
        """See `Entries`."""
        if keys is None:
            return FrozenEntries(dict(self._values))  # a millisecond for 100,000 entries
        return FrozenEntries({key: self._values[key] for key in keys})


class FrozenEntries:
    """Entries in a dict that no longer changes."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def pieces(self, bytes_max: int) -> Iterator[Piece]:
        """See `Frozen`. The order is that of the dict."""
        return pieces_of(self.values.items(), bytes_max)

    def close(self) -> None:
        """See `Frozen`. There is nothing to release."""


def pieces_of(rows: Iterable[tuple[str, bytes]], bytes_max: int) -> Iterator[Piece]:
    """Yield *rows* in pieces of at most about *bytes_max*, or of a single row."""
    keys: list[str] = []
    values: list[bytes] = []
    size = 0
    for key, value in rows:
        entry_bytes = len(key) + len(value) + ENTRY_BYTES
        if keys and size + entry_bytes > bytes_max:
            yield keys, values
            keys, values, size = [], [], 0
        keys.append(key)
        values.append(value)
        size += entry_bytes
    if keys:
        yield keys, values
