"""A connection to a daemon that all calls of an event loop share, where that is not asyncio's.

There is no task that reads: one of the callers that wait for an answer reads for all of them, and
another one goes on when that caller has its own answer.
"""

from __future__ import annotations

import math
import select
import socket
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import SocketAttribute

from ringpop_py.base.address import SocketPath
from ringpop_py.base.errors import CallError, CallTimeout, ConnectionLost, WireError
from ringpop_py.client.lines.local_daemon import CONNECT_TIMEOUT_S, FULL_RETRY_S, GRACE_S
from ringpop_py.client.lines.outcomes import (
    Outcomes,
    new_connection,
    not_connected,
    sent,
    take_in,
    why_ended,
)
from ringpop_py.client.lines.trust import checked_member, client_context, in_words
from ringpop_py.net.security.clock import wall_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import ByteStream, SocketStream

    from ringpop_py.base.address import Peer
    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.wire.calls import Answer, Call
    from ringpop_py.net.wire.connection import Connection

SEND_S: Final = 3.0
"""The most seconds in which a peer reads nothing of what is sent."""
_LOST: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class _Pending:
    """See `AsyncPending`."""

    __slots__ = ("_line", "_number", "_until")

    def __init__(self, line: AnyioLine, number: int, until: float) -> None:
        self._line = line
        self._number = number
        self._until = until

    @property
    def peer(self) -> Peer:
        """See `AsyncPending`."""
        return self._line.peer

    async def result(self) -> Answer:
        """See `AsyncPending`."""
        try:
            with anyio.fail_after(self._until - anyio.current_time()):
                return await self._line.outcome_of(self._number)
        except TimeoutError:
            raise CallTimeout(f"{self._line.peer} did not answer in time") from None
        finally:
            await self._line.cancel(self._number)

    async def aclose(self) -> None:
        """See `AsyncPending`."""
        await self._line.cancel(self._number)


