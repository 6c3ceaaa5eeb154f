"""Connections of synchronous programs: one for each thread. No trio, no thread of its own."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from threading import RLock, local
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    WireError,
)
from ringpop_py.base.forks import FORKS
from ringpop_py.base.values.declared import replace
from ringpop_py.client.lines.local_daemon import (
    CONNECT_TIMEOUT_S,
    GRACE_S,
    TTL_S_MIN,
    BaseClient,
    connected,
)
from ringpop_py.client.lines.outcomes import (
    LineEnd,
    Outcomes,
    new_connection,
    no_time_left,
    sent,
    take_in,
    why_ended,
)

if TYPE_CHECKING:
    from ringpop_py.base.address import Peer
    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.security.sockets import TlsSocket
    from ringpop_py.net.wire.calls import Answer, Call
    from ringpop_py.net.wire.connection import Connection

RECEIVE_BYTES: Final = 1 << 16
WAIT_S_MAX: Final = 3600.0
"""The most seconds of one wait at the socket, which refuses waits of more than some days."""

now: Final = time.monotonic
sleep: Final = time.sleep


class Closing(ABC):
    """A base class: the end of a ``with`` block closes its connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class _Line:
    """The connection of one thread of one process to *peer*, made when it is needed.

    Only a `Pending` may be in the hands of another thread, and any thread may ask for closing. So a
    thread that reads or writes holds the lock, for which it seldom has to wait.
    """

    def __init__(
        self, peer: Peer, timeout_s: float, limits: WireLimits, key_file: str | None
    ) -> None:
        self.peer = peer
        self._key_file = key_file
        self.forks_count = FORKS.count
        self.connection: Connection | None = None
        self.outcomes = Outcomes()
        self.lock = RLock()
        self._timeout_s = timeout_s
        self._limits = limits
        self._socket: socket.socket | TlsSocket | None = None
        self._ends = False
        """Whether another thread has asked that the connection be closed."""

    def __del__(self) -> None:
        # Of a thread that has ended, or of the process that was forked. Only our own descriptor is
        # closed, so what the other process has goes on.
        if self._socket is not None:
            self._socket.close()

    def close(self) -> None:
        """Close the connection, if there is one; the next call makes a new one."""
        if not self.lock.acquire(blocking=False):
            sock = self._socket
            if sock is not None:
                self._ends = True
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
            return
        try:
            if self._socket is not None:
                self._socket.close()
            self._socket = self.connection = None
            # `Pending` calls keep the outcomes of their connection, so this drops no answer.
            self.outcomes = Outcomes()
        finally:
            self.lock.release()

    def begin(self, call: Call) -> Pending:
        """See `Client.begin`."""
        with self.lock:
            deadline_at = time.monotonic() + call.ttl_s
            connection, sock = self._connected(min(call.ttl_s, CONNECT_TIMEOUT_S))
            left_s = deadline_at - time.monotonic()
            if left_s < call.ttl_s - TTL_S_MIN:  # it took time to connect
                call = replace(call, ttl_s=max(left_s, TTL_S_MIN))
            call_id = sent(connection, call)
            try:
                sock.settimeout(min(call.ttl_s, WAIT_S_MAX))
                sock.sendall(connection.take_outgoing())
            except OSError as error:
                self.close()
                # Not ConnectFailed: the peer may have received all of the call.
                raise ConnectionLost(f"{self.peer}: {_reason(error)}") from None
            return Pending(self, call_id, deadline_at + GRACE_S)

    def _connected(self, timeout_s: float) -> tuple[Connection, socket.socket | TlsSocket]:
        # A daemon that ended since the last call has closed the connection: look, before a call is
        # sent into it and lost.
        while self._socket is not None and self.take_in(0):
            pass
        if self.connection is None or self._socket is None or self.connection.closed:
            self.close()
            self._connect(timeout_s)
        assert self.connection is not None
        assert self._socket is not None
        return self.connection, self._socket

    def _connect(self, timeout_s: float) -> None:
        deadline_at = time.monotonic() + timeout_s
        try:
            self._socket = connected(self.peer, timeout_s, self._key_file)
            self.connection = new_connection(self._limits)
            self._socket.sendall(self.connection.take_outgoing())
        except (OSError, UnicodeError) as error:  # UnicodeError: the host cannot be a name
            self.close()
            nobody = isinstance(error, ConnectionRefusedError | FileNotFoundError)
            kind = ConnectRefused if nobody else ConnectFailed
            raise kind(f"cannot reach {self.peer}: {_reason(error)}") from None
        connection, outcomes = self.connection, self.outcomes  # `close` replaces both
        while not connection.initialised:
            left_s = deadline_at - time.monotonic()
            if left_s <= 0:
                self.close()
                raise ConnectFailed(
                    f"{self.peer} accepts connections and says nothing: its process is paused or"
                    " hangs, or it is no ringpopd"
                )
            self.take_in(left_s)
            if self.connection is None:
                # No call was sent yet, so this is safe to retry, unlike a connection lost later.
                raise ConnectFailed(f"{self.peer} {outcomes.lost[1]}")

    def take_in(self, timeout_s: float) -> bool:
        """Process the bytes that arrive within *timeout_s*; return whether any did.

        If the connection ended it is closed, without an error: an answer may have come before.
        """
        assert self._socket is not None
        try:
            self._socket.settimeout(min(timeout_s, WAIT_S_MAX))
            data = self._socket.recv(RECEIVE_BYTES)
            if data:
                self._take(data)
            else:
                self._lose(self._ended(None))
        # With a time-out of 0 the socket does not block, and says so by the second of these.
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            self._lose(self._ended(error))
        except WireError as error:
            self._lose(f"does not speak TChannel: {error}")
        return True

    def _take(self, data: bytes) -> None:
        connection = self.connection
        assert connection is not None
        assert self._socket is not None
        ended = take_in(connection, data, self.outcomes)
        if ended is not None:
            self._lose(ended.why, ended.kind)
            return
        if connection.outgoing:
            # That of the receive before may be 0.
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(connection.take_outgoing())

    def _ended(self, error: Exception | None) -> str:
        initialised = self.connection is not None and self.connection.initialised
        return why_ended(error, initialised=initialised)

    def _lose(self, why: str, kind: type[CallError] = ConnectionLost) -> None:
        # Before `close`, which begins new outcomes: pending calls look into these.
        if not self._ends:
            self.outcomes.lost = LineEnd(kind, why)
        self._ends = False
        self.close()


