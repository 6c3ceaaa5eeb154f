"""A connection to a daemon that all calls of an event loop of asyncio share.

A call that is cancelled ends at the daemon as well, and the others do not notice.
"""

from __future__ import annotations

import asyncio
from socket import socket
from typing import TYPE_CHECKING, cast

from ringpop_py.base.address import SocketPath
from ringpop_py.base.errors import CallError, CallTimeout, ConnectionLost, WireError
from ringpop_py.base.values.declared import replace
from ringpop_py.client.lines.local_daemon import CONNECT_TIMEOUT_S, GRACE_S, connected
from ringpop_py.client.lines.outcomes import Outcomes, not_connected, take_in
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.init import NO_LISTENER
from ringpop_py.net.wire.traces import current

if TYPE_CHECKING:
    from ringpop_py.base.address import Peer
    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.wire.calls import Answer, Call


class SharedLine(asyncio.Protocol):
    """A connection to *peer* without TLS. It is begun when it is made, and is not begun again."""

    def __init__(self, peer: Peer, limits: WireLimits) -> None:
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._outcomes = Outcomes()
        self._transport: asyncio.Transport | None = None
        self._is_sending = False
        self._connection = Connection(
            host_port=NO_LISTENER, process_name="ringpop_py-client", initiates=True, limits=limits
        )
        self._introduced: asyncio.Future[None] = self._loop.create_future()
        # It is a task of its own, because the first caller may be cancelled.
        self._dialing = self._loop.create_task(self._dial())
        self._dialing.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def is_open(self) -> bool:
        """Whether a call can be sent, now or soon, as far as is known."""
        return not self._connection.closed

    def close(self) -> None:
        """Close it, unless a call is under way."""
        if not self._waiting:
            self._end(ConnectionLost(f"{self._peer}: this client closed the connection"))

    async def call(self, call: Call) -> Answer:
        """Send *call*, and return its answer. Raises CallError."""
        if not self._connection.initialised:
            await asyncio.wait((self._dialing,), timeout=min(call.ttl_s, CONNECT_TIMEOUT_S))
            if not self._dialing.done():
                raise not_connected(self._peer, TimeoutError())
            await self._dialing  # raises what has failed
        tracing = current()
        call_id = self._connection.send_call(replace(call, tracing=tracing) if tracing else call)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[call_id] = answer
        self._send_soon()
        timer = self._loop.call_later(call.ttl_s + GRACE_S, self._give_up, call_id)
        try:
            return await answer
        finally:
            timer.cancel()
            if self._waiting.pop(call_id, None) is not None:
                self._connection.send_cancel(call_id, "its caller has gone")
                self._send_soon()

    async def _dial(self) -> None:
        try:
            sock = await asyncio.to_thread(connected, self._peer, CONNECT_TIMEOUT_S)
            assert isinstance(sock, socket)
            loop, is_unix = self._loop, isinstance(self._peer, SocketPath)
            begin = loop.create_unix_connection if is_unix else loop.create_connection
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await begin(lambda: self, sock=sock)
                return await self._introduced
        # A host that cannot be a name is a UnicodeError.
        except (CallError, OSError, UnicodeError) as error:
            failed = not_connected(self._peer, error)
            self._end(failed)
            raise failed from None

    def _give_up(self, call_id: int) -> None:
        answer = self._waiting.pop(call_id, None)
        if answer is not None and not answer.done():
            self._connection.forget_call(call_id)
            answer.set_exception(CallTimeout(f"{self._peer} did not answer in time"))

    def _end(self, error: CallError) -> None:
        """Close the connection; whatever waits for it gets *error*."""
        self._connection.close()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)
        if not self._introduced.done():
            self._introduced.set_exception(error)
            self._introduced.exception()  # often nobody waits for it any more
        if self._transport is not None:
            self._transport.abort()

    def _send_soon(self) -> None:
        # Once for all that is said in this turn of the loop.
        if not self._is_sending:
            self._is_sending = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_sending = False
        data = self._connection.take_outgoing()
        if data and self._transport is not None:
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        how = f"broke the connection: {exc}" if exc else "closed the connection: it has ended"
        self._end(ConnectionLost(f"{self._peer} {how}"))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            ended = take_in(self._connection, data, self._outcomes)
        except WireError as error:
            self._end(ConnectionLost(f"{self._peer} does not speak TChannel: {error}"))
            return
        for call_id, outcome in self._outcomes.items():
            answer = self._waiting.pop(call_id, None)
            if answer is None or answer.done():  # its caller is cancelled in this turn
                continue
            if isinstance(outcome, CallError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
        self._outcomes.clear()
        if self._connection.initialised and not self._introduced.done():
            self._introduced.set_result(None)
        self._send()
        if ended is not None:
            self._end(ended.kind(f"{self._peer} {ended.why}"))
