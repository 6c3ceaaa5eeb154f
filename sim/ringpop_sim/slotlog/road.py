"""The road to the store of a log; lists and deletions take several steps there."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ringpop_py.slotlog.effects import (
    Delete,
    GetCheckpoint,
    GetSlot,
    Listed,
    ListLog,
    PutCheckpoint,
    PutMark,
    PutSlot,
    Reply,
    Request,
    StoreAnswer,
)
from ringpop_py.slotlog.slots import ORIGIN
from ringpop_sim.schedules.road import Road, RoadSurroundings, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.slotlog.slots import Slot
    from ringpop_sim.schedules.owners import Checkpoint
    from ringpop_sim.schedules.road import Sender, Steps
    from ringpop_sim.slotlog.shelf import Shelf


class LogSurroundings(RoadSurroundings, Protocol):
    """What the road needs from its world."""

    def crash_all(self) -> None:
        """Crash all processes."""


class LogRoad(Road):
    """See `Road`.

    Attributes:
        loses_next: whether the next deletion of all records also loses their checkpoint.
    """

    puts = PutSlot, PutCheckpoint, PutMark
    looks = GetSlot
    world: LogSurroundings

    def __init__(self, shelf: Shelf, world: LogSurroundings) -> None:
        super().__init__(world)
        self.shelf = shelf
        self.loses_next = False

    def carry(
        self, delay: int, process: Sender | None, request: Request, body: Checkpoint | None
    ) -> None:
        """See `Road`."""
        if isinstance(request, ListLog):
            if process is not None:  # a list changes nothing, so nobody misses it
                reply = partial(self.reply, process, request)
                self.world.after(delay, partial(self._list_all, reply))
        elif isinstance(request, Delete):
            deleted = partial(self._deleted, process, request)
            stops = process is None
            self.world.after(delay, partial(self._delete, request, deleted, stops=stops))
        elif process is not None or not isinstance(request, GetSlot | GetCheckpoint):
            self.world.after(delay, partial(self._reach, process, request, body))

    def _reach(self, process: Sender | None, request: Any, body: Checkpoint | None) -> None:  # noqa: ANN401 - of several kinds
        shelf = self.shelf
        if isinstance(request, PutSlot):
            reply: Reply = shelf.put(request)
        elif isinstance(request, PutMark):
            reply = shelf.put_mark(request)
        elif isinstance(request, GetSlot):
            reply = shelf.get(request)
        elif isinstance(request, GetCheckpoint):
            reply = shelf.get_checkpoint(request)
        else:
            assert body is not None
            reply = shelf.put_checkpoint(request, body)
        self.reply(process, request, reply)

    def _deleted(self, process: Sender | None, request: Delete) -> None:
        self.reply(process, request, StoreAnswer.DELETED)
        shelf = self.shelf
        # With records after it, their gap would show that the checkpoint is lost. Here only the
        # mark can.
        later = max(shelf.slots, default=ORIGIN) > max(shelf.checkpoints, default=ORIGIN)
        if not self.loses_next or self.world.calm or later:
            return
        self.loses_next = False
        shelf.lose_checkpoint(newest=True)
        self.world.crash_all()

    # Operations that a store carries out in several steps, each at another moment.

    def _list_all(self, done: Callable[[Listed], None]) -> None:
        """Call *done* with a list of all slots, checkpoints and marks.

        Checkpoints are read up to some slot, and the others later; marks likewise; then slots.
        Any of the three may come first.
        """
        shelf = self.shelf
        slots: list[Slot] = []
        checkpoints: list[Slot] = []
        marks: list[Slot] = []
        looks: list[Steps] = [
            [partial(look, shelf.slots, slots, None, None)],
            self.pages(shelf.checkpoints, checkpoints),
            self.pages(shelf.marks, marks),
        ]
        self.world.rng.shuffle(looks)
        listed = Listed(slots, checkpoints, marks)
        self.go_on(deque(chain.from_iterable(looks)), partial(_tell, done, listed))

    def _delete(self, request: Delete, done: Callable[[], None], *, stops: bool) -> None:
        """Delete slots, checkpoints and marks, in any order; then call *done*.

        With *stops*, perhaps only the first parts are deleted.
        """
        shelf, rng = self.shelf, self.world.rng
        parts = [shelf.delete_slots, shelf.delete_checkpoints, shelf.delete_marks]
        rng.shuffle(parts)
        if stops:
            # As by a process that crashed in between.
            parts = parts[: 1 + int(rng.random() * len(parts))]
        self.go_on(deque(partial(part, request) for part in parts), done)


def _tell(done: Callable[[Listed], None], listed: Listed) -> None:
    # The parts were read in any order; a store's list is sorted.
    done(Listed(*map(sorted, (listed.slots, listed.checkpoints, listed.marks))))
