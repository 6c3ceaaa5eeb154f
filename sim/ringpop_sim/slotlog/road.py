"""The unreliable road to the store; lists and deletions take several steps there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
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

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable

    from ringpop_py.slotlog.slots import Slot
    from ringpop_sim.slotlog.process import LogProcess
    from ringpop_sim.slotlog.shelf import Checkpoint, Shelf

    Steps = Iterable[Callable[[], None]]


@dataclass(slots=True)
class Odds:
    """The probabilities of events in a schedule; drawn for each, so that schedules differ."""

    lost: float
    late: float
    doubled: float
    no_room: float
    slow: float
    stall: float
    crash: float
    whim: float
    takes: float
    hears: float
    leaves: float
    checkpoint: float
    whole: float
    follow: float
    drop: float
    patience: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Odds:
        """Return odds drawn from *rng*."""
        # The odds are drawn in this order; in another, each seed would be another schedule.
        hard = rng.random() < 0.35  # noqa: PLR2004 - a share

        def some(most: float) -> float:
            """Return 0 often, otherwise up to *most*; more of everything in a hard schedule."""
            if hard:
                return (0.4 + 0.6 * rng.random()) * most
            return 0.0 if rng.random() < 0.25 else rng.random() * most  # noqa: PLR2004 - a share

        return cls(
            lost=some(0.12),
            late=some(0.15),
            doubled=some(0.25),
            no_room=some(0.05),
            slow=some(0.3),
            stall=some(0.06),
            crash=some(0.03),
            whim=some(0.3),
            takes=some(0.95),
            hears=0.03 + rng.random() ** 2,
            leaves=0.05 + rng.random() * 0.5,
            checkpoint=some(0.8),
            whole=rng.random(),
            follow=some(0.5),
            drop=some(0.02),
            patience=20 + int(rng.random() * 60),
        )


class RoadSurroundings(Protocol):
    """What a road needs from its world."""

    rng: random.Random
    odds: Odds
    calm: bool
    now: int

    def after(self, delay: int, what: Callable[[], None]) -> None:
        """Call *what* after *delay*."""

    def lives(self, process: LogProcess) -> bool:
        """Return whether *process* has not crashed."""

    def crash_all(self) -> None:
        """Crash all processes."""

    def note(self, who: str, what: object) -> None:
        """Add *what* to the trace."""


class Road:
    """The road between processes and the store: requests arrive late, twice or not at all.

    Attributes:
        loses_next: whether the next deletion of all records also loses their checkpoint.
    """

    def __init__(self, shelf: Shelf, world: RoadSurroundings) -> None:
        self.shelf = shelf
        self.loses_next = False
        self._world = world

    def ask(self, process: LogProcess, request: Request, body: Checkpoint | None) -> None:
        """Send *request* of *process* to the store, which carries it out at some time, or never."""
        rng, odds = self._world.rng, self._world.odds
        delay = self._delay(process, request)
        if self._world.calm:
            self._carry(delay, process, request, body)
            return
        chance = rng.random()
        if chance < odds.lost:
            self._fail(process, request, delay)
            if rng.random() < 0.6:  # noqa: PLR2004 - a share; the other requests never arrived
                self._carry(delay, None, request, body)
            return
        # Reported as failed, and carried out long after, when other nodes may have gone on.
        if chance < odds.lost + odds.late:
            self._fail(process, request, delay)
            self._carry(delay + int(rng.random() * 250), None, request, body)
            return
        if isinstance(request, PutSlot | PutCheckpoint | PutMark) and rng.random() < odds.no_room:
            # And not carried out: a store that answers this has to mean it.
            self._world.after(delay, partial(self._answer, process, request, StoreAnswer.NO_ROOM))
            return
        self._carry(delay, process, request, body)
        if rng.random() < odds.doubled:
            self._carry(delay + int(rng.random() * 150), None, request, body)

    def _delay(self, process: LogProcess, request: Request) -> int:
        """Draw how long *request* takes to the store."""
        rng, odds = self._world.rng, self._world.odds
        delay = 1 + int(rng.random() * 4)
        # A driver waits before it repeats a request.
        if getattr(request, "attempt", 0):
            delay += 3 + int(rng.random() * 8)
        if self._world.calm:
            return delay
        if rng.random() < odds.slow:
            delay += int(rng.random() * (120 if rng.random() < 0.3 else 20))  # noqa: PLR2004
        if process.stalled_until > self._world.now:
            delay += int(rng.random() * (process.stalled_until - self._world.now))
        if process.online and isinstance(request, GetSlot) and rng.random() < odds.late:
            delay += int(rng.random() * 250)  # much can happen before an owner sees its slot
        return delay

    def _fail(self, process: LogProcess, request: Request, delay: int) -> None:
        self._world.after(delay + 8, partial(self._answer, process, request, StoreAnswer.FAILED))

    def _answer(self, process: LogProcess, request: Request, reply: Reply) -> None:
        """Deliver *reply* to *process*, if that has not crashed."""
        if self._world.lives(process):
            self._world.note(process.label, (request.id, reply))
            process.answered(request.id, reply)

    def _carry(
        self, delay: int, process: LogProcess | None, request: Request, body: Checkpoint | None
    ) -> None:
        """Carry out *request* after *delay*; without a *process*, its reply goes nowhere."""
        if isinstance(request, ListLog):
            if process is not None:  # a list changes nothing, so nobody misses it
                reply = partial(self._reply, process, request)
                self._world.after(delay, partial(self._list_all, reply))
        elif isinstance(request, Delete):
            deleted = partial(self._deleted, process, request)
            stops = process is None
            self._world.after(delay, partial(self._delete, request, deleted, stops=stops))
        elif process is not None or not isinstance(request, GetSlot | GetCheckpoint):
            self._world.after(delay, partial(self._reach, process, request, body))

    def _reach(self, process: LogProcess | None, request: Any, body: Checkpoint | None) -> None:  # noqa: ANN401 - of several kinds
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
        self._reply(process, request, reply)

    def _reply(self, process: LogProcess | None, request: Request, reply: Reply) -> None:
        whose = process.label if process is not None else "nobody"
        self._world.note("store", (request, reply, f"to {whose}"))
        if process is not None:
            delay = 1 + int(self._world.rng.random() * 4)
            if process.stalled_until > self._world.now and not self._world.calm:
                delay += int(self._world.rng.random() * (process.stalled_until - self._world.now))
            self._world.after(delay, partial(self._answer, process, request, reply))

    def _deleted(self, process: LogProcess | None, request: Delete) -> None:
        self._reply(process, request, StoreAnswer.DELETED)
        shelf = self.shelf
        # With records after it, their gap would show that the checkpoint is lost. Here only the
        # mark can.
        later = max(shelf.slots, default=ORIGIN) > max(shelf.checkpoints, default=ORIGIN)
        if not self.loses_next or self._world.calm or later:
            return
        self.loses_next = False
        shelf.lose_checkpoint(newest=True)
        self._world.crash_all()

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
            [partial(_look, shelf.slots, slots, None, None)],
            self._pages(shelf.checkpoints, checkpoints),
            self._pages(shelf.marks, marks),
        ]
        self._world.rng.shuffle(looks)
        listed = Listed(slots, checkpoints, marks)
        self._go_on(deque(chain.from_iterable(looks)), partial(_tell, done, listed))

    def _pages(self, of: Collection[Slot], into: list[Slot]) -> Steps:
        """Return steps that read *of* in ascending order, and add what they find to *into*."""
        known = sorted(of)
        cut = known[int(self._world.rng.random() * len(known))] if known else None
        bounds = [(None, cut), (cut, None)] if cut else [(None, None)]
        return [partial(_look, of, into, after, up_to) for after, up_to in bounds]

    def _delete(self, request: Delete, done: Callable[[], None], *, stops: bool) -> None:
        """Delete slots, checkpoints and marks, in any order; then call *done*.

        With *stops*, perhaps only the first parts are deleted.
        """
        shelf, rng = self.shelf, self._world.rng
        parts = [shelf.delete_slots, shelf.delete_checkpoints, shelf.delete_marks]
        rng.shuffle(parts)
        if stops:
            # As by a process that crashed in between.
            parts = parts[: 1 + int(rng.random() * len(parts))]
        self._go_on(deque(partial(part, request) for part in parts), done)

    def _go_on(self, steps: deque[Callable[[], None]], done: Callable[[], None]) -> None:
        steps.popleft()()
        if steps:
            self._world.after(self._pause(), partial(self._go_on, steps, done))
        else:
            done()

    def _pause(self) -> int:
        """Draw the pause between two steps: mostly short."""
        chance = self._world.rng.random()
        is_short = self._world.calm or chance < 0.8  # noqa: PLR2004 - a share
        return int(chance * 3) if is_short else int(chance * 60)


def _look(of: Collection[Slot], into: list[Slot], after: Slot | None, up_to: Slot | None) -> None:
    """Add to *into* those of *of* that are beyond *after*, and not beyond *up_to*."""
    into += [
        slot for slot in of if (after is None or slot > after) and (up_to is None or slot <= up_to)
    ]


def _tell(done: Callable[[Listed], None], listed: Listed) -> None:
    # The parts were read in any order; a store's list is sorted.
    done(Listed(*map(sorted, (listed.slots, listed.checkpoints, listed.marks))))
