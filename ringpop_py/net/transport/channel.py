"""Channel: one node's listener, its connections to peers, and the calls both ways over them.

A connection is made when a call needs it, and kept; one that a peer made is used in the same way.
Nothing here retries: a call is sent to one peer once, and ends with an answer or an error.
"""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectRefused,
    ConnectTooSlow,
    ConnectUntrusted,
)
from ringpop_py.base.values.declared import replace
from ringpop_py.net.security.identity import Role
from ringpop_py.net.security.permits import Newcomers, limits_in
from ringpop_py.net.security.users import is_this_machine
from ringpop_py.net.transport.calls import ParkedCall, PendingCall
from ringpop_py.net.transport.deadlines import FAR_S, Wheel
from ringpop_py.net.transport.link import CONNECTION, PeerLink
from ringpop_py.net.transport.serving import Handlers
from ringpop_py.net.transport.serving import IncomingCall as IncomingCall
from ringpop_py.net.transport.tcp import TcpNetwork
from ringpop_py.net.transport.writer import Flusher
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.fragments import Budget
from ringpop_py.net.wire.frames import NO_ID, ErrorCode, error_frame
from ringpop_py.net.wire.init import NO_LISTENER, listening_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from ringpop_py.base.address import Address
    from ringpop_py.member.drain import Work
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.transport.network import Listener, Network, Stream
    from ringpop_py.net.transport.serving import Handler
    from ringpop_py.net.transport.tracing import Tracing
    from ringpop_py.net.wire.calls import Answer, Call

_CONNECT_ERRORS: Final[Mapping[int, type[ConnectFailed]]] = {
    errno.ECONNREFUSED: ConnectRefused,
    errno.ETIMEDOUT: ConnectTooSlow,
    errno.EKEYREJECTED: ConnectUntrusted,  # by `TlsNetwork`
}
RESERVED: Final = 64
"""How many connections there may be beyond `connections_max`, for hosts that `knows_host` names."""
IDLE_S: Final = 1.0
"""For how many seconds a connection must have been unused to make room for another."""
EVICTED_SHARE: Final = 64
"""Once in `IDLE_S`, one connection in this many may make room."""
LINGER_S: Final = 0.25
"""The seconds for which `Channel.say_goodbye` waits for peers to close, too; some never do."""
MORE_ROOM: Final = "find who connects so often, or raise the limit if it is a setting"
"""What operators can do when a connection is refused because of a limit."""


def _ignore(*_: object) -> None:
    pass


