"""Clients that are no members: processes of their own, each beside a daemon, that connect to it.

They run the product's asynchronous client. It stands on anyio, whose connections are streams of the
simulated network here.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import anyio
import trio

from ringpop_py.base.address import Address
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.client.aio.keyspaces import AsyncKeyspaceClient
from ringpop_py.client.lines import anyio_line
from ringpop_sim.units import ms
from ringpop_sim.whole.cluster import KEYSPACE
from ringpop_sim.whole.stage.scheduling import TrioProcess
from ringpop_sim.whole.stage.streams import SimulatedNetwork
from ringpop_sim.world.network import address_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ringpop_sim.whole.cluster import WholeCluster
    from ringpop_sim.whole.stage.streams import SimulatedStream

READABLE: Final = 1
BEGUN_US: Final = 1 * ms


class OutsideClient:
    """One process beside the daemon of node *number*, which it outlives.

    Attributes:
        keyspace: its client of the keyspace; None before it has begun.
    """

    def __init__(self, cluster: WholeCluster, number: int) -> None:
        self.name = f"the client of n{number}"
        self.number = number
        self.keyspace: AsyncKeyspaceClient | None = None
        self._nursery: trio.Nursery | None = None
        self._cluster = cluster
        self.body = TrioProcess(cluster.stage, self.name, self._main)

    async def _main(self, _: TrioProcess) -> None:
        client = AsyncClient(str(address_of(self.number)), cluster_key="")
        self.keyspace = AsyncKeyspaceClient(client, KEYSPACE)
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def begin(self, act: Callable[[], Awaitable[object]]) -> None:
        """Run *act* in a task of the client, as soon as it has begun."""
        if self._nursery is None:
            self._cluster.push(self._cluster.now + BEGUN_US, lambda _: self.begin(act))
            return
        with self.body.entered():
            self._nursery.start_soon(act)


@contextmanager
def connecting(cluster: WholeCluster, machine_of: Callable[[TrioProcess], int]) -> Iterator[None]:
    """Have what anyio connects, in the block, connect by the network of *cluster*."""

    async def connect(host: str, port: int) -> _AnyioStream:
        body = cluster.threads.current_process
        network = SimulatedNetwork(cluster.links, body, machine_of(body))
        return _AnyioStream(await network.connect(Address(host, port), origin=None))

    poll = SimpleNamespace(poll=_Poll, POLLIN=READABLE)
    with patch.object(anyio, "connect_tcp", connect), patch.object(anyio_line, "select", poll):
        yield


class _AnyioStream:
    """A stream of the simulated network, as anyio has them."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._stream = stream

    def extra(self, _: object) -> SimpleNamespace:
        """Return what stands for the socket."""
        return SimpleNamespace(setsockopt=lambda *_: None, stream=self._stream)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        with _as_anyio():
            while view:
                view = view[await self._stream.send_some(view) :]

    async def receive(self, _bytes_max: int = 65_536) -> bytes:
        with _as_anyio():
            data = await self._stream.receive()
        if not data:
            raise anyio.EndOfStream
        return data

    async def aclose(self) -> None:
        """Close it."""
        self._stream.close()
        await trio.lowlevel.checkpoint()


class _Poll:
    """`select.poll`, of one stream."""

    def register(self, raw: Any, _events: int) -> None:
        self._stream: SimulatedStream = raw.stream

    def poll(self, _timeout: int) -> list[tuple[int, int]]:
        return [(0, READABLE)] if self._stream.is_readable else []


@contextmanager
def _as_anyio() -> Iterator[None]:
    """Raise what anyio does: its errors are its own, with those of the system as causes."""
    try:
        yield
    except trio.ClosedResourceError:
        raise anyio.ClosedResourceError from None
    except trio.BrokenResourceError as error:
        raise anyio.BrokenResourceError from OSError(errno.ECONNRESET, str(error))
