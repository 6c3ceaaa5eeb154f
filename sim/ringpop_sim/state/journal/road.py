"""The unreliable road to the store of journals; lists and deletions take several steps there."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.records import Seal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ringpop_py.state.journal.records import Slot
    from ringpop_sim.state.journal.owners import Checkpoint
    from ringpop_sim.state.journal.process import JournalSurroundings, Line
    from ringpop_sim.state.journal.shelf import Shelf

    Steps = Iterable[Callable[[], None]]

Place = TypeVar("Place", bound=Any)  # whatever has an order

PUTS: Final = fx.PutSlot, fx.PutMark, fx.PutClaim, fx.PutCheckpoint
"""The requests that fail if the store has no room."""
LATE_MOST: Final = 400
"""How much later a request may take effect that was reported as failed, at most."""
LONG_PAUSES: Final = 0.05
"""The share of long pauses between two steps; there are many lists on the way of a partition."""


class Road:
    """The road between processes and the store: requests arrive late, twice or not at all.

    Attributes:
        loses_next: whether the next deletion of slots also loses a checkpoint that covers them.
    """

    def __init__(self, shelf: Shelf, world: JournalSurroundings) -> None:
        self.world = world
        self.shelf = shelf
        self.loses_next = False

    def ask(self, sender: Line, request: fx.Request, body: Checkpoint | None = None) -> None:
        """Send *request* of *sender* to the store, which carries it out at some time, or never.

        Args:
            body: what belongs to it, if it is a checkpoint.
        """
        rng, odds = self.world.rng, self.world.odds
        delay = self._delay(sender, request)
        if self.world.calm:
            self.carry(delay, sender, request, body)
            return
        chance = self._chance(request)
        if chance < odds.lost:
            self.fail(sender, request, delay)
            if rng.random() < 0.6:  # noqa: PLR2004 - a share; the other requests never arrived
                self.carry(delay, None, request, body)
            return
        # Reported as failed, and carried out long after, when other nodes may have gone on.
        if chance < odds.lost + odds.late:
            self.fail(sender, request, delay)
            self.carry(delay + int(rng.random() * LATE_MOST), None, request, body)
            return
        if isinstance(request, PUTS) and rng.random() < odds.no_room:
            # And not carried out: a store that answers this has to mean it.
            self.world.after(delay, partial(self.answer, sender, request, fx.StoreAnswer.NO_ROOM))
            return
        self.carry(delay, sender, request, body)
        if rng.random() < odds.doubled:
            self.carry(delay + int(rng.random() * 150), None, request, body)

    def carry(
        self, delay: int, sender: Line | None, request: fx.Request, body: Checkpoint | None
    ) -> None:
        """Carry out *request* after *delay*; without a *sender*, its reply goes nowhere."""
        after, reply = self.world.after, partial(self._reply, sender, request)
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

    def _chance(self, request: fx.Request) -> float:
        """Draw what happens to a request: the lower the number, the worse.

        A late seal is the worst that can happen, so late seals are drawn more often.
        """
        chance = self.world.rng.random()
        seals = isinstance(request, fx.PutSlot) and isinstance(request.record, Seal)
        return chance / 4 if seals else chance

    def _delay(self, sender: Line, request: fx.Request) -> int:
        """Draw how long *request* takes to reach the store."""
        rng, odds = self.world.rng, self.world.odds
        delay = 1 + int(rng.random() * 4)
        # A driver waits before it repeats a request.
        if getattr(request, "attempt", 0):
            delay += 3 + int(rng.random() * 8)
        if self.world.calm:
            return delay
        if rng.random() < odds.slow:
            delay += int(rng.random() * (120 if rng.random() < 0.3 else 20))  # noqa: PLR2004
        if sender.stalled_until > self.world.now:
            delay += int(rng.random() * (sender.stalled_until - self.world.now))
        if sender.online and isinstance(request, fx.GetSlot) and rng.random() < odds.late:
            delay += int(rng.random() * 250)  # much can happen before an owner sees its slot
        return delay

    def fail(self, sender: Line, request: fx.Request, delay: int) -> None:
        """Report *request* as failed."""
        self.world.after(delay + 8, partial(self.answer, sender, request, fx.StoreAnswer.FAILED))

    def answer(self, sender: Line, request: fx.Request, reply: fx.Reply) -> None:
        """Deliver *reply* to *sender*, if that has not crashed."""
        if sender.process.up:
            self.world.note(sender.label, (request.id, reply))
            sender.answered(request, reply)

    def _reply(self, sender: Line | None, request: fx.Request, reply: fx.Reply) -> None:
        """Send *reply*, the store's answer to *request*, to *sender*."""
        world = self.world
        whose = sender.label if sender is not None else "nobody"
        world.note("store", (request, reply, f"to {whose}"))
        if sender is not None:
            delay = 1 + int(world.rng.random() * 4) + self._lag(sender, request)
            if sender.stalled_until > world.now and not world.calm:
                delay += int(world.rng.random() * (sender.stalled_until - world.now))
            world.after(delay, partial(self.answer, sender, request, reply))

    def _lag(self, sender: Line, request: fx.Request) -> int:
        """Draw how much later than usual the reply to *request* arrives.

        Much can happen before an owner learns the outcome of its request.
        """
        owns = sender.online and isinstance(request, fx.PutSlot | fx.GetSlot)
        lags = owns and not self.world.calm
        return max(sender.process.lags_until - self.world.now, 0) if lags else 0

    # Operations that a store carries out in several steps, each at another moment.

    def _list_partition(self, request: fx.ListPartition, reply: Callable[[fx.Reply], None]) -> None:
        """List checkpoints first, and then claims, each in two pages."""
        checkpoints: list[Slot] = []
        epochs: list[int] = []
        steps = [
            *self._pages(self.shelf.checkpoints[request.partition], checkpoints),
            *self._pages(self.shelf.claims[request.partition], epochs),
        ]
        self._go_on(
            deque(steps), lambda: reply(fx.PartitionListed(sorted(epochs), sorted(checkpoints)))
        )

    def _list_journal(self, request: fx.ListJournal, reply: Callable[[fx.Reply], None]) -> None:
        """List marks in two pages, and slots, in any order of the two."""
        slots: list[int] = []
        marks: list[int] = []
        looks: list[Steps] = [self._pages(self.shelf.marks[request.journal], marks)]
        if not request.marks_only:
            looks.append([partial(_look, self.shelf.slots[request.journal], slots, None, None)])
        self.world.rng.shuffle(looks)
        self._go_on(
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
        self._go_on(deque(steps), done)

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

    def _pages(self, of: Collection[Place], into: list[Place]) -> Steps:
        """Return steps that read *of* in ascending order, and add what they find to *into*."""
        known = sorted(of)
        cut = known[int(self.world.rng.random() * len(known))] if known else None
        bounds = [(None, cut), (cut, None)] if cut else [(None, None)]
        return [partial(_look, of, into, after, up_to) for after, up_to in bounds]

    def _go_on(self, steps: deque[Callable[[], None]], done: Callable[[], None]) -> None:
        """Take all *steps*, with pauses, and then call *done*."""
        steps.popleft()()
        if steps:
            self.world.after(self._pause(), partial(self._go_on, steps, done))
        else:
            done()

    def _pause(self) -> int:
        """Draw the pause between two steps: mostly short."""
        chance = self.world.rng.random()
        is_short = self.world.calm or chance < 1 - LONG_PAUSES
        return int(chance * 3) if is_short else int(chance * 60)


def _look(
    of: Collection[Place], into: list[Place], after: Place | None, up_to: Place | None
) -> None:
    """Add to *into* those of *of* that are beyond *after*, and not beyond *up_to*."""
    into += [
        place
        for place in of
        if (after is None or place > after) and (up_to is None or place <= up_to)
    ]
