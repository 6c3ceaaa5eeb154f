"""Nodes with a writer and partitions each, over one store in memory, without a network."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import trio

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable
from ringpop_py.base.values.operations import Change, Value, Write
from ringpop_py.base.values.packed import encode_value
from ringpop_py.net.transport.deadlines import Wheel, now_us
from ringpop_py.state.catalog.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.state.catalog.journalstore import JournalStore, KnownRecords
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.durable.partition import Partition, PartitionCopy
from ringpop_py.state.durable.writer import Writer
from ringpop_py.state.journal.desk import ReleaseJob
from ringpop_py.state.journal.effects import Sealed
from ringpop_py.state.journal.records import Claim
from ringpop_py.state.ownership.local import JournalLost, LookDropped, NotGained, Perform
from ringpop_py.state.ownership.ownership import Ownership
from ringpop_py.state.placement import duties as do
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.tasks import Worker
from tests.state.table.reading import value_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

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


class BenchSteward:
    """Wants what a test says, and has each result. See `DurableSteward`."""

    failure = ""
    next_deadline = 1 << 62

    def __init__(self, told: list[tuple[object, ...]]) -> None:
        self.may_take: MayTake = nobody
        self.results: dict[do.Duty, object] = {}
        self._told = told

    def may_replace(self, _duty: do.Acquire, owner: str, epoch: int) -> bool:
        return self.may_take(Claim(owner, "", 0, None), epoch)

    def done(self, duty: do.Duty, result: object, _now: int) -> list[do.Task]:
        self.results[duty] = result
        if isinstance(result, do.Taken):
            return [do.Serve(duty.number, result.epoch)]  # type: ignore[union-attr]
        return []

    def fenced(self, numbers: Iterable[int], _now: int) -> list[do.Task]:
        self._told.append(("fenced", sorted(numbers)))
        return []

    def claimed_again(self, number: int, epoch: int, _now: int) -> list[do.Task]:
        self._told.append(("claimed again", number, epoch))
        return []

    def lost(self, number: int, to: str, _now: int) -> list[do.Task]:
        self._told.append(("lost", number, to))
        return [do.Drop(number)]


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
        self.steward = BenchSteward(self.told)
        self.errors: dict[Partition, KeyspaceError] = {}
        """Why the last try of each has failed."""
        self._worker = Worker(store, 1)
        self._known = KnownRecords()
        self._nursery = nursery
        self.ownership: Ownership[Partition] = Ownership(
            name,
            self._logs().make_name,
            StateConfig(**settings),
            self.steward,  # type: ignore[arg-type]
            self.partition,
        )
        wheel = Wheel()
        self.writer = Writer(self.ownership, self._logs(), self._logs(), self._spawn, wheel)
        self.writer.carry_out = self.carry_out
        nursery.start_soon(self._keep_time)
        nursery.start_soon(wheel.run)

    async def _keep_time(self) -> None:
        while True:
            await trio.sleep(0.1)
            self.ownership.advance(now_us())
            self.carry_out()

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
        assert isinstance(await acquire(partition, anybody), do.Taken)
        return partition

    async def has(self, duty: do.Duty, partition: Partition) -> object:
        """Have *duty* carried out on *partition*; return its result, or raise why it failed."""
        self.steward.results.pop(duty, None)
        self.errors.pop(partition, None)
        self.ownership.carry_out([duty], now_us())
        self.carry_out()
        await until(lambda: duty in self.steward.results)
        result = self.steward.results[duty]
        if isinstance(result, do.Trouble):
            error = self.errors.get(partition) or partition.trouble
            raise error or PartitionUnavailable("it was lost at once")
        return result

    def carry_out(self) -> None:
        """As the driver of a share does."""
        ownership = self.ownership
        while ownership.out or ownership.ended:
            for each in ownership.take(now_us()):
                self._carry_out(each)
        if not ownership.desk.empty:
            self.writer.begin_work()

    def _carry_out(self, task: object) -> None:
        match task:
            case Perform():
                self.writer.ask(task)
            case LookDropped(partition):
                self.ownership.arrivals.looked(partition, now_us(), dropped=False)
            case NotGained(partition, error):
                self.errors[partition] = error or partition.trouble
            case JournalLost(fact, count):
                at = next(at for at, each in enumerate(self.told) if len(each) == 2)
                what, numbers = self.told[at]
                self.told[at] = (what, numbers, fact.by)
                assert isinstance(numbers, list)
                assert count >= len(numbers)
            case Sealed():
                self.seals.append(task)
            case _:
                pass


NODES: WeakKeyDictionary[Partition, BenchNode] = WeakKeyDictionary()
"""Which node a partition is at."""


async def acquire(partition: Partition, may_take: MayTake) -> do.Taken | do.HeldBy:
    """Have *partition* acquired. Raises KeyspaceError."""
    node = NODES[partition]
    node.steward.may_take = may_take
    node.ownership.arrivals.pending[partition.number] = partition
    result = await node.has(do.Acquire(partition.number), partition)
    assert isinstance(result, do.Taken | do.HeldBy)
    return result


async def follow(partition: Partition) -> None:
    """Have *partition* read up to its present end. Raises KeyspaceError."""
    node = NODES[partition]
    node.ownership.arrivals.pending[partition.number] = partition
    await node.has(do.Follow(partition.number), partition)


async def release(partition: Partition, to: str) -> do.ReleaseSaid:
    """Have *partition* released to another node."""
    said = await NODES[partition].has(do.ReleaseTo(partition.number, to), partition)
    assert isinstance(said, do.ReleaseSaid)
    return said


async def release_unknown(writer: Writer, partition: Partition) -> None:
    """Have *partition* released to "b" without its steward, so that nobody knows."""
    job = ReleaseJob(partition, "b")
    writer.desk.add_release(job)
    await writer.wait(job)


def leave(partition: Partition) -> None:
    """Give *partition* up."""
    node = NODES[partition]
    node.ownership.releases.leave(partition)
    node.carry_out()


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
