"""A network in memory, for tests: several nodes in one process, no sockets, no real time.

All of them share one `MemoryNetwork`. `cut` splits two addresses from each other, `heal` ends
all splits. `hang` silences an address without breaking its connections, `resume` ends that.
With `trio.testing.MockClock`, a cluster of such nodes runs as fast as it computes.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.transport.network import RECEIVE_BYTES_MAX

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.transport.network import Listener, Stream

CHUNKS_MAX: Final = 64
"""How many chunks of `RECEIVE_BYTES_MAX` a stream holds that its other end has not read."""

BACKLOG_MAX: Final = 128
FIRST_PORT: Final = 10_000


class MemoryStream:
    """One end of a connection in memory."""

    def __init__(
        self,
        network: MemoryNetwork,
        ends: frozenset[Address | None],
        remote_host: str,
        sender: trio.MemorySendChannel[bytes],
        receiver: trio.MemoryReceiveChannel[bytes],
    ) -> None:
        self._network = network
        self.ends = ends
        self.identity: Identity | None = None
        self.proof = LASTING
        self.remote_host = remote_host
        self.broken = False
        self.closed = False
        self._sender = sender
        self._receiver = receiver

    async def receive(self) -> bytes:
        """See `Stream`."""
        try:
            data = await self._receiver.receive()
        except trio.EndOfChannel:
            data = b""
        # Again and again: an address can hang anew before this task runs.
        hung = self._network.hung
        while there := hung.keys() & self.ends:
            await hung[there.pop()].wait()
        if self.broken:
            raise _cut()
        return data

    def send_nowait(self, data: bytes | memoryview) -> int:
        """See `Stream`."""
        if self.broken:
            raise _cut()
        chunk = bytes(data[:RECEIVE_BYTES_MAX])
        try:
            self._sender.send_nowait(chunk)
        except trio.WouldBlock:
            return 0
        return len(chunk)

    async def send_some(self, data: memoryview) -> int:
        """See `Stream`."""
        if self.broken:
            raise _cut()
        chunk = bytes(data[:RECEIVE_BYTES_MAX])
        await self._sender.send(chunk)
        return len(chunk)

    def end_sending(self) -> None:
        """See `Stream`."""
        self._sender.close()

    def close(self) -> None:
        """See `Stream`."""
        self.closed = True
        self._sender.close()
        self._receiver.close()

    def break_(self) -> None:
        """Lose the connection: every use of this end from now on fails."""
        self.broken = True
        self._sender.close()


def _cut() -> trio.BrokenResourceError:
    return trio.BrokenResourceError("the connection was cut")


class MemoryListener:
    """Accepts connections in memory."""

    def __init__(self, network: MemoryNetwork, address: Address) -> None:
        self.address = address
        self._network = network
        self.arrivals, self._accepted = trio.open_memory_channel[MemoryStream](BACKLOG_MAX)

    async def accept(self) -> Stream:
        """See `Listener`."""
        return await self._accepted.receive()

    def close(self) -> None:
        """See `Listener`."""
        self._network.forget(self)  # first, so that no new connection comes
        while True:
            try:
                self._accepted.receive_nowait().close()
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._accepted.close()


class MemoryNetwork:
    """A `Network` between the Channels that share it; addresses need not exist anywhere.

    Attributes:
        hung: for each address that hangs, the event that ends this.
    """

    def __init__(self) -> None:
        self._listeners: dict[Address, MemoryListener] = {}
        self._streams: list[MemoryStream] = []
        self._cuts: set[frozenset[Address | None]] = set()
        self.hung: dict[Address | None, trio.Event] = {}

    async def listen(self, address: Address) -> list[Listener]:
        """See `Network`."""
        await trio.lowlevel.checkpoint()
        if not address.port:
            taken = {known.port for known in self._listeners}
            free = next(port for port in range(FIRST_PORT, 65_536) if port not in taken)
            address = address._replace(port=free)
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[address] = MemoryListener(self, address)
        return [listener]

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        """See `Network`."""
        await trio.lowlevel.checkpoint()
        ends = frozenset((to, origin))
        if ends in self._cuts:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        listener = self._listeners.get(to)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        there, here_in = trio.open_memory_channel[bytes](CHUNKS_MAX)
        here, there_in = trio.open_memory_channel[bytes](CHUNKS_MAX)
        ours = MemoryStream(self, ends, to.host, here, here_in)
        theirs = MemoryStream(self, ends, origin.host if origin else "memory", there, there_in)
        try:
            listener.arrivals.send_nowait(theirs)
        except (trio.WouldBlock, trio.BrokenResourceError):
            ours.close()
            theirs.close()
            # As with TCP: a full backlog does not answer, and does not refuse the connection.
            raise TimeoutError(errno.ETIMEDOUT, "the backlog is full") from None
        alive = [stream for stream in self._streams if not stream.closed]
        self._streams = [*alive, ours, theirs]  # without the closed ones, or it would only grow
        return ours

    def cut(self, a: Address, b: Address) -> None:
        """Split *a* from *b*: their connections break, and new ones fail, until `heal`."""
        ends = frozenset((a, b))
        self._cuts.add(ends)
        for stream in self._streams:
            if stream.ends == ends:
                stream.break_()
        self._streams = [stream for stream in self._streams if not stream.broken]

    def heal(self) -> None:
        """End all splits; connections that broke stay broken."""
        self._cuts.clear()

    def hang(self, address: Address) -> None:
        """Let nothing through from or to *address*, until `resume`.

        This is what a stopped process does: connections are made and stay, and what is sent waits.
        """
        self.hung.setdefault(address, trio.Event())

    def resume(self, address: Address) -> None:
        """Let through what waits from and to *address*."""
        hung = self.hung.pop(address, None)
        if hung is not None:
            hung.set()

    def forget(self, listener: MemoryListener) -> None:
        """Free the address of *listener*, which no longer accepts connections."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]
