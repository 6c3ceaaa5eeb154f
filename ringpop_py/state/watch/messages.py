"""What a watcher asks of the owners of partitions, and what they answer. Bodies are msgpack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.base.errors import WatchGap
from ringpop_py.base.values.declared import Declared, Meta, Natural, convert
from ringpop_py.base.values.operations import Key
from ringpop_py.base.values.requests import KeyspaceRequest, PartFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.errors import KeyspaceError

WAIT_MS_MAX: Final = 20_000
"""The longest that an owner waits for a change: below the time that a call may take."""


class WatchPart(Declared, frozen=True):
    """A partition that is watched.

    Attributes:
        after: the changes wanted are those after this one, by number; without it, none.
        start: from which key on the present rows are wanted, instead of changes.
    """

    number: Natural
    after: Natural | None = None
    start: Key | None = None


class WatchRequest(KeyspaceRequest, frozen=True):
    """Changes of keys with *prefix*, or of that key if *exact*.

    Attributes:
        wait_ms: how long to wait for the first change. Parts are answered together.
    """

    prefix: Key
    exact: bool
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)]
    parts: tuple[WatchPart, ...]

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [part.number for part in self.parts]

    def wants(self, key: str) -> bool:
        """Return whether changes of *key* are wanted."""
        return key == self.prefix if self.exact else key.startswith(self.prefix)


class Watched(Declared, frozen=True, tag=3):
    """What a partition has for a watcher.

    Attributes:
        rows: the number of each change, its key, and its packed value; None if it was deleted.
        upto: the number of the last change that was looked at: go on after it.
        following: of present rows, the key at which the next ones start; None after the last.
    """

    rows: tuple[tuple[Natural, Key, bytes | None], ...]
    upto: Natural
    following: Key | None = None


_Row = tuple[Natural, Watched | PartFailed]


def watched_of(result: object) -> dict[int, Watched | KeyspaceError]:
    """Return what a daemon has answered, by partition. Raises BodyError."""
    rows = convert(tuple[_Row, ...], result)
    return {n: each.error() if isinstance(each, PartFailed) else each for n, each in rows}


def gap(number: int, after: int, oldest: int, newest: int) -> WatchGap:
    """Return the error for a watcher that asks for what is not kept."""
    return WatchGap(
        f"partition {number} no longer has the changes after {after}: it has those after {oldest},"
        f" up to {newest}; read what you need again, and watch from there (existing=True does both)"
    )