class AnyioLine:
    """A connection to *peer*; see `AsyncioLine`."""

    sends_itself = False

    def __init__(self, peer: Peer, key_file: str | None, limits: WireLimits) -> None:
        self.peer = peer
        self._key_file = None if isinstance(peer, SocketPath) else key_file
        self._limits = limits
        self._pending: dict[int, Callable[[], None]] = {}
        """The calls under way, with what is called when they are over."""
        self._woken: dict[int, anyio.Event] = {}
        """Those that wait while another one reads."""
        self._outcomes = Outcomes()
        self._connection: Connection | None = None
        self._stream: ByteStream | None = None
        self._sending = anyio.Lock()
        self._is_read = False
        self._is_retired = False
        """Whether it takes no new calls, and closes after the last one."""
        self._trusted_until = math.inf
        self._error: CallError | None = None

    @property
    def is_open(self) -> bool:
        """See `AsyncLine`."""
        if self._error is not None or self._stream is None:
            return self._error is None
        if self._is_retired or wall_s() >= self._trusted_until:
            return False
        if self._pending:
            return True
        # A daemon that has ended has closed it, which would otherwise lose the next call. Whatever
        # else can be read was not asked for.
        raw = self._stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
        ready = select.poll()
        ready.register(raw, select.POLLIN)
        return not ready.poll(0)

    async def aclose(self) -> None:
        """See `AsyncLine`."""
        self._is_retired = True
        await self._close_if_unused()

    @property
    def is_ready(self) -> bool:
        """See `AsyncLine`."""
        return self._connection is not None

    async def ready(self, timeout_s: float) -> None:
        """See `AsyncLine`."""
        try:
            with anyio.fail_after(min(timeout_s, CONNECT_TIMEOUT_S)):
                async with self._sending:
                    if self._connection is None:
                        self._connection = await self._dialed()
                        await self._close_if_unused()
                    if self._error is not None:  # it was closed in the meantime
                        raise self._error
        except (CallError, *_LOST, UnicodeError) as error:
            raise not_connected(self.peer, in_words(error)) from None

    def begin(self, call: Call, on_end: Callable[[], None]) -> _Pending:
        """See `AsyncLine`."""
        if self._error is not None:
            raise self._error
        assert self._connection is not None
        number = sent(self._connection, call)
        self._pending[number] = on_end
        return _Pending(self, number, anyio.current_time() + call.ttl_s + GRACE_S)

    async def _dialed(self) -> Connection:
        """Return a new connection whose ends have said what they are."""
        connection = new_connection(self._limits)
        stream: ByteStream = await _connected(self.peer)
        try:
            if self._key_file is not None:
                stream, self._trusted_until = await _secured(stream, self._key_file)
            await stream.send(connection.take_outgoing())
            while not connection.initialised:
                ended = take_in(connection, await stream.receive(), self._outcomes)
                if ended is not None:
                    raise ended.kind(f"{self.peer} {ended.why}")  # noqa: TRY301
        except BaseException as error:
            await anyio.aclose_forcefully(stream)
            if isinstance(error, anyio.BrokenResourceError | anyio.EndOfStream):
                raise _lost(self.peer, error, initialised=False) from None
            if isinstance(error, WireError):
                raise ConnectionLost(f"{self.peer} does not speak TChannel: {error}") from None
            raise
        self._stream = stream
        return connection

    async def outcome_of(self, number: int) -> Answer:
        """Wait for the outcome of a call. Raises CallError."""
        while number not in self._outcomes:
            if self._error is not None:
                raise self._error
            if self._is_read:
                self._woken[number] = event = anyio.Event()
                await event.wait()
            else:
                await self._read_until(number)
        outcome = self._outcomes.pop(number)
        if isinstance(outcome, CallError):
            raise outcome
        return outcome

    async def _read_until(self, number: int) -> None:
        self._is_read = True
        try:
            while number not in self._outcomes and self._error is None:
                await self._receive()
        finally:
            self._is_read = False
            self._hand_on()

    def _hand_on(self) -> None:
        """Have another one read, if nobody does."""
        if not self._is_read:
            for event in self._woken.values():
                event.set()
                return

    async def cancel(self, number: int) -> None:
        """End a call at the daemon, unless it is over."""
        if number in self._pending:
            self._over(number)
            self._hand_on()  # it may have been about to read
            if self._error is None and self._connection is not None:
                self._connection.send_cancel(number, "its caller has gone")
                await self.flush()
                await self._close_if_unused()
        self._outcomes.pop(number, None)

    def _over(self, number: int) -> None:
        on_end = self._pending.pop(number)
        event = self._woken.pop(number, None)
        if event is not None:
            event.set()
        on_end()

    async def _receive(self) -> None:
        """Take in what arrives; an end of the connection is in `_error` then."""
        connection, stream = self._connection, self._stream
        assert connection is not None
        assert stream is not None
        try:
            ended = take_in(connection, await stream.receive(), self._outcomes)
        except _LOST as error:
            await self._end(_lost(self.peer, error))
            return
        except WireError as error:
            await self._end(ConnectionLost(f"{self.peer} does not speak TChannel: {error}"))
            return
        for number in self._outcomes.keys() & self._pending.keys():
            self._over(number)
        if connection.outgoing:
            await self.flush()
        if ended is not None:
            await self._end(ended.kind(f"{self.peer} {ended.why}"))
        await self._close_if_unused()

    async def flush(self) -> None:
        """See `AsyncLine`."""
        connection, stream = self._connection, self._stream
        assert connection is not None
        assert stream is not None
        # What is begun is sent as a whole: half a frame would end the calls of all others.
        with anyio.CancelScope(shield=True):
            try:
                with anyio.fail_after(SEND_S):
                    async with self._sending:
                        data = connection.take_outgoing()
                        if data:
                            await stream.send(data)
            except _LOST as error:
                await self._end(_lost(self.peer, error))

    async def _close_if_unused(self) -> None:
        if self._is_retired and not self._pending:
            await self._end(ConnectionLost(f"{self.peer}: this client closed the connection"))

    async def _end(self, error: CallError) -> None:
        """Close the connection; whatever waits for it gets *error*."""
        if self._error is None:
            self._error = error
        if self._connection is not None:
            self._connection.close()
        for number in list(self._pending):
            self._over(number)
        if self._stream is not None:
            await anyio.aclose_forcefully(self._stream)


def _lost(peer: Peer, error: Exception, *, initialised: bool = True) -> ConnectionLost:
    cause = error.__cause__
    if isinstance(error, anyio.EndOfStream):
        found = None
    else:
        found = in_words(cause if isinstance(cause, Exception) else error)
    return ConnectionLost(f"{peer} {why_ended(found, initialised=initialised)}")


async def _connected(peer: Peer) -> SocketStream:
    while isinstance(peer, SocketPath):
        try:
            return await anyio.connect_unix(peer.path)
        except (BlockingIOError, anyio.BrokenResourceError):
            # Its backlog is full, for which such a socket does not wait. Our caller does.
            await anyio.sleep(FULL_RETRY_S)
    stream = await anyio.connect_tcp(*peer)
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


async def _secured(stream: ByteStream, key_file: str) -> tuple[ByteStream, float]:
    """Return *stream* with TLS, and until when its peer is trusted."""
    from anyio.streams.tls import TLSAttribute, TLSStream  # noqa: PLC0415 - only with keys

    try:
        secured = await TLSStream.wrap(
            stream,
            server_side=False,
            ssl_context=client_context(key_file),
            standard_compatible=False,
        )
        until = checked_member(secured.extra(TLSAttribute.peer_certificate))  # noqa: S610
    except BaseException as error:
        await anyio.aclose_forcefully(stream)
        if isinstance(error, anyio.BrokenResourceError | anyio.EndOfStream):
            cause = error.__cause__
            if not isinstance(cause, Exception):
                raise ConnectionError("the peer closed in the handshake") from None
            raise in_words(cause) from None
        raise
    return secured, until
