"""Channel: one node's listener, its connections to peers, and the calls both ways over them.

A connection is made when a call needs it and kept; one that a peer made is used just the same.
Nothing here retries: a call goes to one peer once, and says how that ended.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.address import Address
from ringpop_py.config.settings import WireLimits
from ringpop_py.errors import (
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectRefused,
    ConnectTooSlow,
    PeerDeclined,
)
from ringpop_py.transport.calls import IncomingCall as IncomingCall
from ringpop_py.transport.calls import ParkedCall, PendingCall
from ringpop_py.transport.deadlines import FAR_S, Wheel
from ringpop_py.transport.link import PeerLink
from ringpop_py.transport.tcp import TcpNetwork
from ringpop_py.wire.connection import Connection
from ringpop_py.wire.fragments import Budget
from ringpop_py.wire.init import NO_LISTENER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from ringpop_py.drain import Work
    from ringpop_py.errors import CallError
    from ringpop_py.transport.calls import Handler
    from ringpop_py.transport.network import Listener, Network, Stream
    from ringpop_py.wire.calls import Answer, Call

ANY_ENDPOINT: Final = "*"
_CONNECT_ERRORS: Final[Mapping[int, type[ConnectFailed]]] = MappingProxyType(
    {errno.ECONNREFUSED: ConnectRefused, errno.ETIMEDOUT: ConnectTooSlow}
)
LINGER_S: Final = 0.25
"""How long `Channel.say_goodbye` waits for peers to close their ends, too. Some never do: a program
that reads only when it calls finds the goodbye then."""


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What a Channel does now, and has done."""

    connections: int
    calls_in_flight: int
    calls_serving: int
    calls_sent: int
    calls_received: int
    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int