class Channel:
    """The calls of one node.

    When all connections are in use, those that are idle make room, and `RESERVED` further ones are
    for this node's own calls, for its machine, and for hosts that it knows. These are also not
    among the `Newcomers` that are limited.

    Args:
        host_port: where others reach this node; by default what `listen` binds.
        process_name: this node's name in the tools of peers.
        limits: what a peer may make this node hold.
        network: TCP by default; see `ringpop_py.testing` for tests.
        init_headers: returns the headers for a peer when a connection starts.
        accept: gets a peer's init headers and returns None, or why the peer is refused.

    Attributes:
        on_met: called when a connection with a peer that listens is up, with the init headers of
            this end, if it has dialed, made before that; and with those of the peer.
        on_disconnect: called with the peer's address when an established connection broke.
        on_quiet: called with the peer's address when it owes answers and has sent nothing for
            `QUIET_US`.
        on_handler_error: called with the endpoint and the exception when a handler failed.
        on_trouble: called with a peer's name, an endpoint and a sentence, when the peer sent
            something that cannot be read, or that is not served here; and with what to do, if that
            is not to look at its version.
        owns: returns whether the member that has proved to have that name listens at an address;
            by default, if the address is its name.
        knows_host: returns whether a host, as the network knows it, may use the reserve; by default
            only this machine may.
        handlers: what answers which calls.
        network: makes and accepts connections.
        listeners: accept connections when the channel runs; `listen` adds those of an address.
        links: all connections.
        calls_sent: how many calls were begun, however they ended.
    """

    def __init__(
        self,
        *,
        host_port: Address | None = None,
        process_name: str,
        limits: WireLimits | None = None,
        network: Network | None = None,
        init_headers: Callable[[], Mapping[str, str]] = dict,
        accept: Callable[[Mapping[str, str]], str | None] | None = None,
    ) -> None:
        self.host_port = host_port
        self.limits = limits or WireLimits()
        self.wheel = Wheel()
        self.flusher = Flusher()
        self.handlers = Handlers(limits_in(self.limits))
        self.links = LinkTable(self.limits)
        self.calls_sent = 0
        self.tracing: Tracing | None = None
        self.on_met: Callable[[Mapping[str, str], Mapping[str, str]], None] = _ignore
        self.on_disconnect: Callable[[Address], None] = _ignore
        self.on_quiet: Callable[[Address], None] = _ignore
        self.on_handler_error: Callable[[str, Exception], None] = _ignore
        self.on_trouble: Callable[..., None] = _ignore
        self.knows_host: Callable[[str], bool] = is_this_machine
        self.owns: Callable[[str, Address], bool] = lambda name, address: name == str(address)
        self.network: Network = network or TcpNetwork()
        self._init_headers = init_headers
        self._new_connection = partial(
            Connection,
            process_name=process_name,
            limits=self.limits,
            accept=accept,
            budget=Budget(self.limits.assembling_bytes_max),
        )
        self.listeners: list[Listener] = []
        self._nursery: trio.Nursery | None = None
        self._dials = False

    def __repr__(self) -> str:
        return f"<Channel at {self.host_port or NO_LISTENER}, {len(self.links)} connections>"

    async def listen(self, address: Address) -> Address:
        """Bind *address* and return it, with the port that was picked if it had none.

        Raises:
            ConfigError: it cannot be bound.
        """
        try:
            listeners = await self.network.listen(address)
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on {address}: {why}; free it, or choose another address"
            ) from None
        self.listeners += listeners
        bound = address._replace(port=listeners[0].address.port)
        self.host_port = self.host_port or bound
        return bound

    def close(self) -> None:
        """Stop listening; all that a channel that never ran has to do."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and dial until cancelled; then close everything."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.wheel.run)
                self._nursery.start_soon(self.flusher.run)
                for listener in self.listeners:
                    self._nursery.start_soon(self._accept_from, listener)
                self._dials = True
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._dials = False  # first: a closing nursery starts no tasks
        finally:
            self._nursery = None
            self.close()
            for link in self.links:
                link.end()

    async def say_goodbye(self, reason: str) -> None:
        """Stop accepting and dialing, and end all connections as in `PeerLink.say_goodbye`.

        A call that crosses the goodbye does not run, and its caller knows that. This takes at most
        `LINGER_S`; what is not sent by then (`sending`) is lost.
        """
        self._dials = False
        self.close()
        for link in self.links:
            link.say_goodbye(reason)
        with trio.move_on_after(LINGER_S):
            await self.links.wait_empty()

    # Calling.

    def begin(self, to: Address, call: Call, done: Callable[[Answer | CallError], None]) -> None:
        """Start a call. *done* is called once with how it ended, perhaps before this returns."""
        end: Callable[[Answer | CallError], None] = _ignore
        if self.tracing is not None:
            call, end = self.tracing.calling(call, to)

        def finish(outcome: Answer | CallError) -> None:
            end(outcome)
            try:
                done(outcome)
            except Exception as error:  # noqa: BLE001 - a bug in *done* must not end other calls
                self.on_handler_error(call.endpoint, error)
            if pending.link is not None:
                pending.link.settle()

        pending = PendingCall(call, finish)
        self._begin(to, pending)

    def call(self, to: Address, call: Call) -> Awaitable[Answer]:
        """Start a call, and return the answer of *to*; await it immediately.

        Cancelling the caller cancels the call there, too.

        Raises:
            CallError: there is no answer.
        """
        if self.tracing is not None:
            return self._traced_call(to, call, self.tracing)
        pending = ParkedCall(call)
        self._begin(to, pending)
        return pending.wait()

    async def _traced_call(self, to: Address, call: Call, tracing: Tracing) -> Answer:
        """As `call`, with a span."""
        call, end = tracing.calling(call, to)
        outcome: Answer | CallError = CallTimeout("the caller was cancelled")
        try:
            pending = ParkedCall(call)
            self._begin(to, pending)
            outcome = await pending.wait()
        except CallError as error:
            outcome = error
            raise
        finally:
            end(outcome)
        return outcome

    def identity_at(self, address: Address) -> Identity | None:
        """Return the identity that answers calls to *address*, if it had to be proved."""
        link = self.links.routes.get(address)
        return None if link is None else link.incoming.identity

    def give_up_calls(self, to: Address, which: Callable[[Call], bool], why: str) -> None:
        """End calls to *to*, which is believed to be gone, as if it had been silent for too long.

        Its connection stays: the peer may be back. *which* picks only calls for which tasks wait:
        the callback of another must not run inside the code that believes the peer to be gone.
        """
        link = self.links.routes.get(to)
        if link is not None:
            link.give_up_calls(which, why)

    def _begin(self, to: Address, pending: PendingCall) -> None:
        self.calls_sent += 1
        call = pending.call
        if not 0 < call.ttl_s < FAR_S:
            if not call.ttl_s >= FAR_S:  # not `<`: this is also true for NaN
                pending.finish(CallTimeout("no time was left for the call"))
                return
            pending.call = call = replace(call, ttl_s=FAR_S)
        now = trio.current_time()
        pending.deadline = now + call.ttl_s
        link = self.links.routes.get(to)
        # A link that is over may still be in the table, until its task has ended.
        if link is None or link.over:
            if not self._dials:
                pending.finish(ConnectFailed(f"{to}: this channel is not running"))
                return
            if self.links.is_full(RESERVED):
                pending.finish(ConnectFailed(f"{to}: {self.links}"))
                return
            link = self._new_link(to)
            self.spawn(self._connect, link, to)
        # Even before the connection is up: the link keeps the call until then.
        link.begin(pending, now)

    async def _connect(self, link: PeerLink, to: Address) -> None:
        try:
            with trio.fail_after(self.limits.connect_timeout_s):
                stream = await self.network.connect(to, origin=self.host_port)
        except OSError as error:
            kind = _CONNECT_ERRORS.get(error.errno or 0, ConnectFailed)
            link.fail_dial(kind(error.strerror or str(error)))
        except trio.TooSlowError:
            link.fail_dial(ConnectTooSlow("no connection in time"))
        else:
            if link.over:  # it was stopped while it was dialed
                stream.close()
            else:
                await self._run(link, stream)
        finally:
            link.end()

    # Serving.

    def serve(
        self,
        service: str,
        endpoint: str,
        handler: Handler,
        *,
        work: Work | None = None,
        role: Role = Role.CLIENT,
    ) -> None:
        """Have *handler* answer calls of *endpoint*, or of all that have no handler (``"*"``).

        A handler returns an `Answer`; or an awaitable of one, which runs in a task of its own
        until the caller stops waiting; or None, and answers later through the `IncomingCall`. The
        caller gets the exception that it raises.

        Args:
            work: which kind of work its calls are for `serving` and `Handlers.decline`; None for
                calls of the node itself.
            role: the least that a caller must be, if it has to prove who it is.
        """
        self.handlers.serve(service, endpoint, handler, work, role)

    def serving(self) -> Counter[Work]:
        """Return how many calls of each kind of work wait for an answer of ours."""
        return self.handlers.works_of(call for link in self.links for call in link.incoming)

    def sending(self) -> int:
        """Return on how many connections bytes are queued that the peer has not read yet."""
        return sum(link.sending for link in self.links)

    async def _accept_from(self, listener: Listener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:  # by `say_goodbye`
                return
            host = stream.remote_host
            if self.links.is_full():
                self.on_trouble(host, CONNECTION, f"it came when {self.links}: idle ones end")
                self.links.evict_idle(trio.current_time())
            crowded = not self.links.newcomers.have_place_for(host)
            known = (crowded or self.links.is_full()) and self.knows_host(host)
            why = self.links.why_refused(host, RESERVED if known else 0)
            if why is None:
                self.spawn(self._run, self._new_link(None, host), stream)
                continue
            self.links.refused_count += 1
            self.links.refused_at = trio.current_time()
            why = f"{self.host_port}: {why}"
            self.on_trouble(host, CONNECTION, f"a connection was refused: {why}", MORE_ROOM)
            if crowded:  # to be told why costs a handshake, too
                stream.close()
            else:
                self.links.newcomers.add(stream, host)
                self.spawn(self._turn_away, stream, why)

    async def _turn_away(self, stream: Stream, why: str) -> None:
        """Tell the other end *why* it is refused, and close."""
        broken = suppress(trio.BrokenResourceError, trio.ClosedResourceError)
        try:
            with broken, trio.move_on_after(self.limits.init_timeout_s):
                if await stream.receive():  # before its first bytes, there may be no TLS
                    await stream.send_some(memoryview(error_frame(NO_ID, ErrorCode.FATAL, why)))
                    stream.end_sending()
                # Closing a socket with unread bytes would reset the connection.
                while await stream.receive():
                    pass
        finally:
            self.links.newcomers.discard(stream)
            stream.close()

    async def _run(self, link: PeerLink, stream: Stream) -> None:
        try:
            await link.run(stream)
        except Exception as error:  # noqa: BLE001 - a bug ends one connection, not the node
            peer = link.connection.peer_host_port or link.remote_host
            self.on_handler_error(f"a connection of {peer}", error)

    # What links ask for.

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run *function* in a task of its own. Raises ConnectFailed if this does not run."""
        if self._nursery is None:
            raise ConnectFailed("this channel is not running")
        self._nursery.start_soon(function, *arguments)

    def link_is_up(self, link: PeerLink, headers: Mapping[str, str]) -> None:
        """Note that the peer has introduced itself."""
        identity = link.incoming.identity
        # Only a member of that address is believed: our calls to it use this connection then.
        if link.address is None and (identity is None or identity.role is Role.MEMBER):
            address = listening_address(link.connection.peer_host_port)
            if address is not None and (identity is None or self.owns(identity.name, address)):
                link.address = address
        if link.connection.initiates or link.address is not None:
            self.on_met(link.connection.init_headers if link.connection.initiates else {}, headers)
        self.links.is_up(link)

    def link_is_down(self, link: PeerLink, *, broke: bool) -> None:
        """Note that the connection is gone."""
        self.links.remove(link)
        if broke and link.address is not None:
            self.on_disconnect(link.address)

    def link_is_quiet(self, link: PeerLink) -> None:
        """Note that the peer owes answers and sends nothing."""
        if link.address is not None:
            self.on_quiet(link.address)

    def _new_link(self, to: Address | None, remote_host: str = "") -> PeerLink:
        host_port = str(self.host_port) if self.host_port is not None else NO_LISTENER
        connection = self._new_connection(
            host_port=host_port, initiates=to is not None, init_headers=self._init_headers()
        )
        link = PeerLink(self, connection, to)
        link.remote_host = remote_host
        link.heard_at = trio.current_time()
        self.links.add(link)
        return link


