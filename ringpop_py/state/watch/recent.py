"""The last changes of one partition, in memory (pure).

They are numbered from 1 on, in the order of the log and, within an entry, in that of its body. So
each node that follows the log gives a change the same number, and a number that is known says how
much of the log a watcher has seen. The number of the newest one, and the changes themselves, go
with checkpoints: a watcher goes on where the partition comes next.

Once nobody has looked during as many changes of this node as are kept, they are only counted, until
the next look: who asked for them now would have come too late anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.declared import Declared, Natural, decode, encode
from ringpop_py.state.table.due import plain
from ringpop_py.state.watch.messages import Watched, gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.watch.messages import WatchPart, WatchRequest

KEPT_MAX: Final = 4_096
"""The most changes that are kept; of an entry with more all are, until the next."""
KEPT_BYTES: Final = 1 << 20
SAVED_BYTES: Final = 1 << 16
"""The most bytes of them in a checkpoint: the newest."""
CHANGE_BYTES: Final = 128
"""The bytes counted for a change besides its key and value."""
ANSWER_BYTES: Final = 1 << 20
"""The bytes of all parts after which an answer ends; the watcher asks for the rest."""
PAGE_ROWS: Final = 1_000

Listener = Callable[[Sequence[str]], object]
_Change = tuple[str, bytes | None]
"""A key and its value as it is stored; None for one that was deleted."""


class _Saved(Declared, frozen=True):
    newest: Natural
    kept: tuple[_Change, ...]


@dataclass(slots=True)
class WatchCounts:
    """The questions of watchers of a keyspace at this node: those that wait, and what they had."""

    waiting: int = 0
    sent: int = 0
    gaps: int = 0


class AnswerRoom:
    """How much may still go into an answer. It is exceeded by one change at most."""

    def __init__(self) -> None:
        self.left_bytes = ANSWER_BYTES

    def take(self, key: str, packed: bytes | None) -> None:
        """Count a change."""
        self.left_bytes -= weight(key, packed)


class RecentChanges:
    """See the module.

    Attributes:
        counts: of the keyspace.
        newest: the number of the last change; 0 before the first.
        follows: whether changes are kept: `note` them. If not, count them in *newest*.
        listeners: what to call with the keys of each entry.
    """

    def __init__(self, counts: WatchCounts) -> None:
        self.counts = counts
        self.newest = 0
        self.follows = False
        self.listeners: set[Listener] = set()
        self._looked = 0  # the newest change at the last look
        self._kept: deque[_Change] = deque()
        self._size_bytes = 0

    @property
    def oldest(self) -> int:
        """The number after which all changes are kept."""
        return self.newest - len(self._kept)

    def is_old(self, after: int | None) -> bool:
        """Return whether who has seen up to *after* should go on soon: what follows may go."""
        full = len(self._kept) > KEPT_MAX * 3 // 4 or self._size_bytes > KEPT_BYTES * 3 // 4
        return full and after is not None and after < (self.oldest + self.newest) // 2

    def expect(self, coming: int = 0) -> None:
        """Keep so many changes, which are not of this node, and what comes next.

        Somebody watches here, or has watched where they were written, and looks here soon.
        """
        self.follows, self._looked = True, self.newest + coming

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
        if self.listeners:
            keys = [*changed, *deleted]
            for listener in tuple(self.listeners):
                listener(keys)
        elif self.newest - self._looked > max(KEPT_MAX, count):
            self.follows, self._size_bytes = False, 0
            kept.clear()

    # Watchers.

    def look(
        self, request: WatchRequest, part: WatchPart, state: KeyedState, room: AnswerRoom
    ) -> Watched:
        """Return what *state*, whose changes these are, has for *part*, as far as there is *room*.

        Raises:
            WatchGap: if changes are wanted that are not kept.
        """
        self.expect()
        if part.start is not None:
            return self._page(request, part.start, state, room)
        if part.after is None:
            return Watched((), self.newest)
        upto = part.after
        if not self.oldest <= upto <= self.newest:
            self.counts.gaps += 1
            raise gap(part.number, upto, self.oldest, self.newest)
        rows: list[tuple[int, str, bytes | None]] = []
        for key, packed in self._last(self.newest - upto):
            if request.wants(key):
                if room.left_bytes < 0:
                    break
                rows.append((upto + 1, key, packed if packed is None else plain(packed)))
                room.take(key, packed)
            upto += 1
        self.counts.sent += len(rows)
        return Watched(tuple(rows), upto)

    def _page(
        self, request: WatchRequest, start: str, state: KeyedState, room: AnswerRoom
    ) -> Watched:
        end = request.prefix + "\0" if request.exact else None
        rows: list[tuple[int, str, bytes | None]] = []
        found = state.scan_packed(request.prefix, start, end, PAGE_ROWS)
        following = found[-1][0] + "\0" if len(found) == PAGE_ROWS else None
        for key, packed in found:
            if room.left_bytes < 0:
                following = key
                break
            rows.append((self.newest, key, packed))
            room.take(key, packed)
        self.counts.sent += len(rows)
        return Watched(tuple(rows), self.newest, following)

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
        self._size_bytes = sum(weight(*each) for each in found.kept)
        self.follows = False
        if saved:  # perhaps somebody has watched where they were
            self.expect()


def weight(key: str, packed: bytes | None) -> int:
    """Return the bytes counted for a change."""
    return CHANGE_BYTES + len(key) + len(packed or b"")
