"""The store of a simulated keyspace, and the unreliable way to it."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.slotlog import effects as fx
from ringpop_sim.units import ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.keyed.keyed import Snapshot
    from ringpop_py.placing.assignment import Assignment
    from ringpop_py.slotlog.slots import Record, Slot
    from ringpop_sim.plans.plan import FailStore
    from ringpop_sim.world.world import World

Reply = fx.Reply
V = TypeVar("V")
LATENCY_US: Final = (500, 3 * ms)
SLOW_US: Final = (100 * ms, 900 * ms)
LATE_US: Final = (10 * ms, 3_000 * ms)
"""How much later than its reply says a put is carried out, if its outcome is unknown."""
UNKNOWN_SHARE: Final = 0.4


@dataclass(slots=True)
class Log:
    """The objects of one partition."""

    slots: dict[Slot, Record] = field(default_factory=dict)
    checkpoints: dict[Slot, tuple[tuple[Slot, ...], Snapshot]] = field(default_factory=dict)
    marks: dict[Slot, None] = field(default_factory=dict)


class SharedStore:
    """What all nodes keep in one store. Calls take time, and fail as faults of the plan say."""

    def __init__(self, world: World) -> None:
        self.logs: defaultdict[int, Log] = defaultdict(Log)
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

    def perform(
        self,
        partition: int,
        request: fx.Request,
        snapshot: tuple[tuple[Slot, ...], Snapshot] | None,
    ) -> Reply:
        """Carry out *request* on the log of *partition*; a `PutCheckpoint` puts *snapshot*."""
        log = self.logs[partition]
        reply: Reply
        match request:
            case fx.PutSlot():
                reply = _put(log.slots, request.slot, request.record)
            case fx.PutMark():
                reply = _put(log.marks, request.slot, None)
            case fx.PutCheckpoint():
                assert snapshot is not None
                reply = _put(log.checkpoints, request.slot, snapshot)
            case fx.GetSlot():
                record = log.slots.get(request.slot)
                reply = fx.StoreAnswer.ABSENT if record is None else fx.Found(record)
            case fx.GetCheckpoint():
                reply = self._checkpoint(log, request.slot)
            case fx.ListLog():
                reply = fx.Listed(sorted(log.slots), sorted(log.checkpoints), sorted(log.marks))
            case fx.Delete():
                _delete(log, request)
                reply = fx.StoreAnswer.DELETED
        return reply

    @staticmethod
    def _checkpoint(log: Log, slot: Slot) -> Reply:
        found = log.checkpoints.get(slot)
        if found is None:
            return fx.GoneCheckpoint(slot)
        snapshots = []
        for each in (*found[0], slot):
            if each not in log.checkpoints:
                return fx.GoneCheckpoint(each)
            snapshots.append(log.checkpoints[each][1])
        return fx.Found(snapshots)


def _put(objects: dict[Slot, V], slot: Slot, value: V) -> fx.StoreAnswer:
    if slot in objects:
        return fx.StoreAnswer.TAKEN
    objects[slot] = value
    return fx.StoreAnswer.WON


def _delete(log: Log, request: fx.Delete) -> None:
    for objects, slots in (
        (log.slots, request.slots),
        (log.checkpoints, request.checkpoints),
        (log.marks, request.marks),
    ):
        for slot in slots:
            objects.pop(slot, None)
