"""The synchronous client: for scripts, WSGI applications and Spark's workers. No trio, no thread.

A `Client` speaks to one daemon, over one connection for each thread. A connection is made when it
is first needed, and made again after a failure.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock, local
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, overload
from weakref import WeakSet

from ringpop_py.base.address import Address
from ringpop_py.base.arguments import checked_seconds, sendable_text
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    ApplicationError,
    BodyError,
    CallError,
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    PeerFailed,
    WireError,
)
from ringpop_py.base.forks import FORKS
from ringpop_py.base.values.declared import Named, Natural, Text, convert, encode, replace
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.client.lines.local_daemon import CONNECT_TIMEOUT_S, GRACE_S, connected, peer_of
from ringpop_py.client.lines.outcomes import LineEnd, Outcomes, no_time_left, take_in
from ringpop_py.client.lines.trust import key_file
from ringpop_py.client.proxy_calls import (
    ManyCalls,
    all_owners_call,
    application_call,
    checked_request,
    error_in,
    owner_replies,
    proxy_call,
    proxy_reply,
)
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.init import NO_LISTENER
from ringpop_py.net.wire.traces import current
from ringpop_py.route.proxy.head import RELAY_ENDPOINT, Head, RelayHead
from ringpop_py.route.proxy.key_groups import KEYS_MAX
from ringpop_py.route.proxy.request import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.base.address import Peer
    from ringpop_py.base.errors import RingpopError
    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.net.security.sockets import TlsSocket
    from ringpop_py.route.proxy.key_groups import ManyMessage
    from ringpop_py.route.proxy.request import (
        AnyReply,
        AnyRequest,
        Headers,
        HttpReply,
        HttpRequest,
        OwnerReply,
        RequestOptions,
    )

RECEIVE_BYTES: Final = 1 << 16
CALL_TIMEOUT_S: Final = 10.0
WAIT_S_MAX: Final = 3600.0
"""The most seconds of one wait at the socket, which refuses waits of more than some days."""
MESSAGES_MAX: Final = 4
"""So many messages of `Client.proxy_many` are under way at a time."""


class Closing(ABC):
    """A base class: the end of a ``with`` block closes its connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class _RingOwner(Named, frozen=True):
    name: Text
    identity: Text
    address: Text


class _Ring(Named, frozen=True):
    dialect: Text
    points_count: Natural
    service: Text
    owners: tuple[_RingOwner, ...]


class _Looked(Named, frozen=True):
    dest: Text


@dataclass(frozen=True, slots=True)
class RingSnapshot:
    """The ring as one daemon saw it, with the addresses and the service of the owners."""

    ring: HashRing
    addresses: dict[str, Address]
    service: str


