"""Shared by the examples: workers on loopback sockets in this process, and a story to tell."""

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
"""Where the examples keep their store: in memory if possible. Real data belong on a disk."""


class Workers:
    """Members of one cluster with one folder as their store. They can be stopped, and killed."""

    def __init__(self, nursery: trio.Nursery, store: Path) -> None:
        self.running: dict[str, Ringpop] = {}
        self._nursery = nursery
        self._store = store
        self._scopes: dict[str, trio.CancelScope] = {}
        self._stops: dict[str, trio.Event] = {}
        self._ended: dict[str, trio.Event] = {}

    async def start(self, name: str) -> Ringpop:
        """Start a worker, and return it when it has joined."""
        await self._nursery.start(self._run, name)
        return self.running[name]

    async def stop(self, name: str) -> None:
        """Let a worker leave in order: it seals its partitions and announces its departure."""
        self._stops[name].set()
        await self._ended[name].wait()

    async def kill(self, name: str) -> None:
        """Kill a worker, as `kill -9` would: nothing is sealed or announced."""
        self._scopes[name].cancel()
        await self._ended[name].wait()

    async def _run(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        # Each that runs is a seed; the first worker has none, and starts alone.
        hosts = [Address("127.0.0.1", node.address.port) for node in self.running.values()]
        config = Config(
            name=name,
            hosts=tuple(hosts),
            store=str(self._store),
            create_store=True,
            gossip=PRESETS["local"],
        )
        stop = self._stops[name] = trio.Event()
        ended = self._ended[name] = trio.Event()
        with trio.CancelScope() as self._scopes[name]:
            async with open_ringpop(config) as self.running[name]:
                task_status.started()
                await stop.wait()
        # Before the event, so that those who wait for it do not find the worker.
        del self.running[name]
        ended.set()


@asynccontextmanager
async def open_workers() -> AsyncIterator[Workers]:
    """Yield a cluster without workers, and with an empty folder."""
    logging.getLogger("ringpop").setLevel(logging.ERROR)  # warnings about killed workers distract
    folder = Path(tempfile.mkdtemp(prefix="ringpop-example-", dir=MEMORY))
    try:
        async with trio.open_nursery() as nursery:
            workers = Workers(nursery, folder)
            yield workers
            # The story is over, so workers that still run need no farewell.
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Task:
    """A background task, which ends after its current step once it is asked to stop."""

    def __init__(self) -> None:
        self._stopping = False
        self._stopped = trio.Event()

    async def step(self) -> None:
        """Do one step."""
        raise NotImplementedError

    async def run(self) -> None:
        """Do step after step."""
        while not self._stopping:
            await self.step()
        self._stopped.set()

    async def stop(self) -> None:
        """Ask the task to stop, and wait until it has."""
        self._stopping = True
        await self._stopped.wait()


class Story:
    """Prints what happens, and when."""

    def __init__(self) -> None:
        self._began_at = time.perf_counter()

    def tell(self, text: str) -> None:
        """Print one line."""
        print(f"{time.perf_counter() - self._began_at:6.2f} s  {text}", flush=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Return once *condition* holds; fail after a while, so that no example hangs."""
    with trio.move_on_after(30):
        while not condition():  # noqa: ASYNC110 - nodes send no event for such conditions
            await trio.sleep(0.02)
        return
    message = f"waited in vain: {what}"
    raise SystemExit(message)


def all_at(keyspace: Keyspace, *names: str) -> Callable[[], bool]:
    """Return a condition: only *names* serve all partitions, and none of them moves."""

    def are() -> bool:
        table = keyspace.table
        counts = table.counts()
        all_served = counts.total() == len(table)
        return all_served and set(counts) == set(names) and not table.moving

    return are
