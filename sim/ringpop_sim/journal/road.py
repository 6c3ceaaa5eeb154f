"""The road to the store of journals; lists and deletions take several steps there."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ringpop_py.journal import effects as fx
from ringpop_py.journal.records import Seal
from ringpop_sim.schedules.road import Road, RoadSurroundings, look

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ringpop_py.slotlog.slots import Slot
    from ringpop_sim.journal.shelf import Shelf
    from ringpop_sim.schedules.owners import Checkpoint
    from ringpop_sim.schedules.road import Sender, Steps


class JournalSurroundings(RoadSurroundings, Protocol):
    """What the road needs from its world."""

    def lag(self, sender: Any) -> int:  # noqa: ANN401 - of the checker's kind
        """Return for how long the replies to *sender* are held up, from now on."""

    def crash_all(self) -> None:
        """Crash all processes."""


class JournalRoad(Road):
    """See `Road`.

    Attributes:
        loses_next: whether the next deletion of slots also loses a checkpoint that covers them.
    """

    puts = fx.PutSlot, fx.PutMark, fx.PutClaim, fx.PutCheckpoint
    looks = fx.GetSlot
    late_most = 400
    long_pauses = 0.05  # there are many lists on the way of a partition
    world: JournalSurroundings

    def __init__(self, shelf: Shelf, world: JournalSurroundings) -> None:
        super().__init__(world)
        self.shelf = shelf
        self.loses_next = False

    def carry(
        self, delay: int, sender: Sender | None, request: fx.Request, body: Checkpoint | None
    ) -> None:
        """See `Road`."""
        after, reply = self.world.after, partial(self.reply, sender, request)
        match request:
            case fx.DeleteSlots() | fx.DeleteCheckpoints():
                done = partial(self._deleted, request, partial(reply, fx.StoreAnswer.DELETED))
                after(delay, partial(self._delete, request, done, stops=sender is None))
            case fx.PutCheckpoint():
                assert body is not None
                put = partial(self.shelf.put_checkpoint, request, body)
                after(delay, lambda: reply(put()))
            case fx.PutSlot() | fx.PutMark() | fx.PutClaim():
                after(delay, lambda: reply(self.shelf.put(request)))
            case _ if sender is None:  # it changes nothing, so nobody misses it
                pass
            case fx.ListPartition():
                after(delay, partial(self._list_partition, request, reply))
            case fx.ListJournal():
                after(delay, partial(self._list_journal, request, reply))
            case fx.GetCheckpoint():
                after(delay, lambda: reply(self.shelf.get_checkpoint(request)))
            case fx.GetSlot() | fx.GetMark() | fx.GetClaim():
                after(delay, lambda: reply(self.shelf.get(request)))

    def chance(self, request: object) -> float:
        """See `Road`. A late seal is the worst that can happen, so there are more of them."""
        chance = super().chance(request)
        seals = isinstance(request, fx.PutSlot) and isinstance(request.record, Seal)
        return chance / 4 if seals else chance

    def lag(self, sender: Sender, request: object) -> int:
        """See `Road`. Much can happen before an owner learns what it has done, or seen."""
        owns = sender.online and isinstance(request, fx.PutSlot | fx.GetSlot)
        return self.world.lag(sender) if owns else 0

    # Operations that a store carries out in several steps, each at another moment.

    def _list_partition(self, request: fx.ListPartition, reply: Callable[[object], None]) -> None:
        """List checkpoints first, and then claims, each in two pages."""
        checkpoints: list[Slot] = []
        epochs: list[int] = []
        steps = [
            *self.pages(self.shelf.checkpoints[request.partition], checkpoints),
            *self.pages(self.shelf.claims[request.partition], epochs),
        ]
        self.go_on(
            deque(steps), lambda: reply(fx.PartitionListed(sorted(epochs), sorted(checkpoints)))
        )

    def _list_journal(self, request: fx.ListJournal, reply: Callable[[object], None]) -> None:
        """List marks in two pages, and slots, in any order of the two."""
        slots: list[int] = []
        marks: list[int] = []
        looks: list[Steps] = [self.pages(self.shelf.marks[request.journal], marks)]
        if not request.marks_only:
            looks.append([partial(look, self.shelf.slots[request.journal], slots, None, None)])
        self.world.rng.shuffle(looks)
        self.go_on(
            deque(chain.from_iterable(looks)),
            lambda: reply(fx.JournalListed(sorted(slots), sorted(marks))),
        )

    def _delete(
        self,
        request: fx.DeleteSlots | fx.DeleteCheckpoints,
        done: Callable[[], None],
        *,
        stops: bool,
    ) -> None:
        """Delete in some order, and then call *done*; with *stops*, perhaps only the first parts.

        It stops as by a process that crashed in between.
        """
        shelf, rng = self.shelf, self.world.rng
        if isinstance(request, fx.DeleteSlots):
            steps = self._parts(partial(shelf.delete_slots, request.journal), request.slots)
            steps.append(partial(shelf.delete_marks, request.journal, request.marks))
        else:
            delete = partial(shelf.delete_checkpoints, request.partition)
            steps = self._parts(delete, request.slots)
        rng.shuffle(steps)
        if stops:
            steps = steps[: 1 + int(rng.random() * len(steps))]
        self.go_on(deque(steps), done)

    def _parts(
        self, delete: Callable[[Collection[Any]], None], keys: Collection[Any]
    ) -> list[Callable[[], None]]:
        """Return two steps that together delete *keys*, each some of them."""
        first = [key for key in keys if self.world.rng.random() < 0.5]  # noqa: PLR2004 - a share
        rest = [key for key in keys if key not in first]
        return [partial(delete, first), partial(delete, rest)]

    def _deleted(self, request: fx.Request, reply: Callable[[], None]) -> None:
        reply()
        # With slots after it, their gap would show that the checkpoint is lost. Here only the mark
        # can.
        if self.loses_next and not self.world.calm and isinstance(request, fx.DeleteSlots):
            self.loses_next = False
            self.shelf.lose_checkpoint(newest=True)
            self.world.crash_all()
