"""Where the keys and packed values of a partition are kept: in memory, or wherever `Entries` says.

All of it is a copy of what the log and the checkpoints say, and worth nothing after a restart.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Protocol

from sortedcontainers import SortedList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENTRY_BYTES: Final = 16
"""What an entry counts for besides its key and value, so that a piece of tiny ones is bounded."""

Piece = tuple[list[str], list[bytes]]
"""Some keys, and their values in the same order."""


class Frozen(Protocol):
    """Entries as they were at one moment, whatever is written afterwards.

    They may be read in another thread, once; then close them.
    """

    def __len__(self) -> int: ...

    def pieces(self, bytes_max: int) -> Iterator[Piece]:
        """All of them, each piece of about *bytes_max* at most (or a single entry)."""

    def close(self) -> None:
        """Let go of what they hold."""


class Entries(Protocol):
    """Keys, each with a packed value. One thread uses them; what is frozen goes anywhere."""

    def get(self, key: str, /) -> bytes | None:
        """The value of *key*; None if there is none."""

    def __len__(self) -> int: ...

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Set *changed* and delete *deleted*, of which some may be absent; no key is in both.

        In a mergeable `KeyedState` a key can be in both: it is deleted, then set.
        """

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """The first *limit* with *prefix*, from *start* on, before *end*; ordered by key."""

    def at_most(self, limit: int) -> Piece | None:
        """All of them, in any order, if there are at most *limit*; else None.

        Also None where `scan` costs no more.
        """

    def clear(self) -> None:
        """Delete all."""

    def freeze(self, keys: Sequence[str] | None = None) -> Frozen:
        """All entries, or those of *keys*, which are there, as they are now."""


class MemoryEntries:
    """Entries in a dict. The order of keys is kept from the first scan on."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._order: SortedList | None = None
        self.get = self._values.get

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
        """In the order of code points, which is the one of UTF-8."""
        if self._order is None:
            self._order = SortedList(self._values)
        first = max(prefix, start)
        if end is not None and end <= first:
            return []
        keys = list(islice(self._order.irange(first, end, inclusive=(True, False)), max(limit, 0)))
        if keys and not keys[-1].startswith(prefix):
            keys = list(takewhile(lambda key: key.startswith(prefix), keys))
        return list(zip(keys, map(self._values.__getitem__, keys), strict=True))

    def at_most(self, limit: int) -> Piece | None:
        """All of them, in any order, if there are at most *limit*; no order is kept for that."""
        if len(self._values) > limit:
            return None
        return list(self._values), list(self._values.values())

    def clear(self) -> None:
        """Delete all."""
        self._values.clear()
        self._order = None

    def freeze(self, keys: Sequence[str] | None = None) -> FrozenEntries:
        """A copy that shares keys and values: a millisecond for 100,000 of them."""
        if keys is None:
            return FrozenEntries(dict(self._values))
        return FrozenEntries({key: self._values[key] for key in keys})


class FrozenEntries:
    """Entries in a dict that nobody changes any more."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def pieces(self, bytes_max: int) -> Iterator[Piece]:
        """All of them, in the order of the dict."""
        return pieces_of(self.values.items(), bytes_max)

    def close(self) -> None:
        """Nothing is held."""


def pieces_of(rows: Iterable[tuple[str, bytes]], bytes_max: int) -> Iterator[Piece]:
    """Yield *rows* in pieces, each of about *bytes_max* at most (or a single one)."""
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
