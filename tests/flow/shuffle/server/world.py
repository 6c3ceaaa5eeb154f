"""Processes for shuffles in one program: real hosts and files, and peers that can be disturbed.

Time is virtual. The clock stands still while threads are at work, because a jump in that time would
let every deadline pass.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import trio

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.client.members import Shuffler
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.home import View
from ringpop_py.flow.shuffle.protocol.record import MemberId, Record, State, Winner
from ringpop_py.flow.shuffle.server.context import Process
from ringpop_py.flow.shuffle.server.framestore import FrameStore
from ringpop_py.flow.shuffle.server.host import Host
from ringpop_py.flow.shuffle.server.register import Stored
from ringpop_py.flow.shuffle.server.server import Server
from ringpop_py.flow.shuffle.sorting.disk import Disk
from ringpop_py.flow.shuffle.sorting.frame_builder import entries_of, last_frame_of
from ringpop_py.flow.shuffle.sorting.frames import entry_of
from ringpop_py.flow.shuffle.sorting.interval import batches_of
from ringpop_py.flow.shuffle.sorting.order import Order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from ringpop_py.flow.shuffle.server.shuffle import Shuffle
    from ringpop_py.flow.shuffle.sorting.frames import Bytes
    from ringpop_py.state.stores.store import Store

SCHEMA = pa.schema([("key", pa.int64())])
ORDER = Order(SCHEMA, ("key",))


class Records:
    """The register of all processes, in memory."""

    def __init__(self) -> None:
        self.by_name: dict[str, Stored] = {}

    async def read(self, name: str) -> Stored | None:
        await trio.lowlevel.checkpoint()
        return self.by_name.get(name)

    async def read_all(self) -> dict[str, Stored]:
        await trio.lowlevel.checkpoint()
        return dict(self.by_name)

    async def set(self, name: str, former: Stored | None, record: Record) -> bool:
        await trio.lowlevel.checkpoint()
        if self.by_name.get(name) != former:
            return False
        self.by_name[name] = Stored(record, str(record.version))
        return True


class Peers:
    """Calls other processes of the world, unless a test refuses, delays or damages that."""

    def __init__(self, world: World, me: str) -> None:
        self._world = world
        self._me = me

    async def call(
        self,
        member: MemberId,
        call: c.Call,
        body: Bytes = b"",
        *,
        timeout_s: float,
        path: Path | None = None,
        bulk: bool = False,  # noqa: ARG002 - as `Peers` has it
    ) -> tuple[c.Reply, bytearray]:
        with trio.move_on_after(timeout_s):
            reply = await self._world.disturb(self._me, member, call)
            if reply is None:
                reply = await self._answer(member, call, body, path)
            return reply, bytearray()
        raise ShuffleUnavailable(f"{member} did not answer within {timeout_s:g} s")

    async def _answer(
        self, member: MemberId, call: c.Call, body: Bytes, path: Path | None
    ) -> c.Reply:
        self._world.calls[type(call).__name__] += 1
        server = self._world.servers[member.host]
        answer = await server._answer_of(call, memoryview(bytes(body)))
        if not isinstance(answer, tuple):
            return answer
        assert path is not None
        said, file = answer
        with file, path.open("wb") as copy:
            await trio.to_thread.run_sync(shutil.copyfileobj, file, copy)
        self._world.damage(call, path)
        return said


class World:
    """Processes by the names of their nodes.

    Attributes:
        disturb: called before each call of a process to another one, with the caller's name; it may
            wait, raise, or return what is answered in the other one's place.
        damage: called with each file that was fetched.
        gone: what all processes believe to be gone.
        calls: how many reached another process, by kind.
    """

    def __init__(self, folder: Path, nursery: trio.Nursery, store: Store | None = None) -> None:
        self._folder = folder
        self._nursery = nursery
        self.records = Records()
        self.frames = FrameStore(store, "main")
        self.hosts: dict[str, Host] = {}
        self.servers: dict[str, Server] = {}
        self.disks: dict[str, Disk] = {}
        self.shufflers: dict[str, Shuffler] = {}
        self.gone: frozenset[MemberId] = frozenset()
        self.calls: Counter[str] = Counter()
        self.disturb: Callable[[str, MemberId, c.Call], Awaitable[c.Reply | None]] = nothing
        self.damage: Callable[[c.Call, Path], None] = lambda _call, _path: None

    def add(self, name: str, *, limit: int = 1 << 40, sort_bytes: int = 1 << 30) -> Host:
        """Add a process."""
        self.shufflers[name] = Shuffler("127.0.0.1:1", 1)
        disk = self.disks[name] = Disk(limit)
        process = Process(
            name,
            1,
            cast("Any", self.records),
            cast("Any", self),
            cast("Any", Peers(self, name)),
            trio.CapacityLimiter(1),
            sort_bytes,
            disk,
            self.frames,
            self._nursery,
        )
        self.path_of(name).mkdir()
        host = self.hosts[name] = Host(process, self.path_of(name), self._nursery)
        self.servers[name] = Server(host, 1 << 30, None)
        return host

    def path_of(self, name: str) -> Path:
        """Return the folder of a process."""
        return self._folder / name

    # As a `Watch`, of all processes.

    def view_of(self, record: Record, me: MemberId, *, is_member: bool) -> View:
        """Return what is believed of the members of *record*."""
        gone = frozenset(each for each in record.members if each in self.gone)
        return View(gone, () if is_member else (me,))

    def addresses(self) -> dict[str, str]:
        """Return where processes listen."""
        return {}

    # What tests do.

    async def create(self, name: str = "mine", intervals: int = 3, **more: Any) -> Shuffle:  # noqa: ANN401
        """Create a shuffle at all processes, and return that of the first one."""
        definition = c.Definition(bytes(SCHEMA.serialize()), ("key",), **more)
        first, *others = self.hosts.values()
        shuffle = await first.create(c.Create(name, definition, intervals))
        for other in others:
            await (await other.find(name)).read()
        return shuffle

    def members(self, name: str = "mine") -> dict[str, Shuffle]:
        """Return the shuffle *name* of each process that knows it."""
        return {n: host._shuffles[name] for n, host in self.hosts.items() if name in host._shuffles}

    def state(self, name: str = "mine") -> State:
        """Return the state of the shuffle *name*."""
        return self.records.by_name[name].record.state

    async def put(self, shuffle: Shuffle, attempt: int, keys: Iterable[int]) -> Winner:
        """Put *keys* as an attempt of two frames and its last one."""
        keys = list(keys)
        half = len(keys) // 2
        frames = [
            entry
            for first, some in enumerate((keys[:half], keys[half:]))
            for entry in entries_of(ORDER, table(some), attempt, first)
        ]
        frames.append(entry_of(last_frame_of(attempt, len(frames), len(keys))))
        for frame in frames:
            while (await shuffle.put(shuffle.record.uid, frame)).answer != 200:
                await trio.sleep(0.05)
        return Winner(len(frames) - 1, len(keys))

    async def end(self, shuffle: Shuffle, winners: dict[int, Winner]) -> None:
        """End the shuffle, and return when its rows can be read, or it is damaged."""
        await shuffle.end(shuffle.record.uid, winners)
        await until(lambda: self.state(shuffle.name) is not State.ENDING)

    def keys(self, name: str = "mine") -> list[int]:
        """Return the keys of all intervals in order, by the files of their owners."""
        record = self.records.by_name[name].record
        keys: list[int] = []
        for number, interval in enumerate(record.intervals):
            path = self.members(name)[interval.holders[0].host].here.folder.interval(number)
            for batch in batches_of(path):
                keys += batch.column("key").to_pylist()
        return keys

    def on_disk(self, name: str) -> int:
        """Return the size of all files of a process."""
        return sum(each.stat().st_size for each in self.path_of(name).rglob("*") if each.is_file())


async def nothing(_me: str, _member: MemberId, _call: c.Call) -> None:
    """Disturb nothing."""


def table(keys: Iterable[int]) -> pa.Table:
    """Return rows with these keys."""
    return pa.table({"key": list(keys)}, schema=SCHEMA)


def frame(attempt: int, number: int, keys: Iterable[int]) -> bytes:
    """Return one frame."""
    [entry] = entries_of(ORDER, table(keys), attempt, number)
    return entry


async def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until *condition* holds, at most so many virtual *seconds*."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.05)


@asynccontextmanager
async def world_of(
    folder: Path, *names: str, store: Store | None = None, **settings: int
) -> AsyncIterator[World]:
    """Yield a world with these processes, which end with the block."""
    async with trio.open_nursery() as nursery:
        world = World(folder, nursery, store)
        for name in names:
            world.add(name, **settings)
        yield world
        nursery.cancel_scope.cancel()
