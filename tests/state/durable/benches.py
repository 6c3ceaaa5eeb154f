"""Nodes with a writer and partitions each, over one store in memory, without a network."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import trio

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.values.operations import Change, Value, Write
from ringpop_py.base.values.packed import encode_value
from ringpop_py.net.transport.deadlines import Wheel, now_us
from ringpop_py.state.catalog.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.state.catalog.journalstore import JournalStore, KnownRecords
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.durable.partition import Partition, PartitionCopy, damage_of
from ringpop_py.state.durable.writer import Writer
from ringpop_py.state.journal.effects import Sealed
from ringpop_py.state.journal.records import Claim
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.desk import ReleaseJob
from ringpop_py.state.partition.machine import Machine
from ringpop_py.state.partition.record import (
    AskToRelease,
    CameBack,
    FoundDamage,
    JournalLost,
    LookDropped,
    NotGained,
    Perform,
    TakenOver,
    Way,
)
from ringpop_py.state.placement.assignment import Assignments
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.duties import ReleaseSaid
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.tasks import Worker
from tests.state.placement.sights import Members
from tests.state.table.reading import value_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.state.journal.recovery import MayTake
    from ringpop_py.state.table.entries import MemoryEntries

KEYS = KeyspaceKeys("test", "counts", 1)


def encode(value: Value) -> bytes:
    return encode_value("msgpack", value)


def anybody(_: Claim, __: int) -> bool:
    return True


def nobody(_: Claim, __: int) -> bool:
    return False


class DistantStore(MemoryStore):
    """Each look at it takes a turn of the loop, as a store on a disk or in a bucket does."""

    quick = False


class RecordingStore(MemoryStore):
    """It keeps the verbs and the keys of all calls."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def put_if_absent(self, key: str, value: bytes) -> bool:
        self.said.append(("put", key))
        return super().put_if_absent(key, value)

    def get(self, key: str) -> bytes | None:
        self.said.append(("get", key))
        return super().get(key)

    def list(self, prefix: str) -> list[str]:
        self.said.append(("list", prefix))
        return super().list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        self.said += [("delete", key) for key in keys]
        super().delete(keys)


