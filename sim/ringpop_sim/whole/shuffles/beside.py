"""The process for shuffles beside each daemon: `ringpop_py.flow.shuffle.server.process` itself.

Daemons start it and watch it as they do (`child.py`), and it keeps its files in a real folder. A
file is there as soon as a call has written it, but calls of threads are late, and may fail.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.client.lines import blocking
from ringpop_py.client.sync import dispatcher, keyspaces
from ringpop_py.flow.shuffle.client import cluster as clients
from ringpop_py.flow.shuffle.server import process as program
from ringpop_py.flow.shuffle.server.framestore import FrameStore
from ringpop_py.flow.shuffle.server.host import Host
from ringpop_sim.units import ms, s
from ringpop_sim.whole.shuffles.sockets import Sockets
from ringpop_sim.whole.stage.scheduling import TaskSlot, TrioProcess
from ringpop_sim.whole.stage.store import SimulatedStore
from ringpop_sim.whole.stage.streams import SimulatedNetwork
from ringpop_sim.whole.stage.surroundings import replaced
from ringpop_sim.whole.stage.threads import Local

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_sim.whole.cluster import Daemon, WholeCluster

DISK_US_MAX: Final = 20 * ms
SLOW_US_MAX: Final = 1000 * ms
"""The most that a call of a thread takes at the disk: as a rule, and while it is slow."""
LOOK_SHARE: Final = 0.1
"""The part of that for a look at a file in it."""
KILLED: Final = -9
FULL: Final = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class ShuffleProcess(program.Parent):
    """One process: a `trio.Process` for its daemon, which is its `Parent`.

    Attributes:
        host: its shuffles, once it has begun.
        is_full: whether its disk has no room.
    """

    def __init__(self, shufflers: Shufflers, daemon: Daemon, argv: Sequence[str]) -> None:
        self.daemon = daemon
        self.host: Host | None = None
        self.is_full = False
        self.returncode: int | None = None
        self.stdin = self.stdout = self
        self._options = program.options_in(argv)
        self._said: list[bytes] = []
        self._is_let_go = False
        self._waiter = TaskSlot(daemon.body)
        self._shufflers = shufflers
        self.body = TrioProcess(shufflers.cluster.stage, f"{daemon.name}'s shuffles", self._main)
        self.body.threads.start_us_max = DISK_US_MAX
        self._ender = TaskSlot(self.body)
        self.body.on_end[self._ended] = None
        daemon.body.on_end[self._let_go] = None

    async def _main(self, body: TrioProcess) -> None:
        try:
            incarnation, lock = program.claim(self._options.folder)
        except OSError:
            return
        body.on_end[lambda: os.close(lock)] = None
        store = SimulatedStore(self._shufflers.cluster.store, body, self.daemon.number, quick=False)
        frames = FrameStore(store, self._options.cluster)
        await program.run(self._options, incarnation, frames, self)

    def _ended(self) -> None:
        self.returncode = KILLED if self.body.outcome is None else 0
        self._shufflers.on_end(self)
        for shuffle in () if self.host is None else self.host._shuffles.values():
            shuffle.here.folder.close()
        self._waiter.wake()

    # For the daemon.

    async def receive_some(self, _bytes_max: int) -> bytes:
        while not self._said and self.returncode is None:
            await self._waiter.wait()
        said, self._said = b"".join(self._said), []
        return said

    async def wait(self) -> None:
        while self.returncode is None:
            await self._waiter.wait()

    def kill(self) -> None:
        self.body.kill()

    async def aclose(self) -> None:
        """End its input."""
        self._let_go()
        await trio.lowlevel.checkpoint()

    def _let_go(self) -> None:
        self._is_let_go = True
        self._ender.wake()

    # For the process.

    def hear(self, line: str) -> None:
        self._said.append(f"{line}\n".encode())
        self._waiter.wake()

    async def end(self, scope: trio.CancelScope) -> None:
        while not self._is_let_go:
            await self._ender.wait()
        scope.cancel()


class Shufflers:
    """All processes for shuffles, and where those and their clients are.

    Attributes:
        machines: those of clients.
        of: the latest one beside each node.
        on_end: called with each that has ended.
    """

    def __init__(self, cluster: WholeCluster) -> None:
        self.cluster = cluster
        self.folder = Path(tempfile.mkdtemp(prefix="ringpop-sim-"))
        self.machines: dict[TrioProcess, int] = {}
        self.of: dict[int, ShuffleProcess] = {}
        self.on_end: Callable[[ShuffleProcess], None] = lambda _: None
        self._bodies: dict[TrioProcess, ShuffleProcess] = {}

    @property
    def running(self) -> list[ShuffleProcess]:
        """Those that have not ended."""
        return [each for each in self.of.values() if each.body.alive]

    def close(self) -> None:
        """Remove all files."""
        self.on_end = lambda _: None
        for each in self.running:
            each.kill()
        self.of.clear()
        self._bodies.clear()
        self.machines.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have processes for shuffles, and their clients, be simulated in the block."""
        threads, sockets = self.cluster.threads, Sockets(self._network)
        now = time.monotonic
        known: list[tuple[Any, str, Any]] = [
            (trio.lowlevel, "open_process", self._open),
            (trio, "open_tcp_listeners", sockets.open_tcp_listeners),
            (trio, "open_tcp_stream", sockets.open_tcp_stream),
            (socket, "create_connection", sockets.create_connection),
            (blocking, "local", Local),
            *((module, "now", now) for module in (blocking, dispatcher, keyspaces)),
            *((module, "sleep", threads.sleep) for module in (blocking, dispatcher)),
            (clients, "random", SimpleNamespace(Random=self._chance)),
            (program, "Host", self._host),
            (os, "pwrite", self._writing(os.pwrite)),
            (os, "stat", self._looking(os.stat)),
            (Path, "open", self._opening(Path.open)),
        ]
        with replaced(known):
            yield

    async def _open(self, command: Sequence[str], **_: object) -> ShuffleProcess:
        daemon = self.cluster.current
        shuffler = ShuffleProcess(self, daemon, command[4:])
        self._bodies[shuffler.body] = self.of[daemon.number] = shuffler
        await trio.lowlevel.checkpoint()
        return shuffler

    def _host(self, *args: Any) -> Host:
        shuffler = self._bodies[self.cluster.threads.current_process]
        shuffler.host = Host(*args)
        return shuffler.host

    def _network(self) -> SimulatedNetwork:
        body = self.cluster.threads.current_process
        shuffler = self._bodies.get(body)
        machine = self.machines[body] if shuffler is None else shuffler.daemon.machine
        return SimulatedNetwork(self.cluster.links, body, machine)

    def _chance(self) -> random.Random:
        return self.cluster.threads.current_process.rng

    # The disk.

    def _current(self) -> ShuffleProcess | None:
        body = self.cluster.stage.current
        return None if body is None else self._bodies.get(body)

    def _pause(self) -> None:
        """Let others act before a thread looks at a file."""
        shuffler = self._current()
        if shuffler is not None and self.cluster.threads.in_thread:
            most_s = LOOK_SHARE * shuffler.body.threads.start_us_max / s
            self.cluster.threads.sleep(shuffler.body.rng.uniform(0, most_s))

    def _writing(self, write: Any) -> Any:
        def pwrite(file: int, data: memoryview, offset: int) -> int:
            shuffler = self._current()
            if shuffler is not None and shuffler.is_full:
                write(file, data[: len(data) // 2], offset)
                raise FULL
            count: int = write(file, data, offset)
            return count

        return pwrite

    def _looking(self, stat: Any) -> Any:
        def look(*args: Any, **more: Any) -> Any:
            self._pause()
            return stat(*args, **more)

        return look

    def _opening(self, really: Any) -> Any:
        def opened(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
            self._pause()
            shuffler = self._current()
            if shuffler is not None and shuffler.is_full and "r" not in mode:
                raise FULL
            return really(path, mode, *args, **more)

        return opened
