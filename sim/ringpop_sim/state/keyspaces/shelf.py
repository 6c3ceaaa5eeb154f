"""The store of a simulated keyspace, and the unreliable way to it."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from ringpop_py.state.journal import effects as fx
from ringpop_sim.units import ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.journal.records import Claim, Mark, Record, Slot
    from ringpop_py.state.placement.assignment import Assignment
    from ringpop_py.state.table.keyed import Snapshot
    from ringpop_sim.plans.plan import FailStore
    from ringpop_sim.world.world import World

K = TypeVar("K")
V = TypeVar("V")
Put = fx.PutSlot | fx.PutMark | fx.PutClaim | fx.PutCheckpoint
Delete = fx.DeleteSlots | fx.DeleteCheckpoints
List = fx.ListJournal | fx.ListPartition
Get = fx.GetSlot | fx.GetMark | fx.GetClaim | fx.GetCheckpoint
CHANGES: Final = frozenset[type]([*get_args(Put), *get_args(Delete)])
LISTS: Final = frozenset[type](get_args(List))
LATENCY_US: Final = (500, 3 * ms)
SLOW_US: Final = (100 * ms, 900 * ms)
LATE_US: Final = (10 * ms, 3_000 * ms)
"""How much later than its reply says a put is carried out, if its outcome is unknown."""
UNKNOWN_SHARE: Final = 0.4


@dataclass(slots=True)
class JournalObjects:
    """The objects of one journal."""

    slots: dict[int, Record] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)


@dataclass(slots=True)
class PartitionObjects:
    """The objects of one partition."""

    claims: dict[int, Claim] = field(default_factory=dict)
    checkpoints: dict[Slot, Snapshot] = field(default_factory=dict)


class SharedStore:
    """The store that all nodes share. Calls take time, and fail as the plan's faults say."""

    def __init__(self, world: World) -> None:
        self.journals: defaultdict[str, JournalObjects] = defaultdict(JournalObjects)
        self.partitions: defaultdict[int, PartitionObjects] = defaultdict(PartitionObjects)
        self.assignments: dict[int, Assignment] = {}
        self._world = world
        self._rng = random.Random(f"store {world.seed}")
        self._faults: list[FailStore] = []
        assert world.plan.keyspace is not None
        self._read_us = world.plan.keyspace.store_read_us
        self._write_us = world.plan.keyspace.store_write_us
        self._list_us = world.plan.keyspace.store_list_us

    def begin(self, fault: FailStore) -> None:
        """Begin *fault*."""
        self._faults.append(fault)

    def end(self, fault: FailStore) -> None:
        """End *fault*."""
        self._faults.remove(fault)

    def is_disk_full(self, number: int) -> bool:
        """Return whether node *number* has no room for the states of its partitions."""
        return "disk" in self._how(number)

    def refuses(self, _number: int) -> bool:
        """Return whether writes of that node are refused, and not just fail."""
        return False

    def _how(self, number: int) -> set[str]:
        return {f.how for f in self._faults if not f.nodes or number in f.nodes}

    def call(
        self,
        number: int,
        act: Callable[[], Any],
        answer: Callable[[Any], None],
        *,
        puts: bool,
        lists: bool = False,
    ) -> None:
        """Do *act* for node *number*, and call *answer* with its result, or FAILED or NO_ROOM."""
        how, now = self._how(number), self._world.now
        delay_us = self._write_us if puts else self._list_us if lists else self._read_us
        if "slow" in how or not delay_us:
            delay_us = self._between(SLOW_US if "slow" in how else LATENCY_US)
        if "cut" in how:
            self._world.push(now + delay_us, answer, fx.StoreAnswer.FAILED)
        elif puts and how & {"full", "read-only"}:
            refusal = fx.StoreAnswer.NO_ROOM if "full" in how else fx.StoreAnswer.FAILED
            self._world.push(now + delay_us, answer, refusal)
        elif "unknown" in how and self._rng.random() < UNKNOWN_SHARE:
            # Never, now, or only after it was reported to have failed.
            if puts and self._rng.random() < 0.7:  # noqa: PLR2004 - a share
                late_us = self._between(LATE_US) if self._rng.random() < 0.5 else 0  # noqa: PLR2004
                self._world.push(now + delay_us + late_us, lambda _: act())
            self._world.push(now + delay_us, answer, fx.StoreAnswer.FAILED)
        else:
            self._world.push(now + delay_us // 2, self._do, (act, answer, delay_us // 2))

    def _do(self, argument: tuple[Callable[[], Any], Callable[[Any], None], int]) -> None:
        act, answer, delay_us = argument
        self._world.push(self._world.now + delay_us, answer, act())

    def _between(self, bounds: tuple[int, int]) -> int:
        low, high = bounds
        return low + int(self._rng.random() * (high - low))

    def journals_with_slots(self) -> list[str]:
        """Return the names of the journals that have slots, sorted."""
        return sorted(name for name, journal in self.journals.items() if journal.slots)

    def perform(self, request: fx.Request, snapshot: Snapshot | None) -> fx.Reply:
        """Carry out *request*; a `PutCheckpoint` puts *snapshot*."""
        if isinstance(request, Put):
            return self._put(request, snapshot)
        if isinstance(request, Delete):
            self._delete(request)
            return fx.StoreAnswer.DELETED
        return self._read(request)

    def _put(self, request: Put, snapshot: Snapshot | None) -> fx.StoreAnswer:
        match request:
            case fx.PutSlot(_, journal, slot, record):
                return _put(self.journals[journal].slots, slot, record)
            case fx.PutMark(_, journal, slot, mark):
                return _put(self.journals[journal].marks, slot, mark)
            case fx.PutClaim(_, number, epoch, claim):
                return _put(self.partitions[number].claims, epoch, claim)
            case fx.PutCheckpoint(_, number, at):
                assert snapshot is not None
                return _put(self.partitions[number].checkpoints, at, snapshot)

    def _delete(self, request: Delete) -> None:
        if isinstance(request, fx.DeleteSlots):
            journal = self.journals[request.journal]
            for slot in request.slots:
                journal.slots.pop(slot, None)
            for slot in request.marks:
                journal.marks.pop(slot, None)
        else:
            for at in request.slots:
                self.partitions[request.partition].checkpoints.pop(at, None)

    def _read(self, request: Get | List) -> fx.Reply:
        match request:
            case fx.GetSlot(_, name, slot):
                return _found(self.journals[name].slots.get(slot))
            case fx.GetMark(_, name, slot):
                return _found(self.journals[name].marks.get(slot))
            case fx.GetClaim(_, number, epoch):
                return _found(self.partitions[number].claims.get(epoch))
            case fx.GetCheckpoint(_, number, at):
                snapshot = self.partitions[number].checkpoints.get(at)
                return fx.GoneCheckpoint(at) if snapshot is None else fx.Found([snapshot])
            case fx.ListJournal(_, name, marks_only):
                journal = self.journals[name]
                slots = [] if marks_only else sorted(journal.slots)
                return fx.JournalListed(slots, sorted(journal.marks))
            case fx.ListPartition(_, number):
                partition = self.partitions[number]
                return fx.PartitionListed(sorted(partition.claims), sorted(partition.checkpoints))


def _put(objects: dict[K, V], key: K, value: V) -> fx.StoreAnswer:
    if key in objects:
        return fx.StoreAnswer.TAKEN
    objects[key] = value
    return fx.StoreAnswer.WON


def _found(value: object) -> fx.Reply:
    return fx.StoreAnswer.ABSENT if value is None else fx.Found(value)
