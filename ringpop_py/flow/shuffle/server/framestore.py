"""Frames in the store, for shuffles whose second copies lie there (``durability="store"``).

A frame is one object: ``<cluster>/shuffles/<hash of the name>/<uid>/<segment>/<frame>``. The frames
of a shuffle are removed when its rows can be read, and when it is deleted. Frames that remain, of a
process that died before or put them too late, are removed by the next process that starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio
import xxhash

from ringpop_py.base.errors import (
    ShuffleFull,
    ShuffleRefused,
    ShuffleUnavailable,
    StateDamaged,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_py.state.catalog.layout import shuffles_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.messages import FrameId
    from ringpop_py.flow.shuffle.server.register import Register
    from ringpop_py.flow.shuffle.sorting.frames import Bytes
    from ringpop_py.state.stores.store import Store

T = TypeVar("T")

PUTS_MAX: Final = 16
OTHERS_MAX: Final = 4
"""The most puts, and the most other calls (which take long), that are at work at a time."""
DELETED_AT_A_TIME: Final = 1_000


def name_in_files(name: str) -> str:
    """Return a hash for the name of a shuffle, which may be long, with any characters."""
    return xxhash.xxh3_128_hexdigest(name.encode())


class Place(NamedTuple):
    """A segment of one shuffle."""

    name: str
    uid: int
    segment: int


class FrameStore:
    """See the module. *store* is None for a process that has none."""

    def __init__(self, store: Store | None, cluster: str) -> None:
        self._store = store
        self._prefix = shuffles_prefix(cluster)
        self._puts = trio.CapacityLimiter(PUTS_MAX)
        self._others = trio.CapacityLimiter(OTHERS_MAX)

    def check(self) -> None:
        """Raise ShuffleRefused if no frames can be put into a store here."""
        if self._store is None:
            raise ShuffleRefused(
                'durability "store" needs a node whose --store is a folder or a URL that other '
                "processes can open; memory: is not"
            )

    def _of_shuffle(self, name: str, uid: int) -> str:
        return f"{self._prefix}{name_in_files(name)}/{uid}/"

    def _of_segment(self, place: Place) -> str:
        return f"{self._of_shuffle(place.name, place.uid)}{place.segment}/"

    async def put(self, place: Place, frame: FrameId, body: Bytes) -> None:
        """Put a frame, which always has the same content, into a segment; return when it is there.

        Raises:
            ShuffleFull: the store has no room, or refuses values of this length.
            ShuffleRefused: there is no store here.
            ShuffleUnavailable: the store does not answer, or refuses; the frame may be there.
        """
        key = f"{self._of_segment(place)}{frame[0]:010}-{frame[1]:010}"
        await self._run(lambda store: store.put_if_absent(key, bytes(body)), self._puts)

    async def copy(self, place: Place, path: Path) -> None:
        """Write all frames of a segment to *path*. Raises OSError, ShuffleUnavailable."""

        def copied(store: Store) -> None:
            with path.open("wb") as file:
                for key in store.list(self._of_segment(place)):
                    trio.from_thread.check_cancelled()  # it may take minutes
                    # One that was deleted: the shuffle is over, and its segments no longer count.
                    file.write(store.get(key) or b"")

        await self._run(copied)

    async def remove(self, name: str, uid: int) -> None:
        """Delete all frames of a shuffle. Raises ShuffleUnavailable."""
        prefix = self._of_shuffle(name, uid)
        await self._run(lambda store: _delete(store, store.list(prefix)))

    async def tidy(self, register: Register) -> None:
        """Delete the frames that no shuffle needs any longer. Raises ShuffleUnavailable."""
        if self._store is None:
            return
        keys = await self._run(lambda store: store.list(self._prefix))
        if not keys:
            return
        # Read after the list: a shuffle that is younger has nothing in it.
        records = {name: stored.record for name, stored in (await register.read_all()).items()}
        needed = tuple(
            self._of_shuffle(name, record.uid)
            for name, record in records.items()
            if record.state in (State.PUT, State.ENDING, State.DAMAGED)
        )
        left = [key for key in keys if not key.startswith(needed)]
        await self._run(lambda store: _delete(store, left))

    async def _run(
        self, work: Callable[[Store], T], limiter: trio.CapacityLimiter | None = None
    ) -> T:
        self.check()
        assert self._store is not None
        try:
            limiter = limiter or self._others
            return await trio.to_thread.run_sync(work, self._store, limiter=limiter)
        except StoreFull as error:
            raise ShuffleFull(f"the store has no room for more rows: {error}") from error
        except StoreRefused as error:  # it may take them from another node
            raise ShuffleUnavailable(f"the store refuses this node: {error}") from error
        except (StoreUnavailable, StateDamaged) as error:
            raise ShuffleUnavailable(f"the store of rows does not answer: {error}") from error


def _delete(store: Store, keys: Sequence[str]) -> None:
    for first in range(0, len(keys), DELETED_AT_A_TIME):
        store.delete(keys[first : first + DELETED_AT_A_TIME])
