"""One end of a TChannel connection as a state machine: bytes in, events out, bytes to send.

`Connection` gets what arrived and what the application wants; it never waits, reads a clock
or touches a socket. Rules for this file: everything that a peer can send is answered here, with an
event or an error frame for one call. If it breaks the protocol, the answer is a fatal error frame
and `WireError`; after that nothing is received or sent.

=======  ===========================================  =========  =================================
in       what happens                                 goes to    the owner gets
=======  ===========================================  =========  =================================
NEW      the init frame of a peer that is welcome     OPEN       `Initialised`
NEW      the init frame of another                    CLOSED     `Ended`, refused; the peer why
NEW      a fatal error frame                          CLOSED     `Ended`, refused
OPEN     a fatal error frame                          CLOSED     `Ended`
both     a goodbye                                    CLOSED     `Ended`, refused
both     what breaks the protocol, or is out of       CLOSED     `WireError` (`Ended` if something
         place in this state                                     came before); the peer why
both     `close`, `send_fatal`, `send_goodbye`        CLOSED     nothing
OPEN     any other frame                              OPEN       what `InboundCalls` and
                                                                 `OutboundCalls` make of it
=======  ===========================================  =========  =================================

The two ends are alike once each knows the other: both call and both serve, and the ids of calls
belong to one direction.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from ringpop_py.base.errors import CallCancelled, CallTimeout, WireError
from ringpop_py.net.wire import frames
from ringpop_py.net.wire.calls import Ended, Initialised
from ringpop_py.net.wire.fragments import Budget
from ringpop_py.net.wire.frames import (
    TRACING_BYTES,
    Cursor,
    ErrorCode,
    FrameQueue,
    FrameReader,
    error_frame,
    malformed,
)
from ringpop_py.net.wire.inbound import InboundCalls
from ringpop_py.net.wire.init import HOST_PORT, init_frame, own_headers, read_init
from ringpop_py.net.wire.outbound import OutboundCalls, call_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.wire.calls import Event

    _TakeFrame = Callable[[int, bytes, int, int], Event | None]


class ConnectionState(Enum):
    """How far a connection has come; see the table above."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


# Looked up once: a member of an Enum is slow to find, and each call asks.
_NEW, _OPEN, CLOSED = ConnectionState


