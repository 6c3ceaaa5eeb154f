"""TCP from which addresses can be cut off, to see what a cluster does in a split.

Nothing is refused and no connection breaks: what is sent to such an address waits, and so does what
comes from there, as over a cable that was pulled. Only connections that this end has made are cut,
so both sides have to cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ringpop_py.net.transport.tcp import TcpNetwork

if TYPE_CHECKING:
    from collections.abc import Collection

    from ringpop_py.base.address import Address
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.transport.network import Listener, Stream


class CutNetwork:
    """See the module."""

    def __init__(self) -> None:
        self._inner = TcpNetwork()
        self._away: frozenset[Address] = frozenset()
        self._changed = trio.Event()

    def cut(self, addresses: Collection[Address]) -> None:
        """Cut off exactly *addresses* from now on."""
        self._away = frozenset(addresses)
        self.wake()

    def is_away(self, address: Address) -> bool:
        """Return whether *address* is cut off."""
        return address in self._away

    def wake(self) -> None:
        """Have all tasks that wait look again."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until something has changed."""
        await self._changed.wait()

    async def listen(self, address: Address) -> list[Listener]:
        """See `Network`."""
        return await self._inner.listen(address)

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        """See `Network`; while *to* is cut off this waits, until the caller gives up."""
        while self.is_away(to):
            await self.changed()
        return CutStream(self, to, await self._inner.connect(to, origin=origin))


class CutStream:
    """A `Stream` to an address that may be cut off."""

    def __init__(self, network: CutNetwork, to: Address, inner: Stream) -> None:
        self._network = network
        self._to = to
        self._inner = inner
        self._closed = False
        self.remote_host = inner.remote_host
        self.identity: Identity | None = inner.identity
        self.proof = inner.proof

    async def receive(self) -> bytes:
        """See `Stream`."""
        data = await self._inner.receive()
        await self._until_there()
        return data

    def send_nowait(self, data: bytes) -> int:
        """See `Stream`."""
        return 0 if self._network.is_away(self._to) else self._inner.send_nowait(data)

    async def send_some(self, data: memoryview) -> int:
        """See `Stream`."""
        await self._until_there()
        return await self._inner.send_some(data)

    def end_sending(self) -> None:
        """See `Stream`."""
        self._inner.end_sending()

    def close(self) -> None:
        """See `Stream`."""
        self._closed = True
        self._inner.close()
        self._network.wake()

    async def _until_there(self) -> None:
        while self._network.is_away(self._to) and not self._closed:
            await self._network.changed()
        if self._closed:
            raise trio.ClosedResourceError("the stream is closed")
