"""What trio and `socket` give processes for shuffles and their clients, on simulated streams."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_py.flow.shuffle.sorting.frames import Bytes
    from ringpop_py.net.transport.network import Listener
    from ringpop_sim.whole.stage.streams import SimulatedNetwork, SimulatedStream

PORT_MIN: Final = 20_000


class Sockets:
    """The calls that make connections, on the *network* as the process sees it that runs."""

    def __init__(self, network: Callable[[], SimulatedNetwork]) -> None:
        self._network = network
        self._ports_count = 0

    async def open_tcp_listeners(self, _port: int, *, host: str) -> list[_TrioListener]:
        self._ports_count += 1
        address = Address(host, PORT_MIN + self._ports_count)
        (found,) = await self._network().listen(address)
        return [_TrioListener(found, address)]

    async def open_tcp_stream(self, host: str, port: int) -> TrioStream:
        return TrioStream(await self._network().connect(Address(host, port), origin=None))

    def create_connection(self, peer: Address, timeout: float) -> ThreadSocket:
        return ThreadSocket(self._network().connect_in_thread(peer, timeout))


class _TrioListener(trio.abc.AsyncResource):
    """See `trio.SocketListener`."""

    def __init__(self, listener: Listener, address: Address) -> None:
        self.socket = SimpleNamespace(getsockname=lambda: tuple(address))
        self._listener: Any = listener

    async def accept(self) -> TrioStream:
        return TrioStream(await self._listener.accept())

    async def aclose(self) -> None:
        self._listener.close()
        await trio.lowlevel.checkpoint()


class _Pieces:
    """The bytes that have come, of which some may be left."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream
        self._rest = memoryview(b"")

    def into(self, view: memoryview) -> int | None:
        """Move some into *view*, and return how many; None if nothing has come yet."""
        if not self._rest:
            found = self.stream.receive_nowait()
            if found is None:
                return None
            self._rest = memoryview(found)
        count = min(len(view), len(self._rest))
        view[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


class TrioStream:
    """See `trio.SocketStream`, whose socket this is as well."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.socket = self
        self._pieces = _Pieces(stream)
        self._stream = stream

    def getpeername(self) -> tuple[str, int]:
        return self._stream.remote_host, 0

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""

    async def recv_into(self, view: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        while (count := self._pieces.into(view)) is None:
            await self._stream.reader.wait()
        return count

    async def send_all(self, data: Bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[await self._stream.send_some(view) :]

    async def aclose(self) -> None:
        self._stream.close()
        await trio.lowlevel.checkpoint()


class ThreadSocket:
    """See `socket.socket`: a thread that uses it blocks."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._pieces = _Pieces(stream)
        self._stream = stream
        self._timeout_s: float | None = None

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""

    def recv_into(self, view: memoryview) -> int:
        with _as_system():
            while (count := self._pieces.into(view)) is None:
                if self._timeout_s == 0:
                    raise BlockingIOError
                self._stream.reader.wait(self._timeout_s)
        return count

    def recv(self, size: int) -> bytes:
        found = bytearray(size)
        return bytes(found[: self.recv_into(memoryview(found))])

    def sendall(self, data: Bytes) -> None:
        view = memoryview(data)
        with _as_system():
            while view:
                count = self._stream.send_nowait(view)
                view = view[count:]
                if not count:
                    self._stream.writer.wait(self._timeout_s)

    def close(self) -> None:
        self._stream.close()


@contextmanager
def _as_system() -> Iterator[None]:
    """Raise what the system does."""
    try:
        yield
    except trio.ClosedResourceError:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
    except trio.BrokenResourceError as error:
        raise ConnectionResetError(errno.ECONNRESET, str(error)) from None