class _Line:
    """The connection of one thread of one process to *peer*, made when it is needed.

    Only a `Pending` may be in the hands of another thread, and closing may be asked for by any. So
    whoever reads or writes holds the lock, which usually nobody else wants.
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
            connection, sock = self._connected(min(call.ttl_s, CONNECT_TIMEOUT_S))
            # From here, so that connecting does not shorten what the peer was granted.
            deadline_at = time.monotonic() + call.ttl_s + GRACE_S
            tracing = current()
            call_id = connection.send_call(replace(call, tracing=tracing) if tracing else call)
            try:
                sock.settimeout(min(call.ttl_s, WAIT_S_MAX))
                sock.sendall(connection.take_outgoing())
            except OSError as error:
                self.close()
                # Not ConnectFailed: the peer may have received all of the call.
                raise ConnectionLost(f"{self.peer}: {_reason(error)}") from None
            return Pending(self, call_id, deadline_at)

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
            self.connection = Connection(
                host_port=NO_LISTENER,
                process_name="ringpop_py-client",
                initiates=True,
                limits=self._limits,
            )
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
                self._lose(self._ended("closed the connection"))
        # With a time-out of 0 the socket does not block, and says so by the second of these.
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            self._lose(self._ended(f"broke the connection ({_reason(error)})"))
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

    def _ended(self, how: str) -> str:
        if self.connection is not None and self.connection.initialised:
            return f"{how}: its process has ended, or this client was idle for long"
        return (
            f"{how} before it said what it is: its process has just ended, it has no room for"
            " another connection, it wants TLS (RINGPOP_CLUSTER_KEY), it refuses the certificate"
            " (revoked, or of another cluster: its log says so), or it is no ringpopd"
        )

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


class Client(Closing):
    """Calls to the daemon at *peer*; by default to the one of this host.

    Threads may share a client: each has a connection of its own. A copy that a fork, pickle or a
    closure of Spark has put into another process has connections of its own, too.

    Args:
        peer: ``host:port``, ``unix:PATH`` of a daemon's Unix socket, or an `Address`. Without it,
            the variable RINGPOP_PEER names it; else it is the daemon whose socket is at its usual
            place, or the one at 127.0.0.1:3000.
        timeout_s: how long an answer may take, unless a call says otherwise.
        cluster_key: the file with the cluster's keys, if it has some; else the variable
            RINGPOP_CLUSTER_KEY names it. Unix sockets need none.
    """

    def __init__(
        self,
        peer: Peer | str | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        limits: WireLimits | None = None,
        cluster_key: str | None = None,
    ) -> None:
        self.peer = peer_of(peer)
        if not checked_seconds(timeout_s, "timeout_s") > 0:
            raise ConfigError(f"timeout_s is above 0, not {timeout_s!r}")
        self.timeout_s = timeout_s
        self.cluster_key = key_file(cluster_key)
        self.is_of_cluster = False  # whether this process is a part of it, though it has no key
        self._limits = limits or WireLimits()
        self._here = local()
        self._lines: WeakSet[_Line] = WeakSet()

    def __reduce__(self) -> tuple[object, ...]:
        made = partial(
            Client, timeout_s=self.timeout_s, limits=self._limits, cluster_key=self.cluster_key
        )
        return made, (self.peer,)

    def to(self, peer: Peer | str) -> Client:
        """Return a client like this one of another daemon."""
        return Client(
            peer, timeout_s=self.timeout_s, limits=self._limits, cluster_key=self.cluster_key
        )

    @property
    def connected(self) -> bool:
        """Whether this thread has a connection, as far as is known."""
        return self._line().connection is not None

    def _line(self) -> _Line:
        line: _Line | None = getattr(self._here, "line", None)
        if line is None or line.forks_count != FORKS.count:
            line = self._here.line = _Line(
                self.peer, self.timeout_s, self._limits, self.cluster_key
            )
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

    # Calls.

    def call(self, call: Call) -> Answer:
        """Send *call* and wait for its answer.

        Raises:
            CallError: one of its subclasses; `took_effect` says whether the call may have run.
        """
        return self.begin(call).result()

    def begin(self, call: Call) -> Pending:
        """Send *call*; several may be under way.

        Raises:
            ConnectFailed: if the daemon cannot be reached.
            ConnectionLost: if the connection broke while the call was sent.
            CallError: if the call cannot be sent, for example because it is too large.
        """
        if not call.ttl_s > 0:
            raise no_time_left()
        return self._line().begin(call)

    # The node.

    def admin(self, endpoint: str, body: object = None, *, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - a plain value, by endpoint
        """Return the answer of the node's own *endpoint*.

        Raises:
            ApplicationError: if the node refused the request.
            CallError: if there was no answer.
        """
        sendable_text(endpoint, "endpoint")
        packed = b"" if body is None else _packed(body, endpoint)
        ttl_s = self.timeout_s if timeout_s is None else timeout_s
        answer = self.call(Call(NODE_SERVICE, endpoint, b"", packed, ttl_s=ttl_s))
        try:
            value = decode_value("msgpack", answer.arg3)
        except BodyError as broken:
            # Not a refusal: the node has served the request, whatever it answered.
            raise PeerFailed(f"{self.peer}: the answer of {endpoint}: {broken}") from None
        if not answer.ok:
            error = value if isinstance(value, dict) else {}
            raise ApplicationError(str(error.get("type", "error")), str(error.get("message", "")))
        return value

    def lookup(self, key: str) -> str:
        """Return the name of the member that owns *key*, as this daemon sees the ring."""
        asked = {"key": sendable_text(key, "key")}
        return convert(_Looked, self.admin("/admin/lookup", asked)).dest

    def ring(self) -> RingSnapshot:
        """Return the daemon's ring, to look up keys here."""
        # The ring loads NumPy, which most callers do not need.
        from ringpop_py.base.dialect import dialect_named  # noqa: PLC0415
        from ringpop_py.member.ring.hashring import HashRing  # noqa: PLC0415

        shown = convert(_Ring, self.admin("/admin/ring"))
        ring = HashRing(
            {owner.name: owner.identity for owner in shown.owners},
            dialect=dialect_named(shown.dialect),
            points_count=shown.points_count,
        )
        addresses = {owner.name: Address.parse(owner.address) for owner in shown.owners}
        return RingSnapshot(ring, addresses, shown.service)

    # The application.

    @overload
    def proxy(
        self,
        key: str | Sequence[str],
        request: Request,
        *,
        service: str = ...,
        **options: Unpack[RequestOptions],
    ) -> Reply: ...

    @overload
    def proxy(
        self, key: str, request: HttpRequest, **options: Unpack[RequestOptions]
    ) -> HttpReply: ...

    def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        service: str = "app",
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """Have this daemon forward *request* to the owner of *key*; return the owner's reply.

        Args:
            options: see `RequestOptions`; without ``deadline_s``, the deadline is `timeout_s`.

        Raises:
            ApplicationError: if the owner's handler answered with it.
            ProxyError: if the daemon could not forward it; as in `Proxy.handle_or_proxy`.
            CallError: if the daemon itself did not answer.
        """
        call = proxy_call(key, request, service=service, options=options, timeout_s=self.timeout_s)
        reply = proxy_reply(self.call(call), request, self.peer)
        if reply is None:
            raise PeerFailed(f"{self.peer} leaves the answer to us, and was not asked to")
        return reply

    def proxy_many(
        self,
        endpoint: str,
        keys: Iterable[str],
        bodies: Iterable[bytes],
        *,
        headers: Headers = (),
        keys_max: int = KEYS_MAX,
        **options: Unpack[RequestOptions],
    ) -> list[bytes | RingpopError]:
        """Have the owner of each key answer the request with its body; many travel as one.

        See `Ringpop.proxy_many`. If this daemon cannot be reached, that is the result of each.

        Raises:
            ConfigError: an argument or an option is not what it has to be.
        """
        many = ManyCalls(
            endpoint,
            keys,
            bodies,
            headers=headers,
            keys_max=keys_max,
            options=options,
            peer=self.peer,
        )
        deadline_at = time.monotonic() + options.get("deadline_s", self.timeout_s)
        under_way: deque[tuple[ManyMessage, Pending]] = deque()

        def take_one() -> None:
            message, pending = under_way.popleft()
            try:
                many.answered(message, pending.result())
            except CallError as error:
                many.failed(message, error)

        for message in many.messages:
            if len(under_way) == MESSAGES_MAX:
                take_one()
            try:
                call = many.call_for(message, deadline_at - time.monotonic())
                under_way.append((message, self.begin(call)))
            except CallError as error:
                many.failed(message, error)
        while under_way:
            take_one()
        return many.results

    def handle_or_proxy(
        self, key: str, request: HttpRequest, **options: Unpack[RequestOptions]
    ) -> HttpReply | None:
        """Return None if the host of this daemon owns *key*, and otherwise as `proxy` does.

        Only of HTTP: the application that asks is the one that answers on its own host.
        """
        call = proxy_call(
            key, request, service="", options=options, timeout_s=self.timeout_s, may_be_here=True
        )
        reply = proxy_reply(self.call(call), request, self.peer)
        assert not isinstance(reply, Reply)
        return reply

    def handle_or_proxy_all(
        self, keys: Iterable[str], request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> list[OwnerReply]:
        """Have this daemon ask each owner of *keys*, all at the same time.

        An `HttpRequest` has no reply where the daemon's own host is the owner: the application
        that asks answers for these keys. A `Request` is answered there by the daemon's handler.

        Raises:
            NoOwner: if no key has an owner.
            CallError: if the daemon itself did not answer.
        """
        wanted, call = all_owners_call(keys, request, options=options, timeout_s=self.timeout_s)
        return owner_replies(self.call(call), wanted, request, self.peer)

    def _ttl_s(self, given: float | None) -> float:
        return self.timeout_s if given is None else checked_seconds(given, "deadline_s")

    def invoke(
        self, request: Request, *, service: str = "app", timeout_s: float | None = None
    ) -> bytes:
        """Call the application's handler on this very node, whatever it owns.

        Raises:
            ApplicationError: if the handler answered with it.
            CallError: if there was no answer.
        """
        head = Head(headers=checked_request(request).headers).encode()
        answer = self._begin(service, request, head, timeout_s).result()
        if not answer.ok:
            raise error_in(answer)
        return answer.arg3

    def relay(self, owner: str, request: Request, *, timeout_s: float | None = None) -> Pending:
        """Begin a call of the handler at the member *owner*, through this daemon.

        Raises:
            CallError: if the daemon cannot be reached.
        """
        head = encode(RelayHead(sendable_text(owner, "owner"), checked_request(request).endpoint))
        return self._begin(NODE_SERVICE, Request(RELAY_ENDPOINT, request.body), head, timeout_s)

    def _begin(
        self, service: str, request: Request, head: bytes, timeout_s: float | None
    ) -> Pending:
        return self.begin(application_call(service, request, head, self._ttl_s(timeout_s)))


def _packed(body: object, endpoint: str) -> bytes:
    try:
        return encode_value("msgpack", body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{endpoint}: the body cannot be sent: {error}") from None


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (isinstance(error, OSError) and error.strerror) or str(error)