class Connection:
    """One end of one connection.

    Args:
        host_port: where this end listens, or `NO_LISTENER`.
        process_name: the name in the peer's tools, and the caller's name of our calls.
        initiates: whether this end dialed, and so speaks first.
        init_headers: further headers for the peer when the connection starts.
        accept: gets the peer's init headers and returns None, or why the peer is refused.
        budget: of unfinished messages; shared between the connections of one node.

    Attributes:
        init_headers: all headers of this end when the connection starts.
        peer_host_port: where the peer says that it listens; empty before its init frame.
        reader: counts what arrived.
        queue: what is to be sent.
        calls: our calls that wait for answers.
        served: the peer's calls that wait for our answers.
    """

    def __init__(
        self,
        *,
        host_port: str,
        process_name: str,
        initiates: bool,
        limits: WireLimits,
        init_headers: Mapping[str, str] = MappingProxyType({}),
        accept: Callable[[Mapping[str, str]], str | None] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.state = _NEW
        self.initiates = initiates
        self.peer_host_port = ""
        self.init_headers = own_headers(host_port, process_name, init_headers)
        self._init_headers_max = limits.init_headers_max
        self._accept = accept
        budget = budget or Budget(limits.assembling_bytes_max)
        self.reader = FrameReader()
        self.queue = FrameQueue()
        self.calls = OutboundCalls(process_name, limits, budget, self.queue)
        self.served = InboundCalls(limits, budget, self.queue)
        # Without a layer between: each small call goes through these.
        self.take_outgoing = self.queue.take
        self.send_call = self.calls.send
        self.send_answer = self.served.answer
        self.send_error = self.served.refuse
        self._take_frame_of: dict[int, _TakeFrame] = {
            frames.INIT_RES if initiates else frames.INIT_REQ: self._take_init,
            frames.ERROR: self._take_error,
        }
        if initiates:
            self._introduce(frames.INIT_REQ, self.calls.new_id())

    def __repr__(self) -> str:
        return f"<Connection to {self.peer_host_port or '?'} {self.state.value}>"

    # What the connection is doing.

    @property
    def initialised(self) -> bool:
        """Whether calls may go both ways."""
        return self.state is _OPEN

    @property
    def closed(self) -> bool:
        """Whether nothing more is received or sent, except for what is queued."""
        return self.state is CLOSED

    @property
    def outgoing(self) -> bool:
        """Whether there is something to send."""
        return bool(self.queue.chunks)

    # What arrives.

    def receive(self, data: bytes) -> list[Event]:
        """Return what *data* means, in order.

        Raises:
            WireError: if it breaks the protocol before the first event; a fatal error frame
                is queued, and the connection is closed. After an event, `Ended` says so.
        """
        if self.state is CLOSED:
            return []
        events: list[Event] = []
        try:
            data, spans = self.reader.feed(data)
            for kind, frame_id, start, stop in spans:
                take = self._take_frame_of.get(kind)
                if take is None:
                    if self.closed:  # by a frame before this one
                        break
                    when = "here" if self.initialised else "before the init frame"
                    malformed(f"a frame of type 0x{kind:02x} is out of place {when}")
                event = take(frame_id, data, start, stop)
                if event is not None:
                    events.append(event)
        except WireError as error:
            self.send_fatal(str(error))
            if not events:  # otherwise the events would be lost with the exception
                raise
            events.append(Ended(str(error), refused=False))
        return events

    def close(self) -> None:
        """Drop every unfinished message; what is queued may still be sent."""
        self.state = CLOSED
        # No kind of frame is taken from here on, so `receive` needs no check for each frame.
        self._take_frame_of = {}
        self.calls.clear()
        self.served.clear()

    def _introduce(self, kind: int, frame_id: int) -> None:
        self.queue.put(init_frame(kind, frame_id, self.init_headers.items()))

    def _take_init(self, frame_id: int, data: bytes, start: int, stop: int) -> Event:
        headers = read_init(data, start, stop, headers_max=self._init_headers_max)
        reason = self._accept(headers) if self._accept is not None else None
        if reason is not None:
            self.send_fatal(reason)
            return Ended(reason, refused=True)
        if not self.initiates:
            self._introduce(frames.INIT_RES, frame_id)
        self.state = _OPEN
        self.peer_host_port = self.calls.peer = headers[HOST_PORT]
        self._take_frame_of = {
            frames.CALL_REQ: self.served.take_call,
            frames.CALL_RES: self.calls.take_answer,
            frames.CALL_REQ_CONTINUE: self.served.continue_call,
            frames.CALL_RES_CONTINUE: self.calls.continue_answer,
            frames.CANCEL: self.served.take_cancel,
            frames.CLAIM: self._ignore,
            frames.PING_REQ: self._take_ping,
            frames.PING_RES: self._ignore,
            frames.ERROR: self._take_error,
        }
        return Initialised(self.peer_host_port, headers)

    def _take_ping(self, frame_id: int, *_: object) -> None:
        self.queue.put(frames.frame(frames.PING_RES, frame_id))

    def _ignore(self, *_: object) -> None:
        pass

    def _take_error(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        cursor = Cursor(data, start, stop)
        code = cursor.u8()
        cursor.take(TRACING_BYTES)
        message = cursor.text2()
        if code == ErrorCode.FATAL:
            # Before the init frame, the peer has turned this node away; later the connection broke.
            refused = not self.initialised
            self.close()
            return Ended(message or "the peer gave no reason", refused=refused)
        if call_id == frames.NO_ID and code == ErrorCode.DECLINED:  # see `send_goodbye`
            self.close()
            return Ended(message or "the peer has ended", refused=True)
        return self.calls.fail(call_id, call_error(code, message))

    # What the application wants.

    def send_cancel(self, call_id: int, why: str) -> bool:
        """End a call of ours, and tell the peer; return False if it had ended."""
        if self.calls.fail(call_id, CallCancelled(why)) is None:
            return False
        self.queue.put(frames.cancel_frame(call_id, 1, why))
        return True

    def forget_call(self, call_id: int) -> None:
        """End a call of ours, and do not tell the peer: it counts the ttl itself."""
        # The caller raises its own error; this one is only returned, and dropped here.
        self.calls.fail(call_id, CallTimeout())

    def send_fatal(self, reason: str) -> None:
        """Tell the peer why the connection ends, and close it."""
        self.queue.put(error_frame(frames.NO_ID, ErrorCode.FATAL, reason))
        self.close()

    def send_goodbye(self, reason: str) -> None:
        """End the connection in good order: calls without an answer have not run.

        Send errors first for calls that have begun here and have no answer. A peer of another
        implementation ignores this frame, because it belongs to no call.
        """
        self.queue.put(error_frame(frames.NO_ID, ErrorCode.DECLINED, reason))
        self.close()
