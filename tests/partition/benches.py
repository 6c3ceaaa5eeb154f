"""Nodes with a writer and partitions each, over one store in memory, without a network."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from ringpop_py.config.settings import StateConfig
from ringpop_py.journal.effects import Acquired
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.partition.checkpoints import Checkpoint, encode_checkpoint
from ringpop_py.partition.journalstore import JournalStore, KnownRecords
from ringpop_py.partition.partition import Partition
from ringpop_py.partition.tasks import Worker
from ringpop_py.partition.writer import Writer
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.stores.memory import MemoryStore
from ringpop_py.values.operations import Change, Value, Write
from ringpop_py.values.packed import encode_value
from tests.keyed.reading import value_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ringpop_py.journal.effects import Fenced, Sealed
    from ringpop_py.journal.records import Claim
    from ringpop_py.keyed.entries import MemoryEntries
    from ringpop_py.partition.writer import Written

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


class BenchNode:
    """A node; as the `Keeper` of its writer it notes what it is told.

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
        self._worker = Worker(store, 1)
        self._known = KnownRecords()
        self._nursery = nursery
        self.writer = Writer(name, self._logs(), self._logs(), StateConfig(**settings), self._spawn)
        self.writer.keeper = self

    def _logs(self) -> JournalStore:
        return JournalStore(KEYS, self._worker, self._known)

    def _spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        self._nursery.start_soon(function, *arguments)

    def partition(self, number: int = 0, entries: MemoryEntries | None = None) -> Partition:
        return Partition(
            number,
            state=KeyedState(encode, Aggregations(), entries=entries),
            store=self._logs(),
            writer=self.writer,
        )

    async def online(self, number: int = 0, entries: MemoryEntries | None = None) -> Partition:
        partition = self.partition(number, entries)
        assert isinstance(await partition.acquire(anybody), Acquired)
        return partition

    # As `Keeper`.

    def fenced(self, fence: Fenced, partitions: Sequence[Written]) -> None:
        self.told.append(("fenced", sorted(p.number for p in partitions), fence.by))

    def claimed_again(self, partition: Written, epoch: int) -> None:
        self.told.append(("claimed again", partition.number, epoch))

    def lost(self, partition: Written, to: str) -> None:
        self.told.append(("lost", partition.number, to))

    def has_sealed(self, seal: Sealed) -> None:
        self.seals.append(seal)


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
    slot = partition.position
    checkpoint = Checkpoint("counts", 1, partition.number, slot, (), partition.state.whole())
    return await partition.checkpoint(slot, encode_checkpoint(checkpoint), ())


async def until(condition: Callable[[], Any]) -> None:
    """Return once *condition* is true."""
    while not condition():
        await trio.sleep(0.01)
