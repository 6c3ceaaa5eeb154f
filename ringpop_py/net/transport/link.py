"""One connection at work: reads, lets handlers answer, and sends, with one task for all of it.

All that one receive brings is handled before the next. The answers leave in pieces of it
(`PIECE_FRAMES`), with sends that do not wait. Only a stream that accepts no more gets a second task
(`LinkWriter`).
Reading goes on meanwhile, because two ends that wait for each other to read would wait for ever. A
peer that does not read gets *busy* errors, then is no longer read, and then is disconnected.

A link has one state, which only moves on, and one reason for its end (`LinkEnd`): the first.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectBroke,
    ConnectFailed,
    ConnectTooSlow,
    ConnectUntrusted,
    PeerDeclined,
    TooManyInFlight,
    WireError,
)
from ringpop_py.base.values.declared import replace
from ringpop_py.net.transport.calls import NOT_SENT, CallDeadlines, LinkEnd, silence
from ringpop_py.net.transport.deadlines import IDLE, OwedWatch, PeerWatch
from ringpop_py.net.transport.network import StreamRefused, StreamUntrusted
from ringpop_py.net.transport.serving import ServingHost
from ringpop_py.net.transport.writer import PIECE_FRAMES, LinkWriter
from ringpop_py.net.wire.calls import (
    AnswerReceived,
    CallFailed,
    CallReceived,
    CallUnreadable,
    CancelReceived,
    Ended,
    Initialised,
)
from ringpop_py.net.wire.connection import CLOSED
from ringpop_py.net.wire.init import NO_LISTENER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.base.address import Address
    from ringpop_py.net.transport.calls import PendingCall
    from ringpop_py.net.transport.network import Stream
    from ringpop_py.net.wire.calls import Call
    from ringpop_py.net.wire.connection import Connection

    _OtherEvent = CallFailed | CallUnreadable | CancelReceived | Initialised | Ended

CONNECTION: Final = "connection"
"""Reported in place of an endpoint if the trouble is with the connection itself."""
PAUSE_FACTOR: Final = 2
"""How many times `WireLimits.outgoing_bytes_max` may be unsent before reading pauses."""


class LinkState(IntEnum):
    """How far a link has come; it never goes back.

    From *LEAVING* on no call can begin: it has said goodbye, and waits for the peer to close its
    end, too. *STOPPING*: its task is being cancelled. *OVER*: all its calls have ended.
    """

    CONNECTING = 0
    OPEN = 1
    LEAVING = 2
    STOPPING = 3
    OVER = 4


# Looked up once: a member of an Enum is slow to find, and each call asks.
_CONNECTING, _OPEN, _LEAVING, _STOPPING, _OVER = LinkState


class _LinkHost(ServingHost, Protocol):
    def link_is_up(self, link: PeerLink, headers: Mapping[str, str]) -> None: ...
    def link_is_down(self, link: PeerLink, *, broke: bool) -> None: ...
    def link_is_quiet(self, link: PeerLink) -> None: ...


class PeerLink:
    """A connection and its calls.

    Attributes:
        address: where the peer listens; None if it does not, or before that is known.
        remote_host: the peer's host, as the network knows it.
        heard_at: when the peer last sent a call or an answer; at first, when the connection was
            made.
        incoming: the peer's calls that wait for an answer.
    """

    def __init__(self, host: _LinkHost, connection: Connection, address: Address | None) -> None:
        self.connection = connection
        self.address = address
        self.remote_host = ""
        self.heard_at = 0.0
        self.writer = LinkWriter(
            connection.queue,
            patience_s=host.limits.frame_timeout_s,
            spawn=host.spawn,
            give_up=self._stop,
        )
        self.incoming = host.handlers.new_incoming(host, connection, self.writer, self.peer_name)
        self._host = host
        self._watch = PeerWatch(
            host.wheel,
            host.limits,
            connection.reader,
            busy=lambda: self.busy,
            silent=lambda reason: self._stop(silence(reason)),
            # One whose proof is over ends in good order at first: calls move on.
            idle=lambda why: (self.stop if why is IDLE else self.say_goodbye)(why),
            owed=OwedWatch(
                host.wheel, lambda: bool(self._pending), lambda: host.link_is_quiet(self)
            ),
        )
        self._deadlines = CallDeadlines(
            host.wheel, lambda: (*self._waiting, *self._pending.values()), self._timed_out
        )
        self._scope = trio.CancelScope()
        self._state = _CONNECTING
        self._end: LinkEnd | None = None
        self._waiting: dict[PendingCall, None] = {}  # for the connection to be up
        self._pending: dict[int, PendingCall] = {}
        self._answers_at_once = 0

    def __repr__(self) -> str:
        return f"<Link {self.address or self.connection.peer_host_port} {self.connection!r}>"

    @property
    def ready(self) -> bool:
        """Whether calls can be sent immediately."""
        return self._state is _OPEN and self.connection.state is not CLOSED

    @property
    def over(self) -> bool:
        """Whether no more calls can begin."""
        return self._state > _OPEN

    @property
    def sending(self) -> bool:
        """Whether bytes are queued that the peer gets when it reads."""
        return self.ready and self.writer.unsent_bytes > 0

    def peer_name(self) -> str:
        """Return the peer's name for people: where it listens, or else its host."""
        says = self.connection.peer_host_port
        listens = self.address is None and says not in ("", NO_LISTENER)
        return says if listens else str(self.address or self.remote_host)

    # Calling.

    def begin(self, pending: PendingCall, now: float) -> None:
        """Send a call, or keep it until the connection is up; it always ends."""
        connection, host, writer = self.connection, self._host, self.writer
        if self._state is not _OPEN or connection.state is CLOSED:  # `ready`: each call asks
            self._keep(pending)
            return
        queue = connection.queue
        if queue.byte_count - writer.written_bytes > host.limits.outgoing_bytes_max:
            pending.finish(TooManyInFlight(f"{writer.unsent_bytes} bytes are unsent to {self}"))
            return
        quiet = not self._pending
        pending.queued_at = queue.byte_count
        try:
            call_id = connection.send_call(pending.call)
        except CallError as error:
            pending.finish(error)
            return
        pending.id = call_id
        pending.link = self
        self._pending[call_id] = pending
        if pending.deadline < self._deadlines.next_at:
            self._deadlines.watch(pending.deadline)
        owed = self._watch.owed
        if owed.bucket is None:  # here, since each call would pay for a call
            owed.begin(now)
        # A call alone leaves now; one of several waits for what other woken tasks will send.
        if quiet and self._answers_at_once <= 1:
            writer.flush()
        elif not writer.dirty or len(queue.chunks) >= writer.piece:
            host.flusher.flush_soon(writer)

    def _keep(self, pending: PendingCall) -> None:
        if self._end is not None:
            pending.finish(ConnectFailed(self._end.reason))
        elif len(self._waiting) >= self._host.limits.calls_in_flight_max:
            message = f"{len(self._waiting)} calls wait for a connection to {self.address}"
            pending.finish(TooManyInFlight(message))
        else:
            pending.link = self
            self._waiting[pending] = None
            if pending.deadline < self._deadlines.next_at:
                self._deadlines.watch(pending.deadline)

    def give_up(self, pending: PendingCall, why: str) -> None:
        """End a call whose caller is gone, and tell the peer if it was sent."""
        if self._waiting.pop(pending, pending) is None:
            return
        if self._pending.pop(pending.id, None) is not None:
            self.connection.send_cancel(pending.id, why)
            self._host.flusher.flush_soon(self.writer)

    def give_up_calls(self, which: Callable[[Call], bool], why: str) -> None:
        """End some of our calls, because the peer is believed to be gone."""
        for pending in (*self._waiting, *self._pending.values()):
            if which(pending.call):
                self.give_up(pending, why)
                pending.finish(self._ended(pending, silence(why), why))

    def settle(self) -> None:
        """Have the wheel forget our calls if none is under way: at rest, nothing wakes for them."""
        if not (self._pending or self._waiting):
            self._deadlines.watch(inf)
            self._host.wheel.discard(self._watch.owed)

    def _timed_out(self, pending: PendingCall) -> None:
        # The peer needs no message, because it counts the ttl.
        if self._waiting.pop(pending, pending) is None:
            pending.finish(ConnectTooSlow(f"no connection to {self.address} in time"))
            return
        del self._pending[pending.id]
        self.connection.forget_call(pending.id)  # an answer that comes later is dropped
        self._watch.timed_out()
        pending.finish(CallTimeout(f"no answer from {self.connection.peer_host_port} in time"))

    @property
    def busy(self) -> bool:
        """Whether calls are under way, in either direction."""
        return bool(self._pending or self.incoming)

    # What arrives.

    async def run(self, stream: Stream) -> None:
        """Serve *stream* until it ends; then close it and end every call."""
        self.writer.stream = stream
        unsent_max = PAUSE_FACTOR * self._host.limits.outgoing_bytes_max
        self.remote_host = self.incoming.remote_host = stream.remote_host
        try:
            self._watch.start()
            with self._scope:
                self.writer.flush()
                while data := await stream.receive():
                    if self._state is _LEAVING:
                        continue  # closing a socket with unread bytes would reset the connection
                    self._received(data)
                    if self.connection.state is CLOSED:
                        return
                    if self.writer.in_hand is not None and self.writer.unsent_bytes > unsent_max:
                        await self.writer.wait_drained()
                self._because(LinkEnd("the peer closed the connection"))
        except trio.Cancelled:
            self._end = LinkEnd("this node is stopping", broke=False)
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            unsent = ConnectUntrusted if isinstance(error, StreamUntrusted) else ConnectBroke
            self._because(LinkEnd(str(error), unsent=unsent))
            if isinstance(error, StreamRefused):
                why = f"the connection was closed: {error}"
                self._host.on_trouble(self.remote_host, CONNECTION, why)
        finally:
            self.end()

    def _received(self, data: bytes) -> None:
        try:
            events = self.connection.receive(data)
        except WireError as error:
            self._because(LinkEnd(f"the peer broke the protocol: {error}"))
            self._host.on_trouble(self.peer_name(), CONNECTION, f"it was closed: {error}")
            events = []
        if events:
            self.heard_at = now = trio.current_time()
            answers = 0
            piece = PIECE_FRAMES
            chunks = self.connection.queue.chunks
            for event in events:
                if isinstance(event, AnswerReceived):
                    answers += 1
                    pending = self._pending.pop(event.id, None)
                    if pending is not None:
                        pending.finish(event.answer)
                elif isinstance(event, CallReceived):
                    self.incoming.serve(event, now)
                    if len(chunks) >= piece:
                        self.writer.flush()
                        piece *= 2
                else:
                    self._other(event, now)
            self._answers_at_once = answers
        if self.connection.queue.chunks:
            self.writer.flush()
        self._watch.heard()

    def _other(self, event: _OtherEvent, now: float) -> None:
        match event:
            case CallFailed(call_id, error):
                if (pending := self._pending.pop(call_id, None)) is not None:
                    pending.finish(error)
            case CancelReceived(call_id, _):
                self.incoming.cancel(call_id)
            case Initialised(_, headers):
                self._is_up(headers, now)
            case CallUnreadable(service, why):
                why = f"the call was refused: {why}"
                self._host.on_trouble(self.peer_name(), service, why)
            case Ended(reason, refused=True):  # the node itself reports strangers
                end = LinkEnd(reason, broke=False, unsent=PeerDeclined, sent=PeerDeclined)
                self._because(end)
            case Ended(reason):
                self._because(LinkEnd(reason))
                self._host.on_trouble(self.peer_name(), CONNECTION, f"it was closed: {reason}")

    # All changes of its state.

    def _is_up(self, headers: Mapping[str, str], now: float) -> None:
        if self._state is _CONNECTING:
            self._state = _OPEN
        if self.writer.stream is not None:
            self.incoming.identity = self.writer.stream.identity
            self._watch.is_up(now, self.writer.stream.proof)
        self._host.link_is_up(self, headers)
        waiting, self._waiting = self._waiting, {}
        for pending in waiting:
            if pending.ended:  # its caller was cancelled by the end of one before it
                continue
            left_s = pending.deadline - now
            if left_s > 0:
                # The peer counts from here: the time that the connection took is gone.
                pending.call = replace(pending.call, ttl_s=left_s)
                self.begin(pending, now)
            else:
                pending.finish(ConnectTooSlow(f"no connection to {self.address} in time"))

    def stop(self, reason: str) -> None:
        """End the connection soon, on purpose."""
        self._stop(LinkEnd(reason, broke=False))

    def say_goodbye(self, reason: str) -> None:
        """End the connection so that the peer knows that calls without an answer did not run.

        Calls that are still being served are cancelled, and the peer is informed first. The
        connection is over when the peer has closed its end, too; `end` does not wait for that.
        """
        if not self.ready:
            self.stop(reason)
            return
        self.incoming.refuse_all(reason)
        self.connection.send_goodbye(reason)
        self._because(LinkEnd(reason, broke=False))
        self._state = _LEAVING
        self.writer.finish()

    def fail_dial(self, error: ConnectFailed) -> None:
        """End the link because no connection could be made."""
        self._because(LinkEnd(str(error), unsent=type(error)))
        self.end()

    def end(self) -> None:
        """Close everything and end every call; the second time does nothing."""
        if self._state is _OVER:
            return
        end = self._because(LinkEnd("closed"))
        self._state = _OVER  # before anything is called that may begin a call here
        self._watch.end()
        self._host.wheel.discard(self._deadlines)
        self.writer.close()
        self.connection.close()
        self._host.link_is_down(self, broke=end.broke)
        self.incoming.cancel_all()
        self._end_calls(end)

    def _stop(self, end: LinkEnd) -> None:
        self._because(end)
        self._state = max(self._state, _STOPPING)  # it may be over already
        self._scope.cancel()

    def _because(self, end: LinkEnd) -> LinkEnd:
        if self._end is None:  # the first reason counts
            # A connection that was never up has not broken.
            self._end = end if self._state is not _CONNECTING else end._replace(broke=False)
        return self._end

    def _end_calls(self, end: LinkEnd) -> None:
        reason = f"{self.address or self.connection.peer_host_port}: {end.reason or 'closed'}"
        if end.unsent is ConnectBroke and self.writer.stream is None:
            end = end._replace(unsent=ConnectFailed)  # there was no connection that could break
        # A copy, emptied first: the end of a call may begin another, or give one of these up.
        calls = (*self._waiting, *self._pending.values())
        self._waiting.clear()
        self._pending.clear()
        for pending in calls:
            pending.finish(self._ended(pending, end, reason))

    def _ended(self, pending: PendingCall, end: LinkEnd, reason: str) -> CallError:
        # Only bytes that left this process can have reached the peer.
        written = pending.id != NOT_SENT and pending.queued_at < self.writer.written_bytes
        return (end.sent if written else end.unsent)(reason)
