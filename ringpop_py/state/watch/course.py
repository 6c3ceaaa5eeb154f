"""How far a watcher is, and what it asks next (pure).

The changes of each partition come in the order of its log. Which of several partitions comes first
is not defined.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.arguments import checked_text, wrong
from ringpop_py.base.errors import BodyError, ConfigError, KeyspaceError
from ringpop_py.base.values.declared import Declared, Natural, decode, encode
from ringpop_py.base.values.operations import check_key
from ringpop_py.base.values.requests import value_of
from ringpop_py.state.watch.messages import WAIT_MS_MAX, Watched, WatchPart, WatchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.placement.keys import Placing

_LAST: Final = "\U0010ffff"


class WatchPosition(Declared, frozen=True):
    """Up to where a watcher has seen each partition. As a text, with `str`, it can be kept.

    Attributes:
        generation: of the keyspace: after a drop, the numbers begin again.
        numbers: of the last change seen, for each partition. Those that are left out have not been
            read yet.
    """

    generation: Natural
    numbers: tuple[tuple[Natural, Natural], ...]

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(encode(self)).rstrip(b"=").decode()

    @classmethod
    def of(cls, text: str) -> WatchPosition:
        """Return the position that has that text. Raises ConfigError."""
        try:
            return decode(cls, base64.urlsafe_b64decode(text.encode() + b"=="))
        except (BodyError, binascii.Error, UnicodeError):
            shown = f"{text!r:.60}"
            raise ConfigError(
                f"{shown} is no position of a watch: give str(change.position), or the last id"
            ) from None


class KeyChange(NamedTuple):
    """A key after a change.

    Attributes:
        packed: its value as it is stored, in msgpack; None if it was deleted.
        before: a position before it, which many changes share.
        partition: of the key.
        number: of the change in its partition; None if a watch goes on at *before*.
    """

    key: str
    packed: bytes | None
    before: WatchPosition
    partition: int
    number: int | None

    @property
    def position(self) -> WatchPosition:
        """A watch after it goes on with the next change."""
        if self.number is None:
            return self.before
        numbers = {**dict(self.before.numbers), self.partition: self.number}
        return WatchPosition(self.before.generation, tuple(numbers.items()))

    @property
    def deleted(self) -> bool:
        """Whether the key was deleted, or has expired."""
        return self.packed is None

    @property
    def value(self) -> Value:
        """The value; None if it was deleted. Raises StateDamaged if it cannot be read."""
        return None if self.packed is None else value_of(self.key, self.packed)


class _Pages:
    """The present rows of a partition, page by page, each as of a change."""

    def __init__(self) -> None:
        self.start: str | None = ""  # of the next page; None after the last
        self._ends: list[str] = []
        self._numbers: list[int] = []

    def add(self, watched: Watched) -> None:
        self.start = watched.following
        self._ends.append(_LAST if self.start is None else self.start)
        self._numbers.append(watched.upto)

    @property
    def oldest(self) -> int:
        return self._numbers[0]

    @property
    def newest(self) -> int:
        return self._numbers[-1]

    def have(self, number: int, key: str) -> bool:
        at = min(bisect_right(self._ends, key), len(self._ends) - 1)
        return number <= self._numbers[at]


class Course:
    """One watch of a keyspace, from the first question to its end.

    Args:
        prefix: which keys; all by default.
        key: the one key to watch, instead of a prefix.
        after: a position of an earlier watch, or its text; by default the changes from now on.
        existing: yield the keys that are there first. After a position, those of partitions that
            were not read completely then.

    Raises:
        ConfigError: if they exclude each other, or are of the wrong kind.
    """

    def __init__(
        self,
        keyspace: str,
        generation: int,
        placing: Placing,
        prefix: str,
        key: str | None,
        after: WatchPosition | str | None,
        *,
        existing: bool,
    ) -> None:
        self._head = keyspace, generation
        if key is not None:
            if prefix:
                raise ConfigError("prefix and key exclude each other: give one of them")
            check_key(checked_text(key, "key"))
        self._prefix, self._exact = (prefix, False) if key is None else (key, True)
        if not isinstance(prefix, str):
            raise wrong("prefix", "text", prefix)
        wanted = range(placing.count) if key is None else (placing.partition_of(key),)
        position = WatchPosition.of(after) if isinstance(after, str) else after
        if position is None:
            position = WatchPosition(generation, ())
        elif not isinstance(position, WatchPosition):
            raise wrong("after", "a position of a watch, or its text", after)
        if position.generation != generation:
            raise ConfigError(
                f"the position is of generation {position.generation} of keyspace {keyspace!r},"
                f" which is in generation {generation}: it was created again since"
            )
        known = dict(position.numbers)
        self._numbers: dict[int, int | None] = {n: known.get(n) for n in wanted}
        self._pages = {
            n: _Pages() for n, number in self._numbers.items() if existing and number is None
        }

    @property
    def position(self) -> WatchPosition:
        """Up to where all that was taken goes."""
        whole = [(n, number) for n, number in self._numbers.items() if number is not None]
        return WatchPosition(self._head[1], tuple(sorted(whole)))

    def request(self, wait_s: float) -> WatchRequest:
        """Return what to ask next, and how long to wait for changes; not if some have no number."""
        # Last, present rows: partition by partition, so that there are few changes meanwhile.
        numbers = sorted(self._numbers.items(), key=lambda each: each[1] is None)
        parts = tuple([self._part(n, number) for n, number in numbers])
        waits = all(number is not None for number in self._numbers.values())
        wait_ms = min(round(wait_s * 1_000), WAIT_MS_MAX) if waits else 0
        return WatchRequest(*self._head, self._prefix, self._exact, wait_ms, parts)

    def _part(self, number: int, after: int | None) -> WatchPart:
        pages = self._pages.get(number)
        return WatchPart(number, after, pages.start if pages and after is None else None)

    def take(self, results: Mapping[int, object]) -> list[KeyChange]:
        """Return the changes in *results*, by partition, and go on after them.

        Parts without a result, or whose error passes, are asked again.

        Raises:
            WatchGap: if changes are gone.
            KeyspaceError: if it does not pass.
        """
        for result in results.values():
            if isinstance(result, KeyspaceError) and not result.passes:
                raise result
        found: list[KeyChange] = []
        for number, result in results.items():
            if isinstance(result, Watched):
                found += self._taken(number, result)
        return found

    def _taken(self, number: int, watched: Watched) -> Iterable[KeyChange]:
        pages, rows = self._pages.get(number), watched.rows
        if self._numbers[number] is None and pages is not None:
            if watched.following is not None and not rows:  # there was no room
                return []
            pages.add(watched)
            before, upto = self.position, None
            if pages.start is None:
                self._numbers[number] = upto = pages.oldest
            # Only the last row is after all others: a watch after another one reads them again.
            ats = [*[None] * (len(rows) - 1), upto]
            return [
                KeyChange(key, packed, before, number, at)
                for (_, key, packed), at in zip(rows, ats, strict=False)
            ]
        if pages is not None:
            rows = tuple([row for row in rows if not pages.have(row[0], row[1])])
            if watched.upto >= pages.newest:
                del self._pages[number]
        before = self.position
        if rows:  # the others come first now, if there is not enough room for all
            del self._numbers[number]
        self._numbers[number] = watched.upto
        return [KeyChange(key, packed, before, number, at) for at, key, packed in rows]
