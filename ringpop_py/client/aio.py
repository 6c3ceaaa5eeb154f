"""The asynchronous client, for programs under asyncio or trio.

An `AsyncClient` speaks to one daemon. Under asyncio all calls share a connection (`SharedLine`).
Under trio, and with TLS, a call under way has a connection to itself, which is kept for later calls
and closed if the call is cancelled: a task that reads for all would need a nursery of the program.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final, Self, Unpack

import anyio
import sniffio
from anyio.abc import SocketAttribute
from anyio.lowlevel import RunVar, checkpoint

from ringpop_py.base.address import SocketPath
from ringpop_py.base.arguments import checked_seconds
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConfigError,
    ConnectionLost,
    PeerFailed,
    TooManyInFlight,
    WireError,
)
from ringpop_py.base.values.declared import replace
from ringpop_py.client.client import CALL_TIMEOUT_S, MESSAGES_MAX
from ringpop_py.client.lines.local_daemon import CONNECT_TIMEOUT_S, FULL_RETRY_S, GRACE_S, peer_of
from ringpop_py.client.lines.outcomes import Outcomes, no_time_left, not_connected, take_in
from ringpop_py.client.lines.trust import client_context, key_file
from ringpop_py.client.proxy_calls import (
    ManyCalls,
    all_owners_call,
    owner_replies,
    proxy_call,
    proxy_reply,
)
from ringpop_py.net.security.identity import MEMBERS, identity_in, refusal_of
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.init import NO_LISTENER
from ringpop_py.net.wire.traces import current
from ringpop_py.route.proxy.key_groups import KEYS_MAX
from ringpop_py.route.proxy.request import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anyio.abc import ByteStream, SocketStream

    from ringpop_py.base.address import Peer
    from ringpop_py.base.errors import RingpopError
    from ringpop_py.client.lines.shared_line import SharedLine
    from ringpop_py.net.wire.calls import Answer, Call
    from ringpop_py.route.proxy.request import (
        AnyReply,
        AnyRequest,
        Headers,
        HttpReply,
        HttpRequest,
        OwnerReply,
        RequestOptions,
    )

CALLS_MAX: Final = 256
"""So many calls of an event loop are under way; more wait, in their time."""
TTL_S_MIN: Final = 0.001
IDLE_MAX: Final = 64
"""So many connections without a call are kept."""
_NUMBERS: Final = count()
_LOST: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class AsyncClient:
    """Calls to the daemon at *peer*. Each event loop has connections of its own.

    A loop that ends before the program does has to close them: use the client in an ``async with``.

    Args:
        peer, cluster_key: see `Client`.
        timeout_s: how long an answer may take, unless a call says otherwise.
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
        self.cluster_key = key_file(cluster_key)
        if not checked_seconds(timeout_s, "timeout_s") > 0:
            raise ConfigError(f"timeout_s is above 0, not {timeout_s!r}")
        self.timeout_s = timeout_s
        self._limits = limits or WireLimits()
        # Older ones of anyio know such a variable by its name.
        self._of_loop: RunVar[_OfLoop] = RunVar(f"connections {next(_NUMBERS)}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop that no call uses."""
        mine = self._mine()
        while mine.idle:
            await mine.idle.pop().aclose()
        if mine.shared is not None:
            mine.shared.close()
            await checkpoint()  # in which the event loop closes it

    def _mine(self) -> _OfLoop:
        mine = self._of_loop.get(None)
        if mine is None:
            mine = _OfLoop()
            self._of_loop.set(mine)
        return mine

    async def call(self, call: Call) -> Answer:
        """Send *call* and wait for its answer.

        Raises:
            CallError: one of its subclasses; `took_effect` says whether the call may have run.
        """
        if not call.ttl_s > 0:
            raise no_time_left()
        mine = self._mine()
        try:
            mine.slots.acquire_nowait()
        except anyio.WouldBlock:
            call = await self._wait_for(mine.slots, call)
        try:
            if mine.may_share and (self.cluster_key is None or isinstance(self.peer, SocketPath)):
                return await self._shared(mine).call(call)
            return await self._call(call)
        finally:
            mine.slots.release()

    def _shared(self, mine: _OfLoop) -> SharedLine:
        if mine.shared is None or not mine.shared.is_open:
            from ringpop_py.client.lines.shared_line import SharedLine  # noqa: PLC0415 - loads asyncio

            mine.shared = SharedLine(self.peer, self._limits)
        return mine.shared

    async def _wait_for(self, slots: anyio.Semaphore, call: Call) -> Call:
        """Wait for one of *slots*; return *call* with the time that is left."""
        began_at = anyio.current_time()
        with anyio.move_on_after(call.ttl_s):
            await slots.acquire()
            left_s = began_at + call.ttl_s - anyio.current_time()
            return replace(call, ttl_s=max(left_s, TTL_S_MIN))
        raise TooManyInFlight(f"{CALLS_MAX} calls to {self.peer} are under way in this program")

    async def _call(self, call: Call) -> Answer:
        line = await self._line(min(call.ttl_s, CONNECT_TIMEOUT_S))
        try:
            with anyio.fail_after(call.ttl_s + GRACE_S):
                return await line.call(call)
        except TimeoutError:
            raise CallTimeout(f"{self.peer} did not answer in time") from None
        finally:
            await self._keep(line)

    async def _line(self, timeout_s: float) -> _Line:
        lines = self._mine().idle
        while lines:
            line = lines.pop()
            if line.is_open:
                return line
            await line.aclose()
        try:
            with anyio.fail_after(timeout_s):
                stream = await _connected(self.peer, self.cluster_key)
                line = _Line(self.peer, stream, self._limits)
                await line.introduce()
                return line
        except (CallError, OSError) as error:
            raise not_connected(self.peer, error) from None

    async def _keep(self, line: _Line) -> None:
        lines = self._mine().idle
        if not line.is_busy and line.is_open and len(lines) < IDLE_MAX:
            lines.append(line)
        else:
            await line.aclose()

    async def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        *,
        service: str = "app",
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """Have this daemon forward *request* to the owner of *key*; see `Client.proxy`."""
        call = proxy_call(key, request, service=service, options=options, timeout_s=self.timeout_s)
        reply = proxy_reply(await self.call(call), request, self.peer)
        if reply is None:
            raise PeerFailed(f"{self.peer} leaves the answer to us, and was not asked to")
        return reply

    async def proxy_many(
        self,
        endpoint: str,
        keys: Iterable[str],
        bodies: Iterable[bytes],
        *,
        headers: Headers = (),
        keys_max: int = KEYS_MAX,
        **options: Unpack[RequestOptions],
    ) -> list[bytes | RingpopError]:
        """Have the owner of each key answer the request with its body; see `Client.proxy_many`."""
        many = ManyCalls(
            endpoint,
            keys,
            bodies,
            headers=headers,
            keys_max=keys_max,
            options=options,
            peer=self.peer,
        )
        deadline_at = anyio.current_time() + options.get("deadline_s", self.timeout_s)

        async def send() -> None:
            for message in many.messages:  # of which the other tasks take, too
                try:
                    call = many.call_for(message, deadline_at - anyio.current_time())
                    many.answered(message, await self.call(call))
                except CallError as error:
                    many.failed(message, error)

        async with anyio.create_task_group() as group:
            for _ in range(MESSAGES_MAX):
                group.start_soon(send)
        return many.results

    async def handle_or_proxy(
        self, key: str, request: HttpRequest, **options: Unpack[RequestOptions]
    ) -> HttpReply | None:
        """Return None if the host of this daemon owns *key*; see `Client.handle_or_proxy`."""
        call = proxy_call(
            key, request, service="", options=options, timeout_s=self.timeout_s, may_be_here=True
        )
        reply = proxy_reply(await self.call(call), request, self.peer)
        assert not isinstance(reply, Reply)
        return reply

    async def handle_or_proxy_all(
        self, keys: Iterable[str], request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> list[OwnerReply]:
        """Have this daemon ask each owner of *keys*; see `Client.handle_or_proxy_all`."""
        wanted, call = all_owners_call(keys, request, options=options, timeout_s=self.timeout_s)
        return owner_replies(await self.call(call), wanted, request, self.peer)


async def _connected(peer: Peer, key_file: str | None) -> ByteStream:
    while isinstance(peer, SocketPath):
        try:
            return await anyio.connect_unix(peer.path)
        except (BlockingIOError, anyio.BrokenResourceError):
            # Its backlog is full, for which such a socket does not wait. Our caller does.
            await anyio.sleep(FULL_RETRY_S)
    stream = await anyio.connect_tcp(*peer)
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream if key_file is None else await _secured(stream, key_file)


async def _secured(stream: SocketStream, key_file: str) -> ByteStream:
    import ssl  # noqa: PLC0415

    from anyio.streams.tls import TLSAttribute, TLSStream  # noqa: PLC0415 - only with keys

    from ringpop_py.net.security.credentials import explained  # noqa: PLC0415

    try:
        secured = await TLSStream.wrap(
            stream,
            server_side=False,
            ssl_context=client_context(key_file),
            standard_compatible=False,
        )
        _check_member(secured.extra(TLSAttribute.peer_certificate))  # noqa: S610 - not Django's
    except BaseException as error:
        await anyio.aclose_forcefully(stream)
        cause = error if isinstance(error, ssl.SSLError) else error.__cause__
        if isinstance(cause, ssl.SSLError):
            raise ConnectionError(explained(cause)) from None
        if isinstance(error, anyio.BrokenResourceError | anyio.EndOfStream):
            raise ConnectionError("the peer closed in the handshake") from None
        raise
    return secured


def _check_member(certificate: Mapping[str, object] | None) -> None:
    why = refusal_of(identity_in(certificate), "", MEMBERS)
    if why is not None:
        raise ConnectionError(why)


class _OfLoop:
    """What a client has for one event loop."""

    def __init__(self) -> None:
        self.may_share = sniffio.current_async_library() == "asyncio"
        self.shared: SharedLine | None = None
        self.idle = deque[_Line](maxlen=IDLE_MAX)
        self.slots = anyio.Semaphore(CALLS_MAX)


class _Line:
    """A connection to *peer*, for one call at a time.

    Attributes:
        is_busy: whether a call has no outcome yet, also if nobody waits for it any more.
    """

    def __init__(self, peer: Peer, stream: ByteStream, limits: WireLimits) -> None:
        self._peer = peer
        self._stream = stream
        self._outcomes = Outcomes()
        self.is_busy = False
        self._connection = Connection(
            host_port=NO_LISTENER, process_name="ringpop_py-client", initiates=True, limits=limits
        )
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's

    @property
    def is_open(self) -> bool:
        """Whether a call can be sent, as far as is known."""
        if self._connection.closed:
            return False
        # A daemon that has ended has closed it, which would otherwise lose the next call. Whatever
        # else can be read was not asked for.
        file = self._socket.fileno()
        if file < 0:
            return False
        ready = select.poll()
        ready.register(file, select.POLLIN)
        return not ready.poll(0)

    async def introduce(self) -> None:
        """Begin the connection; close it if that fails. Raises CallError, OSError."""
        try:
            await self._send()
            while not self._connection.initialised:
                await self._receive()
        except BaseException:
            await self.aclose()
            raise

    async def call(self, call: Call) -> Answer:
        """Send *call*, and return its answer. Raises CallError."""
        tracing = current()
        call_id = self._connection.send_call(replace(call, tracing=tracing) if tracing else call)
        self.is_busy = True
        await self._send()
        while call_id not in self._outcomes:
            await self._receive()
        self.is_busy = False
        outcome = self._outcomes.pop(call_id)
        if isinstance(outcome, CallError):
            raise outcome
        return outcome

    async def _send(self) -> None:
        data = self._connection.take_outgoing()
        if data:
            try:
                await self._stream.send(data)
            except _LOST as error:
                raise self._lost(f"the connection broke: {type(error).__name__} {error}") from None

    async def _receive(self) -> None:
        try:
            ended = take_in(self._connection, await self._stream.receive(), self._outcomes)
        except anyio.EndOfStream:
            raise self._lost("closed the connection: its process has ended") from None
        except _LOST as error:
            raise self._lost(f"broke the connection: {type(error).__name__} {error}") from None
        except WireError as error:
            raise self._lost(f"does not speak TChannel: {error}") from None
        if ended is not None:
            self._connection.close()
            raise ended.kind(f"{self._peer} {ended.why}")
        await self._send()

    def _lost(self, why: str) -> ConnectionLost:
        self._connection.close()
        return ConnectionLost(f"{self._peer} {why}")

    async def aclose(self) -> None:
        """Close it immediately."""
        self._connection.close()
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)
