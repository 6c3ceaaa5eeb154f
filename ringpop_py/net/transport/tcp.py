"""TCP as a `Network`; its streams are those of Unix sockets, too.

A stream is a non-blocking socket that waits through `trio.lowlevel`. So it can also send without
waiting, and the answers to one receive leave in one system call.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import Address
from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.security.users import user_of
from ringpop_py.net.transport.network import RECEIVE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ringpop_py.net.transport.network import Listener, Stream

    _Wait = Callable[[socket.socket], Awaitable[None]]

ACCEPT_RETRY_S: Final = 0.1
_OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


class TcpStream:
    """One end of a connection by TCP, or by a Unix socket; takes over the socket of *stream*."""

    __slots__ = ("_socket", "identity", "proof", "remote_host")

    def __init__(self, stream: trio.SocketStream) -> None:
        # Without trio's wrapper, whose every call is a checkpoint: sending must not wait.
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)  # noqa: FBT003 - the name says what
        self._socket = sock
        self.identity = user_of(sock)
        self.proof = LASTING
        self.remote_host = ""
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):  # it is gone already; the first receive will say so
            self.remote_host = str(sock.getpeername()[0])

    async def receive(self) -> bytes:
        """See `Stream`."""
        while True:
            await self._wait(trio.lowlevel.wait_readable)
            try:
                return self._socket.recv(RECEIVE_BYTES_MAX)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._broken(error) from None

    def send_nowait(self, data: bytes | memoryview) -> int:
        """See `Stream`."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._broken(error) from None

    async def send_some(self, data: memoryview) -> int:
        """See `Stream`."""
        while True:
            await self._wait(trio.lowlevel.wait_writable)
            sent = self.send_nowait(data)
            if sent:
                return sent

    def end_sending(self) -> None:
        """See `Stream`."""
        with suppress(OSError):  # the connection is gone already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """See `Stream`."""
        if self._socket.fileno() != -1:
            # Tasks that wait for the socket get an error; after the close they would wait for ever.
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _wait(self, wait: _Wait) -> None:
        if self._socket.fileno() == -1:
            raise trio.ClosedResourceError("the stream is closed")
        await wait(self._socket)

    def _broken(self, error: OSError) -> trio.BrokenResourceError | trio.ClosedResourceError:
        if error.errno == errno.EBADF:
            return trio.ClosedResourceError("the stream is closed")
        return trio.BrokenResourceError(error.strerror or type(error).__name__)


class TcpListener:
    """Accepts TCP connections; without free file descriptors, it waits for some."""

    def __init__(self, listener: trio.SocketListener, address: Address | None = None) -> None:
        self._listener = listener
        self.address = address or Address(*listener.socket.getsockname()[:2])

    async def accept(self) -> Stream:
        """See `Listener`."""
        while True:
            try:
                return TcpStream(await self._listener.accept())
            except OSError as error:
                # Anything else is about a connection that is gone already.
                if error.errno in _OUT_OF_RESOURCES:
                    await trio.sleep(ACCEPT_RETRY_S)

    def close(self) -> None:
        """See `Listener`."""
        self._listener.socket.close()


class TcpNetwork:
    """The network of the operating system."""

    async def listen(self, address: Address) -> list[Listener]:
        """See `Network`; a host name is bound at all its addresses, or at one with port 0."""
        with _explained_errors():
            listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        if not address.port:
            # With port 0 each address would get another port, and only one can be advertised.
            for spare in listeners[1:]:
                spare.socket.close()
            del listeners[1:]
        return [TcpListener(listener) for listener in listeners]

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        """See `Network`."""
        del origin  # the operating system picks where a connection comes from
        with _explained_errors():
            stream = await trio.open_tcp_stream(to.host, to.port)
        return TcpStream(stream)


@contextmanager
def _explained_errors() -> Iterator[None]:
    """Raise OSError that says why a host cannot be used, if all its addresses failed alike."""
    try:
        yield
    except UnicodeError:  # a label that is empty or too long
        raise OSError(errno.EINVAL, "not a host name") from None
    except OSError as error:
        # trio only says that all addresses failed; how each did, is in the cause.
        causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
        numbers = {cause.errno if isinstance(cause, OSError) else None for cause in causes}
        number = numbers.pop() if len(numbers) == 1 else None
        if number is None:
            raise
        raise OSError(number, os.strerror(number)) from None
