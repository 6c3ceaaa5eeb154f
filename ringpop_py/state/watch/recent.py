"""The last changes of one partition, in memory (pure).

They are numbered from 1 on, in the order of the log and, within an entry, in that of its body. So
each node that follows the log gives a change the same number, and a number that is known says how
much of the log a watcher has seen. The number of the newest one, and the changes themselves, go
with checkpoints: a watcher goes on where the partition comes next.

Once nobody has looked during as many changes as are kept, they are only counted, until the next
look: who asked for them now would have come too late anyway.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.declared import Declared, Natural, decode, encode
from ringpop_py.state.table.due import plain
from ringpop_py.state.watch.messages import CHANGE_BYTES, Watched, gap, weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.watch.messages import WatchPart, WatchRequest

KEPT_MAX: Final = 4_096
"""The most changes that are kept; of an entry with more all are, until the next."""
KEPT_BYTES: Final = 1 << 20
SAVED_BYTES: Final = 1 << 18
"""The most bytes of them in a checkpoint: the newest."""
PAGE_ROWS: Final = 1_000

_Change = tuple[str, bytes | None]
"""A key and its value as it is stored; None for one that was deleted."""


@dataclass(slots=True)
class WatchCounts:
    """What watchers of a keyspace were sent, and how often they were told of a gap."""

    sent: int = 0
    gaps: int = 0


class _Saved(Declared, frozen=True):
    newest: Natural
    kept: tuple[_Change, ...]


class RecentChanges:
    """See the module.

    Args:
        counts: count what is sent from here.

    Attributes:
        newest: the number of the last change; 0 before the first.
        follows: whether changes are kept: `note` them. If not, count them in *newest*.
        waiting: what to call at the next change.
    """

    def __init__(self, counts: WatchCounts | None = None) -> None:
        self._counts = counts or WatchCounts()
        self.newest = 0
        self.follows = True
        self.waiting: set[Callable[[], object]] = set()
        self._looked = 0  # the newest change at the last look
        self._kept: deque[_Change] = deque()
        self._size_bytes = 0

    @property
    def oldest(self) -> int:
        """The number after which all changes are kept."""
        return self.newest - len(self._kept)

    def note(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Keep the changes of an entry of the log."""
        kept, count = self._kept, len(changed) + len(deleted)
        kept.extend(changed.items())
        kept.extend(zip(deleted, repeat(None)))
        self.newest += count
        size = self._size_bytes + CHANGE_BYTES * count
        size += sum(map(len, chain(changed, changed.values(), deleted)))
        while (size > KEPT_BYTES or len(kept) > KEPT_MAX) and len(kept) > count:
            size -= weight(*kept.popleft())
        self._size_bytes = size
        if self.waiting:
            for wake in tuple(self.waiting):
                wake()
        elif self.newest - self._looked > KEPT_MAX:
            self.follows, self._size_bytes = False, 0
            kept.clear()

    # Watchers.

    def look(self, request: WatchRequest, part: WatchPart, state: KeyedState, room: int) -> Watched:
        """Return what *state*, whose changes these are, has for *part*.

        Args:
            room: after so many bytes it ends; at 0, nothing is looked at.

        Raises:
            WatchGap: if changes are wanted that are not kept.
        """
        self.follows, self._looked = True, self.newest
        if part.start is not None:
            return self._page(request, part.start, state, room)
        after = part.after
        if after is None:
            return Watched((), self.newest)
        if not self.oldest <= after <= self.newest:
            self._counts.gaps += 1
            raise gap(part.number, after, self.oldest, self.newest)
        rows: list[tuple[int, str, bytes | None]] = []
        upto, missed = after, self.newest - after if room > 0 else 0
        for upto, (key, packed) in enumerate(self._last(missed), after + 1):
            if request.wants(key):
                rows.append((upto, key, packed if packed is None else plain(packed)))
                room -= weight(key, packed)
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
            room -= weight(key, packed)
            if room <= 0:
                break
        self._counts.sent += len(rows)
        more = room <= 0 or len(rows) == PAGE_ROWS
        return Watched(tuple(rows), self.newest, rows[-1][1] + "\0" if more else None)

    def _last(self, count: int) -> list[_Change]:
        return list(islice(reversed(self._kept), count))[::-1]  # watchers are mostly near the end

    # Checkpoints.

    def saved(self) -> bytes:
        """Return the newest changes, packed."""
        left, count = SAVED_BYTES, 0
        for each in reversed(self._kept):
            left -= weight(*each)
            if left < 0:
                break
            count += 1
        return encode([self.newest, self._last(count)])

    def restore(self, saved: bytes) -> None:
        """Become those that were *saved*; nothing is those before the first.

        Raises:
            StateDamaged: if it is not what `saved` returns.
        """
        try:
            found = decode(_Saved, saved) if saved else _Saved(0, ())
        except BodyError as error:
            raise StateDamaged(f"the changes of a checkpoint: {error}") from None
        if len(found.kept) > found.newest:
            raise StateDamaged("a checkpoint has more changes than its partition ever had")
        self.newest, self._kept = found.newest, deque(found.kept)
        # Perhaps somebody has begun to watch since; he looks here soon.
        self.follows, self._looked = True, found.newest
        self._size_bytes = sum(weight(*each) for each in found.kept)