class Channel:
    """The calls of one node.

    Args:
        host_port: where others reach this node; what `listen` bound by default.
        process_name: whom to name in the tools of peers.
        limits: what a peer may make this node hold.
        network: TCP by default; see `ringpop_py.transport.memory` for tests.
        init_headers: makes what to tell a peer when a connection starts.
        accept: sees a peer's init headers and returns None, or why it is not welcome.

    Attributes:
        on_dialed: called when a connection that this channel made is up, with the init headers of
            this end, made before it was dialed, and with those of the peer, made after that.
        on_disconnect: called with the peer's address when an established connection broke.
        on_handler_error: called with the endpoint and the exception when a handler failed.
        on_trouble: called with a peer (for people), an endpoint and a sentence, when the peer sent
            something that could not be read, or that is not served here.
        on_unserved: called with service and endpoint of a call that nothing serves; it may `serve`
            the endpoint, and the call is then answered.
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
        self.on_dialed: Callable[[Mapping[str, str], Mapping[str, str]], None] | None = None
        self.on_disconnect: Callable[[Address], None] | None = None
        self.on_handler_error: Callable[[str, Exception], None] | None = None
        self.on_trouble: Callable[[str, str, str], None] | None = None
        self.on_unserved: Callable[[str, str], None] | None = None
        self._process_name = process_name
        self._network: Network = network or TcpNetwork()
        self._init_headers = init_headers
        self._accept = accept
        self._budget = Budget(self.limits.assembling_bytes_max)
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._works: dict[tuple[str, str], Work] = {}
        self._declined: Collection[Work] = ()
        self._why_declined = ""
        self._listeners: list[Listener] = []
        self._nursery: trio.Nursery | None = None
        self._dials = False
        self._links: dict[PeerLink, None] = {}
        self._routes: dict[Address, PeerLink] = {}
        self._accepted_from: Counter[str] = Counter()
        self._dirty: list[PeerLink] = []
        self._flusher: trio.lowlevel.Task | None = None
        self._calls_sent = 0
        self._calls_received = 0
        self._past: Counter[str] = Counter()
        self._last_link_down = trio.Event()

    def __repr__(self) -> str:
        return f"<Channel at {self.host_port or NO_LISTENER}, {len(self._links)} connections>"

    async def listen(self, address: Address) -> Address:
        """Bind *address* and return it, with the port that was picked if it had none.

        Raises:
            ConfigError: if it cannot be had.
        """
        try:
            listeners = await self._network.listen(address)
        except OSError as error:
            why = error.strerror or str(error)
            message = f"cannot listen on {address}: {why}; free it, or choose another address"
            raise ConfigError(message) from None
        self._listeners += listeners
        bound = address._replace(port=listeners[0].address.port)
        self.host_port = self.host_port or bound
        return bound

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and dial until cancelled; then close everything."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.wheel.run)
                self._nursery.start_soon(self._flush_dirty)
                for listener in self._listeners:
                    self._nursery.start_soon(self._accept_from, listener)
                self._dials = True
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._dials = False  # before the nursery closes, which nobody is told of
        finally:
            self._nursery = None
            for listener in self._listeners:
                listener.close()
            self._listeners.clear()
            for link in list(self._links):
                link.end()

    async def say_goodbye(self, reason: str) -> None:
        """Accept and dial no more, and end all connections in good order: `PeerLink.say_goodbye`.

        A call that crosses the goodbye on its way has not run, and its caller knows that. Takes
        `LINGER_S` at most, and cuts what is not sent by then: see `sending`.
        """
        self._dials = False
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for link in list(self._links):
            link.say_goodbye(reason)
        with trio.move_on_after(LINGER_S):
            while self._links:
                self._last_link_down = trio.Event()
                await self._last_link_down.wait()

    # Calling.

    def begin(self, to: Address, call: Call, done: Callable[[Answer | CallError], None]) -> None:
        """Start a call. *done* is called once with how it ended, perhaps before this returns."""

        def finish(outcome: Answer | CallError) -> None:
            try:
                done(outcome)
            except Exception as error:  # noqa: BLE001 - its bug must not end other calls
                self.report(call.endpoint, error)

        self._begin(to, PendingCall(call, finish))

    async def call(self, to: Address, call: Call) -> Answer:
        """The answer of *to*; a caller that is cancelled cancels the call there too.

        Raises:
            CallError: if there is none.
        """
        pending = ParkedCall(call)
        self._begin(to, pending)
        return await pending.wait()

    def disconnect(self, to: Address) -> None:
        """Close the connections to *to*; the next call makes a new one."""
        for link in list(self._links):
            if link.address == to:
                link.stop("disconnected by this node", on_purpose=True)
        self._routes.pop(to, None)

    def _begin(self, to: Address, pending: PendingCall) -> None:
        self._calls_sent += 1
        call = pending.call
        if not 0 < call.ttl_s < FAR_S:
            if not call.ttl_s >= FAR_S:
                pending.finish(CallTimeout("no time was left for the call"))
                return
            pending.call = call = replace(call, ttl_s=FAR_S)
        now = trio.current_time()
        pending.deadline = now + call.ttl_s
        link = self._routes.get(to)
        if link is None or link.over:
            dialed = self._dial(to)
            if dialed is None:
                pending.finish(ConnectFailed(f"{to}: {self._why_no_dial()}"))
                return
            link = dialed
        link.begin(pending, now)

    def _why_no_dial(self) -> str:
        if not self._dials:
            return "this channel is not running"
        return f"all {self.limits.connections_max} connections are in use"

    def _dial(self, to: Address) -> PeerLink | None:
        if not self._dials or len(self._links) >= self.limits.connections_max:
            return None
        link = PeerLink(self, self._new_connection(initiates=True), to)
        self._links[link] = None
        self._routes[to] = link
        self.spawn(self._connect, link, to)
        return link

    async def _connect(self, link: PeerLink, to: Address) -> None:
        try:
            with trio.fail_after(self.limits.connect_timeout_s):
                stream = await self._network.connect(to, origin=self.host_port)
        except OSError as error:
            kind = _CONNECT_ERRORS.get(error.errno or 0, ConnectFailed)
            link.fail_dial(kind(error.strerror or str(error)))
        except trio.TooSlowError:
            link.fail_dial(ConnectTooSlow("no connection in time"))
        else:
            if link.over:
                stream.close()
            else:
                await self._run(link, stream)
        finally:
            link.end()

    # Serving.

    def serve(
        self, service: str, endpoint: str, handler: Handler, *, work: Work | None = None
    ) -> None:
        """Have *handler* answer calls of *endpoint*, or of any without its own (``"*"``).

        A handler returns an `Answer`; or what can be awaited for one, which then has a task of
        its own until the caller stops waiting; or None, and answers later through the
        `IncomingCall`. What it raises is told to the caller.

        Args:
            work: what its calls are to `serving` and `decline`; nothing, for those of the node
                itself.
        """
        self._handlers[service, endpoint] = handler
        if work is not None:
            self._works[service, endpoint] = work

    def serving(self) -> Counter[Work]:
        """How many calls of each kind of work wait for an answer of ours."""
        calls = [call for link in self._links for call in link.serving]
        works = (self._work_of(call.service, call.endpoint) for call in calls)
        return Counter(work for work in works if work is not None)

    def sending(self) -> int:
        """On how many connections bytes are queued that the peer has not taken yet."""
        return sum(link.sending for link in self._links)

    def decline(self, works: Collection[Work], reason: str) -> None:
        """From now on decline all calls of these kinds: they do not run, and may go elsewhere."""
        self._declined, self._why_declined = works, reason

    def handler_for(self, service: str, endpoint: str) -> Handler | None:
        """The handler of an endpoint; for links."""
        self._calls_received += 1
        if self._declined and self._work_of(service, endpoint) in self._declined:
            return self._decline
        handler = self._find_handler(service, endpoint)
        if handler is None and self.on_unserved is not None:
            self.on_unserved(service, endpoint)
            handler = self._find_handler(service, endpoint)
        return handler

    def _find_handler(self, service: str, endpoint: str) -> Handler | None:
        handler = self._handlers.get((service, endpoint))
        return handler or self._handlers.get((service, ANY_ENDPOINT))

    def _work_of(self, service: str, endpoint: str) -> Work | None:
        work = self._works.get((service, endpoint))
        return work or self._works.get((service, ANY_ENDPOINT))

    def _decline(self, _: IncomingCall) -> NoReturn:
        raise PeerDeclined(self._why_declined)

    async def _accept_from(self, listener: Listener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:  # by `say_goodbye`
                return
            if self._has_room_for(stream):
                link = PeerLink(self, self._new_connection(initiates=False), None)
                link.remote_host = stream.remote_host
                self._links[link] = None
                self._accepted_from[stream.remote_host] += 1
                self.spawn(self._run, link, stream)
            else:
                stream.close()

    async def _run(self, link: PeerLink, stream: Stream) -> None:
        try:
            await link.run(stream)
        except Exception as error:  # noqa: BLE001 - a bug that one peer has met ends its connection
            self.report(f"a connection of {link.peer_host_port or link.remote_host}", error)

    def _has_room_for(self, stream: Stream) -> bool:
        same_host = self._accepted_from[stream.remote_host]
        if not same_host:
            del self._accepted_from[stream.remote_host]
        return (
            len(self._links) < self.limits.connections_max
            and same_host < self.limits.connections_per_address_max
        )

    # What links ask for.

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run *function* in a task of its own."""
        assert self._nursery is not None
        self._nursery.start_soon(function, *arguments)

    def flush_soon(self, link: PeerLink) -> None:
        """Send what *link* has queued, together with all that is queued in this tick."""
        if link.dirty:
            return
        link.dirty = True
        self._dirty.append(link)
        if self._flusher is not None:
            trio.lowlevel.reschedule(self._flusher)
            self._flusher = None

    def report(self, endpoint: str, error: Exception) -> None:
        """Tell the owner of this channel about a failure in code of theirs."""
        if self.on_handler_error is not None:
            self.on_handler_error(endpoint, error)

    def tell_trouble(self, link: PeerLink, endpoint: str, reason: str) -> None:
        """Tell the owner of this channel that a peer cannot be understood; see `on_trouble`."""
        if self.on_trouble is not None:
            self.on_trouble(link.peer_name, endpoint, reason)

    def link_is_up(self, link: PeerLink, headers: Mapping[str, str]) -> None:
        """The peer has introduced itself: its listening address leads to this connection."""
        if link.dialed and self.on_dialed is not None:
            self.on_dialed(link.connection.init_headers, headers)
        if link.address is None:
            link.address = _listening_address(link.peer_host_port)
        address = link.address
        if address is not None:
            current = self._routes.get(address)
            if current is None or not current.ready:
                self._routes[address] = link

    def link_is_down(self, link: PeerLink, *, broke: bool) -> None:
        """The connection is gone; another to the same peer takes its calls, if there is one."""
        self._links.pop(link, None)
        if not self._links:
            self._last_link_down.set()
        self._past += Counter(_traffic(link))
        if not link.dialed:
            self._accepted_from[link.remote_host] -= 1
            if not self._accepted_from[link.remote_host]:
                del self._accepted_from[link.remote_host]
        address = link.address
        if address is None:
            return
        if self._routes.get(address) is link:
            del self._routes[address]
            others = (other for other in self._links if other.address == address and other.ready)
            other = next(others, None)
            if other is not None:
                self._routes[address] = other
        if broke and self.on_disconnect is not None:
            self.on_disconnect(address)

    async def _flush_dirty(self) -> NoReturn:
        while True:
            if not self._dirty:
                self._flusher = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_flushing)
            dirty, self._dirty = self._dirty, []
            for link in dirty:
                link.dirty = False
                link.flush()

    def _stop_flushing(self, _: object) -> trio.lowlevel.Abort:
        self._flusher = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _new_connection(self, *, initiates: bool) -> Connection:
        host_port = str(self.host_port) if self.host_port is not None else NO_LISTENER
        return Connection(
            host_port=host_port,
            process_name=self._process_name,
            initiates=initiates,
            limits=self.limits,
            init_headers=self._init_headers(),
            accept=self._accept,
            budget=self._budget,
        )

    def statistics(self) -> ChannelStatistics:
        """Counters since the start, and what is going on."""
        traffic = Counter(self._past)
        for link in self._links:
            traffic.update(_traffic(link))
        return ChannelStatistics(
            connections=len(self._links),
            calls_in_flight=sum(link.calls_in_flight for link in self._links),
            calls_serving=sum(link.connection.calls_serving for link in self._links),
            calls_sent=self._calls_sent,
            calls_received=self._calls_received,
            bytes_in=traffic["bytes_in"],
            bytes_out=traffic["bytes_out"],
            frames_in=traffic["frames_in"],
            frames_out=traffic["frames_out"],
        )


def _traffic(link: PeerLink) -> dict[str, int]:
    return {
        "bytes_in": link.bytes_in,
        "bytes_out": link.written_bytes,
        "frames_in": link.connection.reader.frame_count,
        "frames_out": link.connection.queue.frame_count,
    }


def _listening_address(host_port: str) -> Address | None:
    """Where a peer says that it listens; None if it does not, or says nonsense."""
    if host_port == NO_LISTENER:
        return None
    try:
        address = Address.parse(host_port)
    except ConfigError:
        return None
    return address if address.port and address.host != "0.0.0.0" else None  # noqa: S104
