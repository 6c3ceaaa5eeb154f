"""A connection to a daemon that all calls of an event loop of asyncio share.

A call that is cancelled ends at the daemon as well, and the others do not notice.
"""

from __future__ import annotations

import asyncio
import math
from socket import socket
from typing import TYPE_CHECKING, Any, cast

from ringpop_py.base.address import SocketPath
from ringpop_py.base.errors import CallError, CallTimeout, ConnectionLost, WireError
from ringpop_py.client.lines.local_daemon import CONNECT_TIMEOUT_S, GRACE_S, connected
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

    from ringpop_py.base.address import Peer
    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.wire.calls import Answer, Call


class _Pending:
    """See `AsyncPending`."""

    __slots__ = ("_answer", "_id", "_line", "_on_end", "_timer")

    def __init__(
        self, line: AsyncioLine, number: int, wait_s: float, on_end: Callable[[], None]
    ) -> None:
        self._on_end = on_end
        self._line = line
        self._id = number
        self._answer: asyncio.Future[Answer] = line.loop.create_future()
        self._timer = line.loop.call_later(wait_s, line.give_up, number)

    @property
    def peer(self) -> Peer:
        """See `AsyncPending`."""
        return self._line.peer

    async def result(self) -> Answer:
        """See `AsyncPending`."""
        try:
            return await self._answer
        finally:
            self._line.cancel(self._id)

    async def aclose(self) -> None:
        """See `AsyncPending`."""
        self._line.cancel(self._id)

    def end(self, outcome: Answer | CallError) -> None:
        """Take the outcome, unless nobody wants it any more."""
        self._timer.cancel()
        self._on_end()
        if self._answer.done():  # its caller is cancelled in this turn
            return
        if isinstance(outcome, CallError):
            self._answer.set_exception(outcome)
            self._answer.exception()  # nobody may await it any more
        else:
            self._answer.set_result(outcome)


class AsyncioLine(asyncio.Protocol):
    """A connection to *peer*. It is begun when it is made, and is not begun again.

    Args:
        key_file: the cluster's keys; None if it has none.
    """

    sends_itself = True

    def __init__(self, peer: Peer, key_file: str | None, limits: WireLimits) -> None:
        self.peer = peer
        self._key_file = None if isinstance(peer, SocketPath) else key_file
        self.loop = asyncio.get_running_loop()
        self._pending: dict[int, _Pending] = {}
        self._outcomes = Outcomes()
        self._transport: asyncio.Transport | None = None
        self._is_sending = False
        self._is_retired = False
        """Whether it takes no new calls, and closes after the last one."""
        self._trusted_until = math.inf
        self._connection = new_connection(limits)
        self._introduced: asyncio.Future[None] = self.loop.create_future()
        # It is a task of its own, because the first caller may be cancelled.
        self._dialing = self.loop.create_task(self._dial())
        self._dialing.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def is_ready(self) -> bool:
        """See `AsyncLine`."""
        return self._connection.initialised

    @property
    def is_open(self) -> bool:
        """See `AsyncLine`."""
        if self._connection.closed or self._is_retired:
            return False
        return self._trusted_until == math.inf or wall_s() < self._trusted_until

    async def aclose(self) -> None:
        """See `AsyncLine`."""
        self._is_retired = True
        self._close_if_unused()
        await asyncio.sleep(0)  # in which the event loop closes it

    async def ready(self, timeout_s: float) -> None:
        """See `AsyncLine`."""
        await asyncio.wait((self._dialing,), timeout=min(timeout_s, CONNECT_TIMEOUT_S))
        if not self._dialing.done():
            raise not_connected(self.peer, TimeoutError())
        await self._dialing  # raises what has failed

    def begin(self, call: Call, on_end: Callable[[], None]) -> _Pending:
        """See `AsyncLine`."""
        number = sent(self._connection, call)
        self._pending[number] = pending = _Pending(self, number, call.ttl_s + GRACE_S, on_end)
        self._send_soon()
        return pending

    async def flush(self) -> None:
        """See `AsyncLine`."""

    def cancel(self, number: int) -> None:
        """End a call at the daemon, unless it is over."""
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.end(ConnectionLost(f"{self.peer}: its caller has gone"))
            self._connection.send_cancel(number, "its caller has gone")
            self._send_soon()
            self._close_if_unused()

    def give_up(self, number: int) -> None:
        """End a call without an answer in time."""
        pending = self._pending.pop(number, None)
        if pending is not None:
            self._connection.forget_call(number)
            pending.end(CallTimeout(f"{self.peer} did not answer in time"))
            self._close_if_unused()

    async def _dial(self) -> None:
        try:
            sock = await asyncio.to_thread(connected, self.peer, CONNECT_TIMEOUT_S)
            assert isinstance(sock, socket)
            loop, tls = self.loop, dict[str, Any]()
            if self._key_file is not None:
                context = await asyncio.to_thread(client_context, self._key_file)
                tls = {"ssl": context, "server_hostname": "ringpop"}  # no name is compared
            is_unix = isinstance(self.peer, SocketPath)
            begin = loop.create_unix_connection if is_unix else loop.create_connection
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await begin(lambda: self, sock=sock, **tls)
                return await self._introduced
        # A host that cannot be a name is a UnicodeError.
        except (CallError, OSError, UnicodeError) as error:
            failed = not_connected(self.peer, in_words(error))
            self._end(failed)
            raise failed from None

    def _close_if_unused(self) -> None:
        if self._is_retired and not self._pending:
            self._end(ConnectionLost(f"{self.peer}: this client closed the connection"))

    def _end(self, error: CallError) -> None:
        """Close the connection; whatever waits for it gets *error*."""
        self._connection.close()
        over, self._pending = self._pending, {}
        for pending in over.values():
            pending.end(error)
        if not self._introduced.done():
            self._introduced.set_exception(error)
            self._introduced.exception()  # often nobody waits for it any more
        if self._transport is not None:
            self._transport.abort()

    def _send_soon(self) -> None:
        # Once for all that is said in this turn of the loop.
        if not self._is_sending:
            self._is_sending = True
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_sending = False
        data = self._connection.take_outgoing()
        if data and self._transport is not None:
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        if self._key_file is not None:
            try:
                self._trusted_until = checked_member(transport.get_extra_info("peercert"))
            except ConnectionError as error:
                self._end(not_connected(self.peer, error))
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        initialised = self._connection.initialised
        why = why_ended(exc and in_words(exc), initialised=initialised)
        self._end(ConnectionLost(f"{self.peer} {why}"))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            ended = take_in(self._connection, data, self._outcomes)
        except WireError as error:
            self._end(ConnectionLost(f"{self.peer} does not speak TChannel: {error}"))
            return
        for number, outcome in self._outcomes.items():
            pending = self._pending.pop(number, None)
            if pending is not None:
                pending.end(outcome)
        self._outcomes.clear()
        if self._connection.initialised and not self._introduced.done():
            self._introduced.set_result(None)
        self._send()
        if ended is not None:
            self._end(ended.kind(f"{self.peer} {ended.why}"))
        self._close_if_unused()