class Pending:
    """A call under way; `result` waits for its answer."""

    __slots__ = ("_call_id", "_connection", "_deadline_at", "_line", "_outcomes")

    def __init__(self, line: _Line, call_id: int, deadline_at: float) -> None:
        self._line = line
        self._connection = line.connection
        self._outcomes = line.outcomes
        self._call_id = call_id
        self._deadline_at = deadline_at

    @property
    def peer(self) -> Peer:
        """The daemon that was called."""
        return self._line.peer

    def result(self) -> Answer:
        """Wait for the answer and return it, once. Raises CallError."""
        if self._line.forks_count != FORKS.count:
            raise ConnectionLost(
                f"the call to {self._line.peer} was begun before this process was forked; its"
                " answer goes to the process that began it"
            )
        with self._line.lock:
            return self._result()

    def close(self) -> None:
        """Want no answer any more."""
        if self._connection is not None:
            self._connection.forget_call(self._call_id)
        self._outcomes.pop(self._call_id, None)

    def _result(self) -> Answer:
        line = self._line
        while True:
            outcome = self._outcomes.pop(self._call_id, None)
            if isinstance(outcome, CallError):
                raise outcome
            if outcome is not None:
                return outcome
            # Only after the outcomes: an answer that came before the connection ended still counts.
            if self._connection is None or line.connection is not self._connection:
                kind, why = self._outcomes.lost
                raise kind(f"{line.peer} {why}")
            left_s = self._deadline_at - time.monotonic()
            if left_s <= 0:
                # Otherwise a late answer would stay in the outcomes as long as the connection.
                self._connection.forget_call(self._call_id)
                raise CallTimeout(f"{line.peer} did not answer in time")
            line.take_in(left_s)


class Lines(BaseClient, Closing):
    """Calls over a connection for each thread, made when it is needed and after a failure."""

    def _prepare(self) -> None:
        self._here = local()
        self._lines: WeakSet[_Line] = WeakSet()

    @property
    def connected(self) -> bool:
        """Whether this thread has a connection, as far as is known."""
        return self._line().connection is not None

    def _line(self) -> _Line:
        line: _Line | None = getattr(self._here, "line", None)
        if line is None or line.forks_count != FORKS.count:
            line = self._here.line = _Line(self.peer, self.timeout_s, self.limits, self.cluster_key)
            self._lines.add(line)
        return line

    def close(self) -> None:
        """Close the connections of all threads; the next call makes a new one.

        Calls under way in other threads end with `ConnectionLost`.
        """
        for line in list(self._lines):
            # What a fork has copied is left alone: the other process goes on with it.
            if line.forks_count == FORKS.count:
                line.close()

    def begin(self, call: Call, *, more: bool = False) -> Pending:
        """Send *call*; several may be under way.

        Args:
            more: see `AsyncLines.begin`; here nobody waits for a turn.

        Raises:
            ConnectFailed: if the daemon cannot be reached.
            ConnectionLost: if the connection broke while the call was sent.
            CallError: if the call cannot be sent, for example because it is too large.
        """
        del more
        if not call.ttl_s > 0:
            raise no_time_left()
        return self._line().begin(call)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (isinstance(error, OSError) and error.strerror) or str(error)
