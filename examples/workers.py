"""What the examples share: workers on loopback sockets in this process, and a story to tell."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ringpop_py import PRESETS, Address, Config, Ringpop, open_ringpop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringpop_py import Keyspace

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - and there a folder with a name of its own
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
"""An example need not wait for a disk; whatever is at stake is put on one."""


class Workers:
    """Members of one cluster with one folder for a store. They can be stopped, and killed."""

    def __init__(self, nursery: trio.Nursery, store: Path) -> None:
        self.running: dict[str, Ringpop] = {}
        self._nursery = nursery
        self._store = store
        self._scopes: dict[str, trio.CancelScope] = {}
        self._stops: dict[str, trio.Event] = {}
        self._ended: dict[str, trio.Event] = {}

    async def start(self, name: str) -> Ringpop:
        """A worker that has joined."""
        await self._nursery.start(self._run, name)
        return self.running[name]

    async def stop(self, name: str) -> None:
        """Have it leave in good order: it seals its partitions and says farewell."""
        self._stops[name].set()
        await self._ended[name].wait()

    async def kill(self, name: str) -> None:
        """Have it vanish, as `kill -9` would: nothing is sealed, nobody is told."""
        self._scopes[name].cancel()
        await self._ended[name].wait()

    async def _run(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        hosts = [Address("127.0.0.1", node.address.port) for node in self.running.values()]
        config = Config(
            name=name,
            hosts=tuple(hosts),
            store=str(self._store),
            gossip=PRESETS["local"],
        )
        stop = self._stops[name] = trio.Event()
        ended = self._ended[name] = trio.Event()
        with trio.CancelScope() as self._scopes[name]:
            async with open_ringpop(config) as self.running[name]:
                task_status.started()
                await stop.wait()
        del self.running[name]
        ended.set()


@asynccontextmanager
async def open_workers() -> AsyncIterator[Workers]:
    """A cluster without workers, and an empty folder."""
    logging.getLogger("ringpop").setLevel(logging.ERROR)  # killed workers are what it shows
    folder = Path(tempfile.mkdtemp(prefix="ringpop-example-", dir=MEMORY))
    try:
        async with trio.open_nursery() as nursery:
            workers = Workers(nursery, folder)
            yield workers
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Task:
    """What runs in the background until it is told to stop, and then to the end of a step."""

    def __init__(self) -> None:
        self._stopping = False
        self._stopped = trio.Event()

    async def step(self) -> None:
        """One step of what it does."""
        raise NotImplementedError

    async def run(self) -> None:
        """Do step after step."""
        while not self._stopping:
            await self.step()
        self._stopped.set()

    async def stop(self) -> None:
        """Have it stop, and wait for that."""
        self._stopping = True
        await self._stopped.wait()


class Story:
    """Prints what happens, and when."""

    def __init__(self) -> None:
        self._began_at = time.perf_counter()

    def tell(self, text: str) -> None:
        """One more line."""
        print(f"{time.perf_counter() - self._began_at:6.2f} s  {text}", flush=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Return once *condition* holds; an example that waits for ever is no example."""
    with trio.move_on_after(30):
        while not condition():  # noqa: ASYNC110 - of several nodes, which send no event
            await trio.sleep(0.02)
        return
    message = f"waited in vain: {what}"
    raise SystemExit(message)


def all_at(keyspace: Keyspace, *names: str) -> Callable[[], bool]:
    """Whether *names*, and nobody else, serve all partitions, and none moves."""

    def are() -> bool:
        table = keyspace.table
        counts = table.counts()
        all_served = counts.total() == len(table)
        return all_served and set(counts) == set(names) and not table.moving

    return are