class StoreWithARival(MemoryStore):
    """Just before a certain key is put, something else happens, once."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], object]] = {}

    def put_if_absent(self, key: str, value: bytes) -> bool:
        rival = self.before.pop(key, None)
        if rival is not None:
            rival()
        return super().put_if_absent(key, value)


class BenchMachine(Machine[Partition]):
    """Its partitions come and go as a test says, and not by themselves.

    Attributes:
        may_take: decides whether an owner that has not ended its epoch is replaced.
    """

    may_take: MayTake = staticmethod(nobody)

    def is_there(self, name: str) -> bool:
        """See `Machine`."""
        return not self.may_take(Claim(name, "", 0, None), 0)

    def is_wanted(self, _number: int) -> bool:
        """See `Holdings`."""
        return True

    def _look(self, now: int) -> None:
        pass

    def _due(self, number: int, now: int) -> None:
        pass

    def begin(self, partition: Partition, way: Way) -> None:
        """Have *partition* come in that way."""
        self.want(partition)
        assert partition.coming is not None
        partition.coming.way = way
        self.arrivals._queue(partition)


class BenchNode:
    """A node whose partitions come and go as a test says.

    Attributes:
        told: what happened to which partitions; for a loss, with the node that has it.
        seals: those that it has put into the journals of others.
    """

    def __init__(
        self, name: str, store: MemoryStore, nursery: trio.Nursery, **settings: int
    ) -> None:
        self.name = name
        self.told: list[tuple[object, ...]] = []
        self.seals: list[Sealed] = []
        self.errors: dict[Partition, KeyspaceError] = {}
        """Why the last try of each has failed."""
        self._worker = Worker(store, 1)
        self._known = KnownRecords()
        self._nursery = nursery
        self.machine = BenchMachine(
            "counts",
            1,
            Assignments(Definition(name="counts", partitions=8)),
            Members(name),
            StateConfig(**settings),
            self._logs().make_name,
            self.partition,
        )
        self.machine.table.desire([name] * 8)
        wheel = Wheel()
        self.writer = Writer(self.machine, self._logs(), self._logs(), self._spawn, wheel)
        self.writer.carry_out = self.carry_out
        nursery.start_soon(self._keep_time)
        nursery.start_soon(wheel.run)

    async def _keep_time(self) -> None:
        while True:
            await trio.sleep(0.1)
            self.carry_out(self.machine.advance(now_us()))

    def _logs(self) -> JournalStore:
        return JournalStore(KEYS, self._worker, self._known)

    def _spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        self._nursery.start_soon(function, *arguments)

    def _state(self, entries: MemoryEntries | None = None) -> KeyedState:
        return KeyedState(encode, Aggregations(), entries=entries)

    def partition(self, number: int = 0, entries: MemoryEntries | None = None) -> Partition:
        state, store = self._state(entries), self._logs()
        partition = Partition(number, state=state, store=store, writer=self.writer)
        NODES[partition] = self
        return partition

    def copy(self, number: int = 0) -> PartitionCopy:
        journal = self.writer.journal
        return PartitionCopy(number, state=self._state(), store=self._logs(), journal=journal)

    async def online(self, number: int = 0, entries: MemoryEntries | None = None) -> Partition:
        partition = self.partition(number, entries)
        assert await acquire(partition, anybody)
        return partition

    async def has(self, partition: Partition, way: Way, *ends: Presence) -> Presence:
        """Have *partition* come, up to one of *ends*; return which, or raise why it failed."""
        self.errors.pop(partition, None)
        self.machine.begin(partition, way)
        self.carry_out(self.machine.take(now_us()))
        await until(lambda: partition.presence in ends)
        error = self.errors.get(partition)
        if error is not None:
            raise error
        return partition.presence

    def carry_out(self, tasks: Iterable[object]) -> None:
        """As the driver of a share does."""
        machine = self.machine
        for each in tasks:
            self._carry_out(each)
        while machine.tasks or machine.ended:
            for each in machine.take(now_us()):
                self._carry_out(each)
        if not machine.desk.empty:
            self.writer.begin_work()

    def _carry_out(self, task: object) -> None:
        match task:
            case Perform():
                self.writer.ask(task)
            case LookDropped(partition):
                self.carry_out(self.machine.looked(partition, now_us(), dropped=False))
            case AskToRelease(number):
                self.carry_out(self.machine.asked(number, ReleaseSaid.NOT_YET, now_us()))
            case FoundDamage(partition, damage):
                self.errors[partition] = damage_of(damage, partition.store)
            case NotGained(partition, error):
                self.errors[partition] = error or partition.trouble
            case JournalLost(fact):
                again = [n for n, p in self.machine.parts.items() if p.presence in AGAIN]
                self.told.append(("fenced", sorted(again), fact.by))
            case CameBack(partition, epoch):
                self.told.append(("claimed again", partition.number, epoch))
            case TakenOver(number, to):
                self.told.append(("lost", number, to))
            case Sealed():
                self.seals.append(task)
            case _:
                pass


AGAIN = (Presence.RECLAIMING, Presence.UNWANTED)
NODES: WeakKeyDictionary[Partition, BenchNode] = WeakKeyDictionary()
"""Which node a partition is at."""


async def acquire(partition: Partition, may_take: MayTake) -> bool:
    """Have *partition* acquired; return whether it was. Raises KeyspaceError."""
    node = NODES[partition]
    node.machine.may_take = may_take
    ends = Presence.OWNED, Presence.PENDING, Presence.GONE
    return await node.has(partition, Way.TAKE_OVER, *ends) is Presence.OWNED


async def follow(partition: Partition) -> None:
    """Have *partition* read up to its present end. Raises KeyspaceError."""
    await NODES[partition].has(partition, Way.HAND_OVER, Presence.PENDING)


async def release(partition: Partition, to: str) -> ReleaseSaid:
    """Have *partition* released to another node."""
    node, said = NODES[partition], list[ReleaseSaid]()
    node.machine.table.desire([to] * 8)
    node.machine.releases.ask(partition.number, partition.epoch, "", to, said.append)
    node.carry_out(())
    await until(lambda: said)
    return said[0]


async def release_unknown(writer: Writer, partition: Partition) -> None:
    """Have *partition* released to "b" behind the back of the machine, so that nobody knows."""
    job = ReleaseJob(partition, "b")
    partition.to(Presence.RELEASING)
    writer.desk.add_release(job)
    await writer.wait(job)


class Bench:
    """What the nodes share."""

    def __init__(self, store: MemoryStore, nursery: trio.Nursery) -> None:
        self.store = store
        self._nursery = nursery
        self._nodes: dict[str, BenchNode] = {}

    def node(self, name: str, **settings: int) -> BenchNode:
        """The node *name*, made with *settings* if it is not there yet."""
        if name not in self._nodes:
            self._nodes[name] = BenchNode(name, self.store, self._nursery, **settings)
        return self._nodes[name]

    async def online(self, node: str, number: int = 0, **settings: int) -> Partition:
        return await self.node(node, **settings).online(number)

    def slots_of(self, node: str) -> list[str]:
        """The keys of the present journal's slots of *node*."""
        keys = KEYS.journal(self.node(node).writer.journal.name)
        return [key for key in self.store.list(keys.root) if not key.startswith(keys.marks)]

    def slot_key(self, node: str, slot: int) -> str:
        return KEYS.journal(self.node(node).writer.journal.name).slot(slot)


@asynccontextmanager
async def a_bench(store: MemoryStore | None = None) -> AsyncIterator[Bench]:
    """A bench without nodes; all that runs in them ends with the block."""
    async with trio.open_nursery() as nursery:
        yield Bench(MemoryStore() if store is None else store, nursery)
        nursery.cancel_scope.cancel()


def add(sequence: int, key: str = "k", source: str = "s") -> Write:
    return Write(source, sequence, (Change(key, "add", 1),))


async def total(partition: Partition, key: str = "k") -> object:
    return await partition.read(lambda state: value_in(state, key))


async def put_checkpoint(partition: Partition) -> bool:
    """Write a whole checkpoint of *partition* as it is now; whether it is durable."""
    number, slot = partition.number, partition.position
    file = encode_checkpoint(Checkpoint("counts", 1, number, slot, (), partition.state.whole()))
    return await partition._writer.checkpoint(number, slot, file, ())


async def until(condition: Callable[[], Any]) -> None:
    """Return once *condition* is true."""
    while not condition():
        await trio.sleep(0.01)
