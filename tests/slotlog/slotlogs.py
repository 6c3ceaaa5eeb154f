"""Slot logs of several nodes over one store whose replies the test holds in its hand."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ringpop_py.slotlog.effects import (
    Committed,
    Delete,
    Effect,
    Found,
    GetCheckpoint,
    GetSlot,
    GoneCheckpoint,
    Listed,
    ListLog,
    PutCheckpoint,
    PutMark,
    PutSlot,
    Reply,
    Request,
    StoreAnswer,
    Unreadable,
)
from ringpop_py.slotlog.slotlog import SlotLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.slotlog.slots import Record, Slot

REQUESTS = PutSlot | GetSlot | ListLog | GetCheckpoint | PutCheckpoint | PutMark | Delete


class Bodies:
    """A fold that keeps the bodies, in order."""

    def __init__(self) -> None:
        self.bodies: list[object] = []

    def reset(self) -> None:
        self.bodies.clear()

    def restore(self, checkpoint: object) -> None:
        assert isinstance(checkpoint, tuple)
        self.bodies[:] = checkpoint

    def apply(self, body: object) -> None:
        self.bodies.append(body)


class Store:
    """What all nodes share. `answer` carries a request out at once, and says what became of it."""

    def __init__(self) -> None:
        self.slots: dict[Slot, Record] = {}
        self.checkpoints: dict[Slot, tuple[object, ...]] = {}
        self.marks: set[Slot] = set()
        self.unreadable: dict[Slot, str] = {}
        self._nonces = count()

    def nonce(self) -> str:
        return f"nonce {next(self._nonces)}"

    def answer(self, request: Request, snapshot: tuple[object, ...] = ()) -> Reply:
        match request:
            case PutSlot() | PutCheckpoint() | PutMark():
                return self._put(request, snapshot)
            case GetSlot(slot=slot):
                return self._got(self.slots, slot)
            case ListLog():
                return Listed(sorted(self.slots), sorted(self.checkpoints), sorted(self.marks))
            case GetCheckpoint(slot=slot):
                reply = self._got(self.checkpoints, slot)
                return GoneCheckpoint(slot) if reply is StoreAnswer.ABSENT else reply
            case Delete(slots=slots, checkpoints=checkpoints, marks=marks):
                self.marks.difference_update(marks)
                for slot in slots:
                    self.slots.pop(slot, None)
                for slot in checkpoints:
                    self.checkpoints.pop(slot, None)
                return StoreAnswer.DELETED

    def _put(
        self, request: PutSlot | PutCheckpoint | PutMark, snapshot: tuple[object, ...]
    ) -> StoreAnswer:
        match request:
            case PutSlot(slot=slot, record=record):
                there = set(self.slots)
                self.slots.setdefault(slot, record)
            case PutCheckpoint(slot=slot):
                there = set(self.checkpoints)
                self.checkpoints.setdefault(slot, snapshot)
            case PutMark(slot=slot):
                there = set(self.marks)
                self.marks.add(slot)
        return StoreAnswer.TAKEN if slot in there else StoreAnswer.WON

    def _got(self, values: Mapping[Slot, object], slot: Slot) -> Reply:
        if slot in self.unreadable:
            return Unreadable(self.unreadable[slot])
        return Found(values[slot]) if slot in values else StoreAnswer.ABSENT


class Node:
    """A log, and a driver that carries out what it asks for until nothing is left to do."""

    def __init__(self, name: str, store: Store) -> None:
        self.store = store
        self.fold = Bodies()
        self.log = SlotLog(name, self.fold, store.nonce)
        self.asked: list[Request] = []

    def run(self, effects: Iterable[Effect]) -> list[Effect]:
        """Carry out *effects* and what follows from them; the facts."""
        facts: list[Effect] = []
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, REQUESTS):
                self.asked.append(effect)
                reply = self.store.answer(effect, tuple(self.fold.bodies))
                queue += self.log.answered(effect.id, reply)
            else:
                facts.append(effect)
        return facts

    def acquire(self, *, take: bool = False) -> list[Effect]:
        return self.run(self.log.acquire(lambda *_: take))

    def commit(self, *bodies: object) -> None:
        for body in bodies:
            assert self.run(self.log.commit(body)) == [Committed(self.log.position)]

    def checkpoint(self) -> list[Effect]:
        return self.run(self.log.checkpoint(self.log.position))


def only(effects: list[Effect]) -> Request:
    """The one request among *effects*, which has nothing else."""
    [request] = effects
    assert isinstance(request, REQUESTS)
    return request
