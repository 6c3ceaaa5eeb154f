"""Clients: each writes and reads, one request after the other, through the node that serves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_sim.state.journal.odds import PAUSE
from ringpop_sim.state.journal.owners import SERVED, UNMET, AskedWrite

if TYPE_CHECKING:
    from ringpop_sim.state.journal.process import JournalSurroundings, Part
    from ringpop_sim.state.journal.promises import Op

TRIES_MAX: Final = 12
LATE: Final = 0.3
"""The probability with which a copy of a write with a condition is on its way for long."""
LATE_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client behaves.

    Attributes:
        patience: how long it waits for an answer.
        todo: how many requests it makes in all.
        fickle: the probability with which it changes to another node than the one that served it.
            By staying, readers find replaced owners.
        writes: whether it writes at all.
        pause: the most time between two requests.
        back_off: the most time between a refusal and the next attempt.
        conditions: whether its writes have conditions, and some copies of them arrive late.
    """

    patience: int
    todo: int = 10
    fickle: float = 0.3
    writes: bool = True
    pause: int = PAUSE
    back_off: int = PAUSE
    conditions: bool = False

    def as_reader(self, todo: int = 30) -> Habits:
        """Return the habits of a client that only reads."""
        return replace(self, todo=todo, fickle=0.1, writes=False, pause=PAUSE)


class LogClient:
    """Repeats a refused or unanswered request, with the same id, through another node.

    The client learns of a success only while it waits; the truth learns of every success.
    """

    def __init__(self, world: JournalSurroundings, number: int, habits: Habits) -> None:
        self._world = world
        self._number = number
        self._habits = habits
        self._left = habits.todo
        self._reads_share = world.rng.random() * 0.7 if habits.writes else 1.0
        self._label = f"client {number}"
        self._op: Op | None = None
        self._partition = 0
        self._parity: int | None = None
        self._reads = False
        self._attempt = 0
        self._began_with = 0
        self._tries = 0
        self._served_by: dict[int, Part] = {}

    @property
    def done(self) -> bool:
        """Whether the client has nothing left to request."""
        return self._op is None and not self._left

    def begin(self) -> None:
        """Begin the next request."""
        if not self._left:
            self._op = None
            return
        self._left -= 1
        self._op = (self._number, self._left)
        self._tries = 0
        self._reads = self._world.rng.random() < self._reads_share
        self._partition = self._world.some_partition(self._number)
        # Once for all attempts: whichever is answered must show what was sure before the first.
        truth = self._world.truth.partitions[self._partition]
        self._began_with = truth.sure_count
        if not self._reads:
            truth.begins(self._op)
        if self._habits.conditions:
            self._parity = self._world.rng.randrange(2)
        self._world.note(self._label, ("reads" if self._reads else "writes", self._op))
        self._try()

    def _try(self) -> None:
        self._tries += 1
        if self._tries > TRIES_MAX:  # the outcome of this request stays open
            self.begin()
            return
        self._attempt += 1
        attempt, op, partition = self._attempt, self._op, self._partition
        assert op is not None
        self._world.after(self._habits.patience, lambda: self._waited(attempt))
        server = self._served_by.pop(partition, None)
        if server is None or self._world.rng.random() < self._habits.fickle:
            server = self._world.some_server(partition, self._number)
        if server is None:
            return
        self._served_by[partition] = server
        if self._reads:
            server.read(self._began_with, lambda said: self._told(attempt, said))
        else:
            done = partial(self._written, partition, op, attempt)
            asked = AskedWrite(op, done, self._parity, self._tries > 1)
            if self._habits.conditions and self._world.rng.random() < LATE:
                self._world.after(self._world.rng.randrange(LATE_MAX), lambda: server.write(asked))
            else:
                server.write(asked)

    def _written(self, partition: int, op: Op, attempt: int, said: str) -> None:
        if said == SERVED:
            self._world.truth.partitions[partition].acknowledges(op)
        elif said == UNMET and attempt == self._attempt:
            # An answer to an older attempt says nothing: a later one may have taken effect.
            self._world.truth.partitions[partition].refuses(op)
        self._told(attempt, said)

    def _told(self, attempt: int, said: str) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1  # later answers to this attempt are ignored
        pause = self._world.rng.random()
        if said in {SERVED, UNMET}:
            self._world.after(1 + int(pause * self._habits.pause), self.begin)
        else:
            self._served_by.pop(self._partition, None)
            self._world.after(1 + int(pause * self._habits.back_off), self._try)

    def _waited(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._served_by.pop(self._partition, None)
            self._try()
