"""One connection at work: reads, lets handlers answer, and sends, with one task for all of it.

Whatever arrives in one receive is handled before anything is sent, and then all answers leave
in one send that does not wait. Only a stream that takes no more gets a second task, until it
has caught up; reading goes on meanwhile, because two ends that wait for each other to read
would wait for ever. A peer that does not read is told that we are busy, then is read no more,
and then is left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ringpop_py.errors import (
    CallError,
    CallTimeout,
    ConnectBroke,
    ConnectFailed,
    ConnectionLost,
    ConnectTooSlow,
    PeerDeclined,
    PeerSilent,
    TooManyInFlight,
    WireError,
)
from ringpop_py.transport.calls import NOT_SENT, IncomingCall
from ringpop_py.transport.deadlines import Alarm
from ringpop_py.wire.calls import Answer
from ringpop_py.wire.events import (
    AnswerReceived,
    CallFailed,
    CallReceived,
    CallUnreadable,
    CancelReceived,
    Ended,
    Initialised,
)
from ringpop_py.wire.frames import ErrorCode
from ringpop_py.wire.init import NO_LISTENER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ringpop_py.address import Address
    from ringpop_py.config.settings import WireLimits
    from ringpop_py.transport.calls import Handler, PendingCall
    from ringpop_py.transport.deadlines import Wheel
    from ringpop_py.transport.network import Stream
    from ringpop_py.wire.connection import Connection

    _OtherEvent = CallFailed | CallUnreadable | CancelReceived | Initialised | Ended

CONNECTION: Final = "connection"
"""Stands for an endpoint where trouble is not with one."""

PAUSE_FACTOR: Final = 2
"""With so many times `WireLimits.outgoing_bytes_max` unsent, a connection is not read."""

SILENT_TIMEOUTS_MAX: Final = 3
"""So many calls timed out in a row with nothing received: the connection is dead one way."""


class _LinkHost(Protocol):
    """What a link needs of the Channel that it belongs to."""

    wheel: Wheel
    limits: WireLimits

    def handler_for(self, service: str, endpoint: str) -> Handler | None: ...
    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None: ...
    def flush_soon(self, link: PeerLink) -> None: ...
    def report(self, endpoint: str, error: Exception) -> None: ...
    def tell_trouble(self, link: PeerLink, endpoint: str, reason: str) -> None: ...
    def link_is_up(self, link: PeerLink, headers: Mapping[str, str]) -> None: ...
    def link_is_down(self, link: PeerLink, *, broke: bool) -> None: ...


class PeerLink:
    """A connection and its calls.

    Attributes:
        address: where the peer listens; None if it does not, or is not known yet.
        dirty: whether the host has been asked to flush it.
    """

    def __init__(self, host: _LinkHost, connection: Connection, address: Address | None) -> None:
        self.connection = connection
        self.address = address
        self.dialed = address is not None
        self.dirty = False
        self.bytes_in = 0
        self.written_bytes = 0
        self.remote_host = ""
        self._host = host
        self._limits = host.limits
        self._wheel = host.wheel
        self._stream: Stream | None = None
        self._scope = trio.CancelScope()
        self._over = False
        self._stopping = False
        self._said_goodbye = False
        self._reason = ""
        self._dial_error: type[ConnectFailed] = ConnectFailed
        self._refused = False
        self._silent = False
        self._on_purpose = False
        self._waiting: dict[PendingCall, None] = {}  # for the connection to be up
        self._pending: dict[int, PendingCall] = {}
        self._serving: dict[int, IncomingCall] = {}
        self._unsent: memoryview | None = None  # what the draining task has in hand
        self._drained: trio.Event | None = None
        self._silent_timeouts = 0
        self._answers_at_once = 0
        self._heard = False
        self._late_init = Alarm(lambda: self.stop("no init frame came in time", silent=True))
        self._late_frame = Alarm(lambda: self.stop("a frame was not finished in time", silent=True))
        self._late_frame_count = 0
        self._idle = Alarm(self._check_idle)

    def __repr__(self) -> str:
        return f"<Link {self.address or self.connection.peer_host_port} {self.connection!r}>"

    @property
    def ready(self) -> bool:
        """Whether calls can be sent at once."""
        return self.connection.initialised and not self.over

    @property
    def over(self) -> bool:
        """Whether it takes no more calls."""
        return self._over or self._stopping or self._said_goodbye

    @property
    def calls_in_flight(self) -> int:
        """How many of our calls wait here, sent or not."""
        return len(self._waiting) + len(self._pending)

    @property
    def serving(self) -> Iterable[IncomingCall]:
        """The peer's calls that wait for an answer."""
        return self._serving.values()

    @property
    def unsent_bytes(self) -> int:
        """How much is queued and not written."""
        return self.connection.queue.byte_count - self.written_bytes

    @property
    def sending(self) -> bool:
        """Whether bytes are queued that the peer gets as soon as it reads."""
        return self.ready and self.unsent_bytes > 0

    @property
    def peer_host_port(self) -> str:
        """Where the peer says that it listens."""
        return self.connection.peer_host_port

    @property
    def peer_name(self) -> str:
        """The peer, for people: where it listens, or its machine, if it says nothing of that."""
        listens = self.address is None and self.peer_host_port not in ("", NO_LISTENER)
        return self.peer_host_port if listens else str(self.address or self.remote_host)

    # Calling.

    def begin(self, pending: PendingCall, now: float) -> None:
        """Send a call, or keep it until the connection is up; it ends in any case."""
        if not self.ready:
            self._keep(pending)
            return
        connection = self.connection
        if self.unsent_bytes > self._limits.outgoing_bytes_max:
            pending.finish(TooManyInFlight(f"{self.unsent_bytes} bytes are unsent to {self}"))
            return
        quiet = not self._pending
        pending.queued_at = connection.queue.byte_count
        try:
            call_id = connection.send_call(pending.call)
        except CallError as error:
            pending.finish(error)
            return
        pending.id = call_id
        pending.link = self
        self._pending[call_id] = pending
        self._wheel.add(pending, now + pending.call.ttl_s)
        # Alone: at once. In company: with whatever the others that were just woken will send.
        if quiet and self._answers_at_once <= 1:
            self.flush()
        elif not self.dirty:
            self._host.flush_soon(self)

    def _keep(self, pending: PendingCall) -> None:
        if self.over:
            pending.finish(ConnectFailed(self._reason))
        elif len(self._waiting) >= self._limits.calls_in_flight_max:
            message = f"{len(self._waiting)} calls wait for a connection to {self.address}"
            pending.finish(TooManyInFlight(message))
        else:
            pending.link = self
            self._waiting[pending] = None
            self._wheel.add(pending, pending.deadline)

    def give_up(self, pending: PendingCall, why: str) -> None:
        """The caller is gone: tell the peer, if it knows of the call."""
        self._wheel.discard(pending)
        if self._waiting.pop(pending, pending) is None:
            return
        if self._pending.pop(pending.id, None) is not None:
            self.connection.send_cancel(pending.id, why)
            self._host.flush_soon(self)

    def timed_out(self, pending: PendingCall) -> None:
        """End a call whose time is up; the peer counts that time itself."""
        if self._waiting.pop(pending, pending) is None:
            pending.finish(ConnectTooSlow(f"no connection to {self.address} in time"))
            return
        del self._pending[pending.id]
        self.connection.forget_call(pending.id)
        self._silent_timeouts += 1
        if self._silent_timeouts >= SILENT_TIMEOUTS_MAX:
            self.stop("the peer has gone silent", silent=True)
        pending.finish(CallTimeout(f"no answer from {self.peer_host_port} in time"))

    # Serving.

    def answer(self, incoming: IncomingCall, answer: Answer) -> None:
        """Answer a call that was not answered within its receive."""
        self._end_serving(incoming)
        self.connection.send_answer(incoming.id, answer)
        self._host.flush_soon(self)

    def refuse(self, incoming: IncomingCall, code: ErrorCode, message: str) -> None:
        """End such a call with an error."""
        self._end_serving(incoming)
        self.connection.send_error(incoming.id, code, message)
        self._host.flush_soon(self)

    def report(self, incoming: IncomingCall, error: Exception) -> None:
        """Tell this side about a handler's bug."""
        self._host.report(incoming.endpoint, error)

    def tell_unreadable(self, incoming: IncomingCall, why: str) -> None:
        """Tell this side that the peer sent a call that a handler could not read."""
        self._host.tell_trouble(self, incoming.endpoint, f"the call cannot be read: {why}")

    def _end_serving(self, incoming: IncomingCall) -> None:
        incoming.ended = True
        self._wheel.discard(incoming)
        self._serving.pop(incoming.id, None)

    def _serve(self, event: CallReceived, now: float) -> None:
        head = event.head
        handler = self._host.handler_for(head.service, head.endpoint)
        if handler is None:
            message = f"no endpoint {head.endpoint} of {head.service}"
            self.connection.send_error(event.id, ErrorCode.BAD_REQUEST, message)
            self._host.tell_trouble(self, head.endpoint, f"the call was refused: {message}")
            return
        if self.unsent_bytes > self._limits.outgoing_bytes_max:
            self.connection.send_error(event.id, ErrorCode.BUSY, "earlier answers were not read")
            return
        incoming = IncomingCall(self, event, now + event.ttl_ms / 1_000)
        try:
            result = handler(incoming)
        except Exception as error:  # noqa: BLE001 - a handler's bug ends its call only
            incoming.fail(error)
            return
        if isinstance(result, Answer):
            if not incoming.ended:
                incoming.ended = True
                self.connection.send_answer(event.id, result)
            return
        if not incoming.ended:
            self._serving[event.id] = incoming
            self._wheel.add(incoming, incoming.deadline)
        if result is not None:
            incoming.scope = trio.CancelScope()
            self._host.spawn(incoming.run, result)

    # The life of the connection.

    async def run(self, stream: Stream) -> None:
        """Serve *stream* until it ends; then close it and end every call."""
        self._stream = stream
        self.remote_host = stream.remote_host
        broke = True
        try:
            now = trio.current_time()
            self._wheel.add(self._late_init, now + self._limits.init_timeout_s)
            with self._scope:
                self.flush()
                await self._read(stream)
            broke = not self._on_purpose
        except trio.Cancelled:
            self._reason, broke = "this node is stopping", False
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._reason = self._reason or str(error)
        finally:
            self.end(broke=broke)

    async def _read(self, stream: Stream) -> None:
        while True:
            data = await stream.receive()
            if not data:
                self._reason = self._reason or "the peer closed the connection"
                return
            self.bytes_in += len(data)
            if self._said_goodbye:
                continue  # closing a socket with unread bytes in it would reset the connection
            self._received(data)
            if self.connection.closed:
                return
            if self.unsent_bytes > PAUSE_FACTOR * self._limits.outgoing_bytes_max:
                await self._wait_drained()

    async def _wait_drained(self) -> None:
        if self._unsent is not None:
            self._drained = trio.Event()
            await self._drained.wait()

    def _received(self, data: bytes) -> None:
        self._heard = True
        self._silent_timeouts = 0
        try:
            events = self.connection.receive(data)
        except WireError as error:
            self._reason = f"the peer broke the protocol: {error}"
            self._host.tell_trouble(self, CONNECTION, f"it was closed: {error}")
            events = []
        if events:
            now = trio.current_time()
            answers = 0
            for event in events:
                if isinstance(event, CallReceived):
                    self._serve(event, now)
                elif isinstance(event, AnswerReceived):
                    answers += 1
                    self._finish(event.id, event.answer)
                else:
                    self._other(event, now)
            self._answers_at_once = answers
        self.flush()
        if self.connection.reader.partial or self._late_frame.bucket is not None:
            self._watch_frame()

    def _finish(self, call_id: int, outcome: Answer | CallError) -> None:
        pending = self._pending.pop(call_id, None)
        if pending is not None:
            self._wheel.discard(pending)
            pending.finish(outcome)

    def _other(self, event: _OtherEvent, now: float) -> None:
        match event:
            case CallFailed(call_id, error):
                self._finish(call_id, error)
            case CancelReceived(call_id, _):
                incoming = self._serving.get(call_id)
                if incoming is not None:
                    self._end_serving(incoming)
                    incoming.stop()
            case Initialised(_, headers):
                self._is_up(headers, now)
            case CallUnreadable(service, why):
                self._host.tell_trouble(self, service, f"the call was refused: {why}")
            case Ended(reason, refused):
                self._reason, self._refused = reason, refused
                self._on_purpose = refused
                if not refused:  # of strangers the node tells itself
                    self._host.tell_trouble(self, CONNECTION, f"it was closed: {reason}")

    def _is_up(self, headers: Mapping[str, str], now: float) -> None:
        self._wheel.discard(self._late_init)
        self._wheel.add(self._idle, now + self._limits.idle_timeout_s)
        self._host.link_is_up(self, headers)
        waiting, self._waiting = self._waiting, {}
        for pending in waiting:
            self._wheel.discard(pending)
            left_s = pending.deadline - now
            if left_s > 0:
                pending.call = replace(pending.call, ttl_s=left_s)
                self.begin(pending, now)
            else:
                pending.finish(ConnectTooSlow(f"no connection to {self.address} in time"))

    def _watch_frame(self) -> None:
        """Have an unfinished frame end the connection if it stays unfinished."""
        alarm, count = self._late_frame, self.connection.reader.frame_count
        if alarm.bucket is not None and count == self._late_frame_count:
            if not self.connection.reader.partial:
                self._wheel.discard(alarm)
            return
        self._wheel.discard(alarm)
        if self.connection.reader.partial:
            self._late_frame_count = count
            self._wheel.add(alarm, trio.current_time() + self._limits.frame_timeout_s)

    def _check_idle(self) -> None:
        if self._heard or self._pending or self._serving:
            self._heard = False
            self._wheel.add(self._idle, trio.current_time() + self._limits.idle_timeout_s)
        else:
            self.stop("the connection was idle", on_purpose=True)

    def stop(self, reason: str, *, on_purpose: bool = False, silent: bool = False) -> None:
        """End the connection soon; *reason* is for those whose calls it takes along.

        *silent*: because nothing comes. The peer may still be there, so its calls must not end
        as those do whose connection the peer has ended.
        """
        self._reason = self._reason or reason
        self._on_purpose = on_purpose
        self._silent = self._silent or silent
        self._stopping = True
        self._scope.cancel()

    def say_goodbye(self, reason: str) -> None:
        """End the connection so that the peer knows: what it has no answer to did not run.

        Calls that are still being served are cancelled, and the peer is told so before. The
        connection is over when the peer has closed its end, too; `end` does not wait for that.
        """
        if not self.ready:
            self.stop(reason, on_purpose=True)
            return
        for incoming in list(self._serving.values()):
            self.refuse(incoming, ErrorCode.CANCELLED, reason)
            incoming.stop()
        self.connection.send_goodbye(reason)
        self._reason, self._on_purpose, self._said_goodbye = reason, True, True
        self.flush()

    def end(self, *, broke: bool = False) -> None:
        """Close everything and end every call; the second time does nothing."""
        if self._over:
            return
        self._over = True
        was_up = bool(self.connection.peer_host_port)
        for alarm in (self._late_init, self._late_frame, self._idle):
            self._wheel.discard(alarm)
        if self._stream is not None:
            self._stream.close()
        if self._drained is not None:
            self._drained.set()
        self.connection.close()
        self._host.link_is_down(self, broke=broke and was_up)
        for incoming in list(self._serving.values()):
            self._end_serving(incoming)
            incoming.stop()
        self._end_calls()

    def _end_calls(self) -> None:
        reason = f"{self.address or self.peer_host_port}: {self._reason or 'closed'}"
        waiting, pending_calls = list(self._waiting), list(self._pending.values())
        self._waiting.clear()
        self._pending.clear()
        for pending in (*waiting, *pending_calls):
            self._wheel.discard(pending)
            if self._refused:
                pending.finish(PeerDeclined(reason))
            elif pending.id == NOT_SENT or pending.queued_at >= self.written_bytes:
                pending.finish(self._never_sent()(reason))
            else:
                pending.finish((PeerSilent if self._silent else ConnectionLost)(reason))

    def _never_sent(self) -> type[ConnectFailed]:
        """How a call failed that is still here at the end."""
        if self._silent:
            return ConnectTooSlow
        return self._dial_error if self._stream is None else ConnectBroke

    def fail_dial(self, error: ConnectFailed) -> None:
        """There is no connection to be had."""
        self._reason = str(error)
        self._dial_error = type(error)
        self.end()

    # Sending.

    def flush(self) -> None:
        """Send what is queued, as far as that goes without waiting."""
        connection = self.connection
        if self._unsent is not None or self._stream is None or not connection.outgoing:
            return
        data = connection.take_outgoing()
        try:
            sent = self._stream.send_nowait(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.stop(str(error))
            return
        self.written_bytes += sent
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._host.spawn(self._drain, self._stream)
        elif self._said_goodbye:
            self._stream.end_sending()

    async def _drain(self, stream: Stream) -> None:
        """Send what is left, waiting for the stream, until all is sent."""
        try:
            while self._unsent is not None:
                with trio.fail_after(self._limits.frame_timeout_s):
                    sent = await stream.send_some(self._unsent)
                self.written_bytes += sent
                rest = self._unsent[sent:]
                if not rest and self.connection.outgoing:
                    rest = memoryview(self.connection.take_outgoing())
                self._unsent = rest or None
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.stop(str(error))
        except trio.TooSlowError:
            self.stop("the peer does not read", silent=True)
        else:
            if self._drained is not None:
                self._drained.set()
                self._drained = None
            if self._said_goodbye:
                stream.end_sending()
