"""The last changes of one partition, in memory (pure).

They are numbered from 1 on, in the order of the log and, within an entry, in that of its body. So
each node that follows the log gives a change the same number, and a number that is known says how
much of the log a watcher has seen. The number of the newest one, and the changes themselves, go
with checkpoints: a watcher goes on where the partition comes next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.declared import Declared, Natural, decode, encode
from ringpop_py.state.table.due import plain
from ringpop_py.state.watch.messages import CHANGE_BYTES, Watched, gap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.watch.messages import WatchPart, WatchRequest

KEPT_MAX: Final = 4_096
"""The most changes that are kept; of an entry with more all are, until the next."""
KEPT_BYTES: Final = 1 << 20
SAVED_BYTES: Final = 1 << 18
"""The most bytes of them in a checkpoint: the newest."""
PAGE_ROWS: Final = 1_000


class _Kept(NamedTuple):
    """The changes of one entry of the log, which come after number *after*."""

    after: int
    size_bytes: int
    changed: Mapping[str, bytes]
    deleted: Sequence[str]


@dataclass(slots=True)
class WatchCounts:
    """What watchers of a keyspace were sent, and how often they were told of a gap."""

    sent: int = 0
    gaps: int = 0


class _Saved(Declared, frozen=True):
    newest: Natural
    kept: tuple[tuple[dict[str, bytes], list[str]], ...] = ()


class RecentChanges:
    """See the module.

    Args:
        counts: count what is sent from here.

    Attributes:
        newest: the number of the last change; 0 before the first.
        waiting: what to call at the next change.
    """

    def __init__(self, counts: WatchCounts | None = None) -> None:
        self._counts = counts or WatchCounts()
        self.newest = 0
        self.waiting: set[Callable[[], object]] = set()
        self._kept: deque[_Kept] = deque()
        self._size_bytes = 0

    @property
    def oldest(self) -> int:
        """The number after which all changes are kept."""
        return self._kept[0].after if self._kept else self.newest

    def note(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Follow an entry of the log."""
        count = len(changed) + len(deleted)
        if not count:
            return
        size = CHANGE_BYTES * count + sum(map(len, chain(changed, changed.values(), deleted)))
        kept = self._kept
        kept.append(_Kept(self.newest, size, changed, deleted))
        self.newest += count
        self._size_bytes += size
        least = self.newest - KEPT_MAX
        while (self._size_bytes > KEPT_BYTES or kept[0].after < least) and len(kept) > 1:
            self._size_bytes -= kept.popleft().size_bytes
        if self.waiting:
            for wake in tuple(self.waiting):
                wake()

    # Watchers.

    def look(self, request: WatchRequest, part: WatchPart, state: KeyedState, room: int) -> Watched:
        """Return what *state*, whose changes these are, has for *part*.

        Args:
            room: after so many bytes it ends; at 0, nothing is looked at.

        Raises:
            WatchGap: if changes are wanted that are not kept.
        """
        if part.start is not None:
            return self._page(request, part.start, state, room)
        after = part.after
        if after is None:
            return Watched((), self.newest)
        if not self.oldest <= after <= self.newest:
            self._counts.gaps += 1
            raise gap(part.number, after, self.oldest, self.newest)
        rows: list[tuple[int, str, bytes | None]] = []
        upto = after
        for upto, key, packed in self._after(after) if room > 0 else ():
            if request.wants(key):
                rows.append((upto, key, packed if packed is None else plain(packed)))
                room -= CHANGE_BYTES + len(key) + len(packed or b"")
                if room <= 0:
                    break
        self._counts.sent += len(rows)
        return Watched(tuple(rows), upto)

    def _page(self, request: WatchRequest, start: str, state: KeyedState, room: int) -> Watched:
        if room <= 0:
            return Watched((), self.newest, start)
        end = request.prefix + "\0" if request.exact else None
        rows: list[tuple[int, str, bytes | None]] = []
        for key, packed in state.scan_packed(request.prefix, start, end, PAGE_ROWS):
            rows.append((self.newest, key, packed))
            room -= CHANGE_BYTES + len(key) + len(packed)
            if room <= 0:
                break
        self._counts.sent += len(rows)
        more = room <= 0 or len(rows) == PAGE_ROWS
        return Watched(tuple(rows), self.newest, rows[-1][1] + "\0" if more else None)

    def _after(self, after: int) -> Iterator[tuple[int, str, bytes | None]]:
        """Yield the changes after that number."""
        entries = []
        for entry in reversed(self._kept):  # watchers are mostly near the end
            entries.append(entry)
            if entry.after <= after:
                break
        for entry in reversed(entries):
            changes = chain(entry.changed.items(), ((key, None) for key in entry.deleted))
            for number, (key, packed) in enumerate(changes, entry.after + 1):
                if number > after:
                    yield number, key, packed

    # Checkpoints.

    def saved(self) -> bytes:
        """Return the newest changes, packed."""
        found: list[tuple[Any, Any]] = []
        room = SAVED_BYTES
        for entry in reversed(self._kept):
            room -= entry.size_bytes
            if room < 0:
                break
            found.append((dict(entry.changed), list(entry.deleted)))
        return encode([self.newest, found[::-1]])

    def restore(self, saved: bytes) -> None:
        """Become those that were *saved*; nothing is those before the first.

        Raises:
            StateDamaged: if it is not what `saved` returns.
        """
        try:
            found = decode(_Saved, saved) if saved else _Saved(0)
        except BodyError as error:
            raise StateDamaged(f"the changes of a checkpoint: {error}") from None
        self._kept.clear()
        self._size_bytes = 0
        self.newest = found.newest - sum(len(each) for pair in found.kept for each in pair)
        for changed, deleted in found.kept:
            self.note(changed, deleted)
