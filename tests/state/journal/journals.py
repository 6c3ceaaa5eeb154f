"""Journals and recoveries of several nodes over one store whose replies the test holds back."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeVar

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.journal.records import Claim, Entry, Group
from ringpop_py.state.journal.recovery import Recovery
from ringpop_py.state.journal.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.state.journal.asker import Asker
    from ringpop_py.state.journal.records import Mark, Record, Slot
    from ringpop_py.state.journal.recovery import MayTake

R = TypeVar("R", bound=fx.Request)
K = TypeVar("K")
V = TypeVar("V")


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
    """What all nodes share. `answer` carries a request out at once, and says what became of it.

    Attributes:
        unreadable: by the key of something in one of the other maps, why it cannot be read.
    """

    def __init__(self) -> None:
        self.slots: dict[tuple[str, int], Record] = {}
        self.marks: dict[tuple[str, int], Mark] = {}
        self.claims: dict[tuple[int, int], Claim] = {}
        self.checkpoints: dict[tuple[int, Slot], tuple[object, ...]] = {}
        self.unreadable: dict[object, str] = {}

    def slots_of(self, journal: str) -> list[int]:
        return sorted(slot for name, slot in self.slots if name == journal)

    def marks_of(self, journal: str) -> list[int]:
        return sorted(slot for name, slot in self.marks if name == journal)

    def checkpoints_of(self, partition: int) -> list[Slot]:
        return sorted(slot for number, slot in self.checkpoints if number == partition)

    def answer(self, request: fx.Request, snapshot: tuple[object, ...] = ()) -> fx.Reply:
        match request:
            case fx.ListJournal(_, journal, marks_only):
                slots = [] if marks_only else self.slots_of(journal)
                return fx.JournalListed(slots, self.marks_of(journal))
            case fx.ListPartition(_, number):
                epochs = sorted(epoch for partition, epoch in self.claims if partition == number)
                return fx.PartitionListed(epochs, self.checkpoints_of(number))
            case fx.DeleteSlots(_, journal, slots, marks):
                _delete(self.slots, ((journal, slot) for slot in slots))
                _delete(self.marks, ((journal, slot) for slot in marks))
                return fx.StoreAnswer.DELETED
            case fx.DeleteCheckpoints(_, number, gone):
                _delete(self.checkpoints, ((number, at) for at in gone))
                return fx.StoreAnswer.DELETED
            case fx.GetSlot() | fx.GetMark() | fx.GetClaim() | fx.GetCheckpoint():
                return self._get(request)
            case _:
                return self._put(request, snapshot)

    def _put(
        self,
        request: fx.PutSlot | fx.PutMark | fx.PutClaim | fx.PutCheckpoint,
        snapshot: tuple[object, ...],
    ) -> fx.StoreAnswer:
        match request:
            case fx.PutSlot(_, journal, slot, record):
                return _put(self.slots, (journal, slot), record)
            case fx.PutMark(_, journal, slot, mark):
                return _put(self.marks, (journal, slot), mark)
            case fx.PutClaim(_, number, epoch, claim):
                return _put(self.claims, (number, epoch), claim)
            case fx.PutCheckpoint(_, number, at):
                return _put(self.checkpoints, (number, at), snapshot)

    def _get(self, request: fx.GetSlot | fx.GetMark | fx.GetClaim | fx.GetCheckpoint) -> fx.Reply:
        match request:
            case fx.GetSlot(_, journal, slot):
                return self._got(self.slots, (journal, slot))
            case fx.GetMark(_, journal, slot):
                return self._got(self.marks, (journal, slot))
            case fx.GetClaim(_, number, epoch):
                return self._got(self.claims, (number, epoch))
            case fx.GetCheckpoint(_, number, at):
                reply = self._got(self.checkpoints, (number, at))
                return fx.GoneCheckpoint(at) if reply is fx.StoreAnswer.ABSENT else reply

    def _got(self, values: Mapping[K, object], key: K) -> fx.Reply:
        if key in self.unreadable:
            return fx.Unreadable(self.unreadable[key])
        return fx.Found(values[key]) if key in values else fx.StoreAnswer.ABSENT


def _put(values: dict[K, V], key: K, value: V) -> fx.StoreAnswer:
    if key in values:
        return fx.StoreAnswer.TAKEN
    values[key] = value
    return fx.StoreAnswer.WON


def _delete(values: dict[K, V], keys: Iterable[K]) -> None:
    for key in keys:
        values.pop(key, None)


class Node:
    """A journal, recoveries, and a driver that carries out what they ask for until nothing is left.

    Its journals are named after it: ``a1``, and after each fence ``a2`` and so on.

    Attributes:
        folds: of all partitions that were ever here.
        asked: what was asked of the store, in order.
        seals: what recoveries here have reported of their seals.
    """

    def __init__(self, name: str, store: Store, *, life: str = "") -> None:
        numbers = count(1)
        self.store = store
        self.journal = Journal(name, lambda: f"{name}{life}{next(numbers)}")
        self.folds: dict[int, Bodies] = {}
        self.asked: list[fx.Request] = []
        self.seals: list[fx.Sealed] = []
        self._recoveries: dict[int, Recovery] = {}

    def recovery(self, partition: int = 0) -> Recovery:
        """The one on its way, or a new one."""
        if partition not in self._recoveries:
            fold = self.folds[partition] = Bodies()
            self._recoveries[partition] = Recovery(partition, fold, self.journal)
        return self._recoveries[partition]

    def bodies(self, partition: int = 0) -> list[object]:
        return self.folds[partition].bodies

    def run(self, asker: Asker, effects: Iterable[fx.Effect]) -> list[fx.Effect]:
        """Carry out *effects* and what follows from them; the facts but `Sealed`."""
        facts: list[fx.Effect] = []
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, fx.Request):
                self.asked.append(effect)
                queue += asker.answered(effect.id, self._reply(effect))
            elif isinstance(effect, fx.Sealed):
                self.seals.append(effect)
            else:
                facts.append(effect)
                if isinstance(effect, fx.Acquired):
                    del self._recoveries[effect.partition]
        return facts

    def _reply(self, request: fx.Request) -> fx.Reply:
        if isinstance(request, fx.PutCheckpoint):
            return self.store.answer(request, tuple(self.bodies(request.partition)))
        return self.store.answer(request)

    def until(
        self, asker: Asker, effects: Iterable[fx.Effect], kind: type[R]
    ) -> tuple[R, list[fx.Effect]]:
        """Carry out *effects* up to the first request of *kind*; that one, and what is left."""
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, fx.Sealed):
                self.seals.append(effect)
                continue
            assert isinstance(effect, fx.Request), effect
            if isinstance(effect, kind):
                return effect, queue
            self.asked.append(effect)
            queue += asker.answered(effect.id, self._reply(effect))
        raise AssertionError(f"no {kind.__name__} was asked for")

    def kinds(self) -> list[type[fx.Request]]:
        """The kinds of what was asked since the last call."""
        found = [type(request) for request in self.asked]
        self.asked.clear()
        return found

    # Recoveries.

    def acquire(
        self, partition: int = 0, *, take: bool = False, may: MayTake | None = None
    ) -> list[fx.Effect]:
        recovery = self.recovery(partition)
        return self.run(recovery, recovery.acquire(may or (lambda *_: take)))

    def acquires(self, *partitions: int, take: bool = False) -> None:
        for partition in partitions:
            assert isinstance(self.acquire(partition, take=take)[0], fx.Acquired)

    def follow(self, partition: int = 0, *, miss_nothing: bool = False) -> list[fx.Effect]:
        recovery = self.recovery(partition)
        return self.run(recovery, recovery.follow(miss_nothing=miss_nothing))

    # The journal.

    def commit(self, *bodies: object, partition: int = 0) -> None:
        """One group for each of *bodies*."""
        for body in bodies:
            self.group({partition: body})

    def group(self, bodies: Mapping[int, object]) -> None:
        slot = self.journal.next_slot
        assert self.run(self.journal, self.journal.commit(bodies)) == [fx.Committed(slot)]

    def checkpoint(self, partition: int = 0, *, keeps: tuple[Slot, ...] = ()) -> list[fx.Effect]:
        slot = self.journal.position(partition)
        return self.run(self.journal, self.journal.checkpoint(partition, slot, keeps))

    def trim(self) -> list[fx.Effect]:
        return self.run(self.journal, self.journal.trim())

    def sweep(self, journal: str) -> list[fx.Effect]:
        sweep = Sweep(journal)
        return self.run(sweep, sweep.begin())


def only(effects: list[fx.Effect], kind: type[R]) -> R:
    """The one request among *effects*, which has nothing else."""
    [request] = effects
    assert isinstance(request, kind), request
    return request


def group(*entries: tuple[int, int, object]) -> Group:
    return Group(tuple(Entry(*entry) for entry in entries))