class LinkTable:
    """Connections, oldest first.

    Attributes:
        routes: the connection that calls to a peer use, by the peer's address.
        refused_count, refused_at: how many were refused because of a limit; when the last one was.
        newcomers: those accepted that have not introduced themselves, or are being told why not.
    """

    def __init__(self, limits: WireLimits) -> None:
        self.refused_count, self.refused_at, self.newcomers = 0, 0.0, Newcomers()
        self.routes: dict[Address, PeerLink] = {}
        self._limits = limits
        self._links: dict[PeerLink, None] = {}
        self._accepted_from: Counter[str] = Counter()
        self._last_down = trio.Event()
        self._evicts_from = 0.0

    def __str__(self) -> str:
        return f"all {self._limits.connections_max} connections are in use"

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[PeerLink]:
        return iter(list(self._links))  # a copy: links remove themselves while they end

    def is_full(self, reserve: int = 0) -> bool:
        """Return whether there are as many connections as there may be, and *reserve* more."""
        return len(self._links) >= self._limits.connections_max + reserve

    def why_refused(self, remote_host: str, reserve: int) -> str | None:
        """Return which limit a new connection from *remote_host* meets; None if it has a place.

        Connections from this machine, also over a Unix socket, are not limited by their address:
        the programs of a host share it.
        """
        if self.is_full(reserve):
            return f"{self} (connections_max)"
        if not (reserve or self.newcomers.have_place_for(remote_host)):
            return f"{self.newcomers} (NEWCOMERS_MAX)"
        most = self._limits.connections_per_address_max
        if self._accepted_from[remote_host] < most or is_this_machine(remote_host):
            return None
        return f"{most} connections come from {remote_host} already (connections_per_address_max)"

    def evict_idle(self, now: float) -> None:
        """End those accepted connections that have been unused the longest, once in `IDLE_S`."""
        if now < self._evicts_from:
            return  # going through all for each connection that comes would cost too much
        self._evicts_from = now + IDLE_S
        idle = [
            link
            for link in self._links
            if not (link.connection.initiates or link.busy or link.heard_at > now - IDLE_S)
        ]
        idle.sort(key=attrgetter("heard_at"))
        for link in idle[: len(self._links) // EVICTED_SHARE + 1]:
            link.stop("it was idle when all connections were in use")
            link.end()  # immediately, so that there is room

    def add(self, link: PeerLink) -> None:
        """Add a connection; calls use it if the peer's address is known."""
        self._links[link] = None
        if link.address is not None:
            self.routes[link.address] = link
        else:
            self._accepted_from[link.remote_host] += 1
            self.newcomers.add(link, link.remote_host)

    def is_up(self, link: PeerLink) -> None:
        """Note that the peer has introduced itself: calls to its address use this connection."""
        self.newcomers.discard(link)
        if link.address is not None:
            current = self.routes.get(link.address)
            if current is None or not current.ready:
                self.routes[link.address] = link  # if both ends dialed, calls stay with the first

    def remove(self, link: PeerLink) -> None:
        """Remove a connection; calls use another one to the same peer, if there is one."""
        self._links.pop(link, None)
        self.newcomers.discard(link)
        if not self._links:
            self._last_down.set()
        if not link.connection.initiates:
            self._accepted_from[link.remote_host] -= 1
            self._accepted_from += Counter()  # forgets hosts without connections
        address = link.address
        if address is not None and self.routes.get(address) is link:
            del self.routes[address]
            others = (other for other in self._links if other.address == address and other.ready)
            if (other := next(others, None)) is not None:
                self.routes[address] = other

    async def wait_empty(self) -> None:
        """Wait until there are no connections."""
        while self._links:
            self._last_down = trio.Event()
            await self._last_down.wait()
