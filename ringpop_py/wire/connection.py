"""One end of a TChannel connection as a state machine: bytes in, events out, bytes to send.

`Connection` is told what arrived and what the application wants; it never waits, reads a clock
or touches a socket. Rules for this file: whatever a peer can send is answered here, with an
event, an error frame for one call, or, where the protocol itself is broken, a fatal error frame
and `WireError`; after that the connection takes and gives nothing more.

The two ends are alike once each knows the other: both call and both serve, and the ids of calls
belong to one direction. Most frames of a busy connection begin with bytes that came before, so
the heads of calls and answers are recognised (`KnownHeads`) before they are parsed.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from ringpop_py.errors import (
    BadRequest,
    CallCancelled,
    CallError,
    CallTimeout,
    ConnectionLost,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    TooManyInFlight,
    WireError,
)
from ringpop_py.wire import frames
from ringpop_py.wire.calls import (
    CALLER_HEADER,
    ENDPOINT_BYTES_MAX,
    SCHEME_HEADER,
    SHARD_KEY_HEADER,
    Answer,
    Assembly,
    Budget,
    Call,
    CallHead,
    ChecksumMismatch,
    Headers,
    KnownHeads,
    TooLarge,
    cut,
    pack_headers,
    pack_pieces,
    read_headers,
    text1,
    ttl_ms,
)
from ringpop_py.wire.frames import (
    FRAME_BYTES_MAX,
    FRAME_HEAD_BYTES,
    TRACING_BYTES,
    Cursor,
    ErrorCode,
    FrameReader,
    decode,
    error_frame,
    init_frame,
    u16,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ringpop_py.config.settings import WireLimits

NO_LISTENER: Final = "0.0.0.0:0"
"""The `host_port` of an end that only calls."""

HOST_PORT: Final = "host_port"
PROCESS_NAME: Final = "process_name"
LANGUAGE_HEADERS: Final = {
    "tchannel_language": "python",
    "tchannel_language_version": "{}.{}.{}".format(*sys.version_info),
    "tchannel_version": "ringpop_py",
}

NODE_SERVICE: Final = "ringpop"
CONTROL_PREFIXES: Final = ("/protocol/", "/admin/")
"""Requests for these endpoints of `NODE_SERVICE` are held to `WireLimits.control_bytes_max`."""

_new: Final = tuple.__new__

_CALL_FIXED: Final = 1 + 4 + TRACING_BYTES  # flags, ttl, tracing
_ANSWER_FIXED: Final = 1 + 1 + TRACING_BYTES  # flags, code, tracing
_EMPTY_SIZES: Final = 4  # the sizes of arg2 and arg3
_INLINE_BYTES_MAX: Final = FRAME_BYTES_MAX - _EMPTY_SIZES


class Initialised(NamedTuple):
    """The peer has said who it is, and we have; calls may go both ways."""

    host_port: str
    headers: Mapping[str, str]


class CallReceived(NamedTuple):
    """The peer asks; answer with `Connection.send_answer` or `Connection.send_error`."""

    id: int
    head: CallHead
    arg2: bytes
    arg3: bytes
    ttl_ms: int
    checksum_type: int

    @property
    def service(self) -> str:
        """The name of the service."""
        return self.head.service

    @property
    def endpoint(self) -> str:
        """What of it is called (arg1)."""
        return self.head.endpoint

    @property
    def scheme(self) -> str:
        """How the arguments are encoded."""
        return self.head.scheme

    @property
    def headers(self) -> Mapping[str, str]:
        """All transport headers."""
        return self.head.headers


class AnswerReceived(NamedTuple):
    """The answer to our call *id*."""

    id: int
    answer: Answer


class CallFailed(NamedTuple):
    """Our call *id* ended without an answer."""

    id: int
    error: CallError


class CallUnreadable(NamedTuple):
    """A call of the peer was no call to speak of; the peer has been told, nothing is to be sent."""

    service: str
    why: str


class CancelReceived(NamedTuple):
    """The peer gave up its call *id*, and has been told that it ended; nothing is to be sent."""

    id: int
    why: str


class Ended(NamedTuple):
    """The connection takes no more: one end refused the other, or the peer said why it closes.

    Attributes:
        refused: whether calls that still wait certainly did not run: one end does not want the
            other, or the peer ended in good order (`Connection.send_goodbye`).
    """

    reason: str
    refused: bool


Event = (
    Initialised
    | CallReceived
    | CallUnreadable
    | AnswerReceived
    | CallFailed
    | CancelReceived
    | Ended
)


class _Incoming(NamedTuple):
    """A call whose fragments are still arriving."""

    service: str
    headers: Mapping[str, str]
    ttl_ms: int
    assembly: Assembly


class _Outgoing:
    """A call of ours that waits; *assembly* is its answer as far as that has come."""

    __slots__ = ("assembly", "code", "scheme")

    def __init__(self) -> None:
        self.assembly: Assembly | None = None
        self.code = 0
        self.scheme = ""


_WAITING: Final = _Outgoing()
"""Stands for every call of which nothing has come yet, so that a call need not build one."""

_FAILURES: Final[dict[int, type[CallError]]] = {
    ErrorCode.TIMEOUT: CallTimeout,
    ErrorCode.CANCELLED: CallCancelled,
    ErrorCode.BUSY: PeerBusy,
    ErrorCode.DECLINED: PeerDeclined,
    ErrorCode.UNEXPECTED: PeerFailed,
    ErrorCode.BAD_REQUEST: BadRequest,
    ErrorCode.NETWORK: ConnectionLost,
    # Said instead of an attempt, by a peer that knows its service to be failing: as if busy.
    ErrorCode.UNHEALTHY: PeerBusy,
}


def call_error(code: int, message: str) -> CallError:
    """What an error frame means to the caller; an unknown code may have run."""
    return _FAILURES.get(code, PeerFailed)(message or "no reason given")


class Connection:
    """One end of one connection.

    Args:
        host_port: where this end listens, or `NO_LISTENER`.
        process_name: whom to name in the peer's tools; also the caller's name of our calls.
        initiates: whether this end dialed, so that it speaks first.
        init_headers: what to tell the peer besides, when the connection starts.
        accept: sees the peer's init headers and returns None, or why they are not welcome.
        budget: of unfinished messages; shared between the connections of one node.
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
        self.initialised = False
        self.closed = False
        self.peer_host_port = ""
        self.queued_bytes = 0
        """How many bytes have ever been queued, for those who count what was written."""
        self.frames_out = 0
        self._limits = limits
        self._initiates = initiates
        self._accept = accept
        self._budget = budget or Budget(limits.assembling_bytes_max)
        own = {HOST_PORT: host_port, PROCESS_NAME: process_name, **LANGUAGE_HEADERS}
        self.init_headers: Mapping[str, str] = MappingProxyType(own | dict(init_headers))
        """What this end tells the peer when the connection starts."""
        self._caller_name = process_name.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")
        # A head that was seen before skips the parser, so nothing may need checking behind it.
        sizes_max = (limits.message_bytes_max, limits.control_bytes_max)
        self._recognises = min(sizes_max) >= FRAME_BYTES_MAX
        self._reader = FrameReader()
        self._outgoing: list[bytes] = []
        self._next_id = 1
        self._sent: dict[int, _Outgoing] = {}
        self._arriving: dict[int, _Incoming] = {}
        self._serving: dict[int, CallReceived] = {}
        self._known_calls: KnownHeads[CallHead] = KnownHeads()
        self._known_answers: KnownHeads[str] = KnownHeads()
        self._call_prefixes: dict[tuple[str, str, str], bytes] = {}
        self._answer_prefixes: dict[str, bytes] = {}
        self._take_frame_of: dict[int, Callable[[int, bytes, int, int], Event | None]] = {
            frames.CALL_REQ: self._take_call,
            frames.CALL_RES: self._take_answer,
            frames.CALL_REQ_CONTINUE: self._continue_call,
            frames.CALL_RES_CONTINUE: self._continue_answer,
            frames.CANCEL: self._take_cancel,
            frames.CLAIM: self._ignore,
            frames.PING_REQ: self._take_ping,
            frames.PING_RES: self._ignore,
            frames.ERROR: self._take_error,
        }
        if initiates:
            self._queue(
                init_frame(frames.INIT_REQ, self._new_id(), tuple(self.init_headers.items()))
            )

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self.initialised else "new"
        return f"<Connection to {self.peer_host_port or '?'} {state}>"

    # What the connection is doing.

    @property
    def frames_in(self) -> int:
        """How many whole frames have arrived."""
        return self._reader.frame_count

    @property
    def partial(self) -> bool:
        """Whether a frame has begun to arrive and not ended."""
        return self._reader.partial

    @property
    def calls_sent(self) -> int:
        """How many of our calls wait for their answers."""
        return len(self._sent)

    @property
    def calls_serving(self) -> int:
        """How many calls of the peer wait for our answers."""
        return len(self._serving)

    @property
    def outgoing(self) -> bool:
        """Whether there is something to send."""
        return bool(self._outgoing)

    def take_outgoing(self) -> bytes:
        """All that is to be sent, in order; it is the caller's from now on."""
        chunks = self._outgoing
        if len(chunks) == 1:
            return chunks.pop()
        data = b"".join(chunks)
        chunks.clear()
        return data

    # What arrives.

    def receive(self, data: bytes) -> list[Event]:
        """What the bytes mean, in order; events before a violation are delivered before it.

        Raises:
            WireError: if they break the protocol and nothing came before; a fatal error frame
                is queued, and the connection is closed.
        """
        if self.closed:
            return []
        events: list[Event] = []
        try:
            data, spans = self._reader.feed(data)
            for kind, frame_id, start, stop in spans:
                event = self._take_frame(kind, frame_id, data, start, stop)
                if event is not None:
                    events.append(event)
                    if self.closed:
                        break
        except WireError as error:
            self._queue(error_frame(frames.NO_ID, ErrorCode.FATAL, str(error)))
            self.close()
            if not events:
                raise
            events.append(Ended(str(error), refused=False))
        return events

    def close(self) -> None:
        """Drop every unfinished message; what is queued may still be sent."""
        self.closed = True
        for incoming in self._arriving.values():
            incoming.assembly.release()
        for outgoing in self._sent.values():
            if outgoing.assembly is not None:
                outgoing.assembly.release()
        self._arriving.clear()
        self._sent.clear()
        self._serving.clear()

    def _take_frame(
        self, kind: int, frame_id: int, data: bytes, start: int, stop: int
    ) -> Event | None:
        if self.initialised:
            take = self._take_frame_of.get(kind)
            if take is not None:
                return take(frame_id, data, start, stop)
        elif kind == (frames.INIT_RES if self._initiates else frames.INIT_REQ):
            return self._take_init(frame_id, data, start, stop)
        elif kind == frames.ERROR:
            return self._take_error(frame_id, data, start, stop)
        when = "here" if self.initialised else "before the init frame"
        message = f"a frame of type 0x{kind:02x} is out of place {when}"
        raise WireError(message)

    def _take_init(self, frame_id: int, data: bytes, start: int, stop: int) -> Event:
        cursor = Cursor(data, start, stop)
        version = cursor.u16()
        if version != frames.VERSION:
            _break(f"this end speaks version {frames.VERSION}, not {version}")
        headers = self._read_init_headers(cursor)
        reason = self._accept(headers) if self._accept is not None else None
        if reason is not None:
            self._queue(error_frame(frames.NO_ID, ErrorCode.FATAL, reason))
            self.close()
            return Ended(reason, refused=True)
        if not self._initiates:
            self._queue(init_frame(frames.INIT_RES, frame_id, tuple(self.init_headers.items())))
        self.initialised = True
        self.peer_host_port = headers[HOST_PORT]
        return Initialised(self.peer_host_port, headers)

    def _read_init_headers(self, cursor: Cursor) -> Mapping[str, str]:
        count = cursor.u16()
        if count > self._limits.init_headers_max:
            _break(f"{count} init headers are more than {self._limits.init_headers_max}")
        headers: dict[str, str] = {}
        for _ in range(count):
            key = cursor.text2()
            if key in headers:
                _break("an init header is there twice")
            headers[key] = cursor.text2()
        for key in (HOST_PORT, PROCESS_NAME):
            if key not in headers:
                _break(f"the init header {key} is missing")
        return MappingProxyType(headers)

    def _take_call(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        if call_id == frames.NO_ID or call_id in self._serving or call_id in self._arriving:
            _break(f"the call id {call_id} cannot be used now")
        if start + _CALL_FIXED > stop:
            _break("a call ends before its service")
        milliseconds = int.from_bytes(data[start + 1 : start + 5], "big")
        if not milliseconds:
            _break("a call has a ttl of 0")
        if self._call_is_refused(call_id):
            return None
        if self._recognises and not data[start]:
            known = self._known_calls.find(data, start + _CALL_FIXED)
            if known is not None:
                head, position = known
                arguments = _last_two(data, position, stop)
                if arguments is not None:
                    event = _new(CallReceived, (call_id, head, *arguments, milliseconds, 0))
                    self._serving[call_id] = event
                    return event
        return self._parse_call(call_id, data, start, stop)

    def _call_is_refused(self, call_id: int) -> bool:
        if len(self._serving) + len(self._arriving) < self._limits.calls_in_flight_max:
            return False
        self._queue(error_frame(call_id, ErrorCode.BUSY, "too many calls in flight"))
        return True

    def _parse_call(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        cursor = Cursor(data, start, stop)
        more = cursor.u8() & frames.MORE_FRAGMENTS
        milliseconds = cursor.u32()
        cursor.take(TRACING_BYTES)
        service = cursor.text1()
        headers = read_headers(cursor, self._limits)
        for key in (SCHEME_HEADER, CALLER_HEADER):
            if key not in headers:
                return self._unreadable(call_id, service, f"no {key} header")
        if more and len(self._arriving) >= self._limits.assembling_max:
            self._queue(error_frame(call_id, ErrorCode.BUSY, "too many unfinished messages"))
            return None
        size_max = self._limits.message_bytes_max
        assembly = Assembly(cursor.u8(), size_max, self._budget)
        arguments_at = cursor.position
        incoming = _Incoming(service, headers, milliseconds, assembly)
        event = self._feed_call(call_id, incoming, cursor, more=more)
        if isinstance(event, CallReceived) and not more and not event.checksum_type:
            # The head reaches to the end of arg1; a shard key makes it one of a kind.
            head_end = (
                arguments_at + 2 + int.from_bytes(data[arguments_at : arguments_at + 2], "big")
            )
            if SHARD_KEY_HEADER not in headers:
                self._known_calls.add(data[start + _CALL_FIXED : head_end], event.head)
        return event

    def _continue_call(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        incoming = self._arriving.pop(call_id, None)
        if incoming is None:  # refused or cancelled while its fragments were on the way
            return None
        cursor = Cursor(data, start, stop)
        try:
            more = cursor.u8() & frames.MORE_FRAGMENTS
            _require_type(cursor.u8(), incoming.assembly)
        except WireError:
            incoming.assembly.release()
            raise
        return self._feed_call(call_id, incoming, cursor, more=more)

    def _feed_call(
        self, call_id: int, incoming: _Incoming, cursor: Cursor, *, more: int
    ) -> CallReceived | CallUnreadable | None:
        """Take a fragment; the call if it was the last, and None if more have to come."""
        assembly = incoming.assembly
        event: CallReceived | CallUnreadable | None = None
        keep = False
        try:
            assembly.add(cursor)
            keep = bool(more)
            if not more:
                event = _received(call_id, incoming, self._limits)
        except TooLarge as error:
            event = self._unreadable(call_id, incoming.service, str(error))
        except ChecksumMismatch:
            event = self._unreadable(call_id, incoming.service, "the checksum does not match")
        finally:
            if not keep:
                assembly.release()
        if keep:
            self._arriving[call_id] = incoming
        elif isinstance(event, CallReceived):
            self._serving[call_id] = event
        return event

    def _unreadable(self, call_id: int, service: str, why: str) -> CallUnreadable:
        self._queue(error_frame(call_id, ErrorCode.BAD_REQUEST, why))
        return CallUnreadable(service, why)

    def _take_answer(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        waiting = self._sent.get(call_id)
        if waiting is None:  # it timed out or was cancelled here
            return None
        if start + _ANSWER_FIXED > stop:
            _break("an answer ends before its headers")
        if waiting.assembly is not None:
            _break(f"the answer to call {call_id} came twice")
        if self._recognises and not data[start]:
            known = self._known_answers.find(data, start + _ANSWER_FIXED)
            if known is not None:
                scheme, position = known
                arguments = _last_two(data, position, stop)
                if arguments is not None:
                    del self._sent[call_id]
                    # One each a call: made without the detour over the constructors.
                    answer = _new(Answer, (not data[start + 1], *arguments, scheme))
                    return _new(AnswerReceived, (call_id, answer))
        return self._parse_answer(call_id, data, start, stop)

    def _parse_answer(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        cursor = Cursor(data, start, stop)
        more = cursor.u8() & frames.MORE_FRAGMENTS
        outgoing = _Outgoing()
        outgoing.code = cursor.u8()
        cursor.take(TRACING_BYTES)
        headers = read_headers(cursor, self._limits)
        if SCHEME_HEADER not in headers:
            _break(f"an answer has no {SCHEME_HEADER} header")
        outgoing.scheme = headers[SCHEME_HEADER]
        size_max = self._limits.message_bytes_max
        outgoing.assembly = Assembly(cursor.u8(), size_max, self._budget)
        arguments_at = cursor.position
        event = self._feed_answer(call_id, outgoing, outgoing.assembly, cursor, more=more)
        if not more and not outgoing.assembly.checksum_type:
            head_end = (
                arguments_at + 2 + int.from_bytes(data[arguments_at : arguments_at + 2], "big")
            )
            self._known_answers.add(data[start + _ANSWER_FIXED : head_end], outgoing.scheme)
        return event

    def _continue_answer(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        outgoing = self._sent.get(call_id)
        if outgoing is None:  # it timed out or was cancelled here
            return None
        if outgoing.assembly is None:
            _break(f"the answer to call {call_id} has no beginning")
        cursor = Cursor(data, start, stop)
        more = cursor.u8() & frames.MORE_FRAGMENTS
        _require_type(cursor.u8(), outgoing.assembly)
        return self._feed_answer(call_id, outgoing, outgoing.assembly, cursor, more=more)

    def _feed_answer(
        self, call_id: int, outgoing: _Outgoing, assembly: Assembly, cursor: Cursor, *, more: int
    ) -> Event | None:
        event: Event | None = None
        keep = False
        try:
            assembly.add(cursor)
            keep = bool(more)
            if not more:
                _, arg2, arg3 = assembly.finish()
                answer = Answer(not outgoing.code, arg2, arg3, outgoing.scheme)
                event = AnswerReceived(call_id, answer)
        except TooLarge as error:
            event = CallFailed(call_id, PeerFailed(f"the answer was refused: {error}"))
        except ChecksumMismatch:
            event = CallFailed(call_id, PeerFailed("the checksum of the answer does not match"))
        finally:
            if not keep:
                assembly.release()
                self._sent.pop(call_id, None)
        if keep:
            self._sent[call_id] = outgoing
        return event

    def _take_cancel(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        cursor = Cursor(data, start, stop)
        cursor.take(4 + TRACING_BYTES)
        why = cursor.text2()
        incoming = self._arriving.pop(call_id, None)
        if incoming is not None:
            incoming.assembly.release()
            self._queue(error_frame(call_id, ErrorCode.CANCELLED, why))
            return None
        if self._serving.pop(call_id, None) is None:
            return None
        self._queue(error_frame(call_id, ErrorCode.CANCELLED, why))
        return CancelReceived(call_id, why)

    def _take_ping(self, frame_id: int, _data: bytes, _start: int, _stop: int) -> None:
        self._queue(frames.frame(frames.PING_RES, frame_id))

    def _ignore(self, _id: int, _data: bytes, _start: int, _stop: int) -> None:
        """Frames that say nothing to us."""

    def _take_error(self, call_id: int, data: bytes, start: int, stop: int) -> Event | None:
        cursor = Cursor(data, start, stop)
        code = cursor.u8()
        cursor.take(TRACING_BYTES)
        message = cursor.text2()
        if code == ErrorCode.FATAL:
            refused = not self.initialised
            self.close()
            return Ended(message or "the peer gave no reason", refused=refused)
        if call_id == frames.NO_ID and code == ErrorCode.DECLINED:
            self.close()
            return Ended(message or "the peer has ended", refused=True)
        return self._fail_sent(call_id, call_error(code, message))

    def _fail_sent(self, call_id: int, error: CallError) -> CallFailed | None:
        outgoing = self._sent.pop(call_id, None)
        if outgoing is None:
            return None
        if outgoing.assembly is not None:
            outgoing.assembly.release()
        return CallFailed(call_id, error)

    # What the application wants.

    def send_call(self, call: Call) -> int:
        """Queue *call*; its id is free again after an answer, an error or `send_cancel`.

        Raises:
            TooManyInFlight: at the limit of calls in flight.
            BadRequest: if it does not fit the format or the limits.
        """
        assert self.initialised
        assert not self.closed
        if len(self._sent) >= self._limits.calls_in_flight_max:
            message = f"{len(self._sent)} calls are in flight to {self.peer_host_port}"
            raise TooManyInFlight(message)
        call_id = self._new_id()
        milliseconds = ttl_ms(call.ttl_s)
        if not call.checksum_type:
            prefix = self._call_prefix(call)
            arg2, arg3 = call.arg2, call.arg3
            size = FRAME_HEAD_BYTES + _CALL_FIXED + len(prefix) + len(arg2) + len(arg3)
            if size <= _INLINE_BYTES_MAX:
                size += _EMPTY_SIZES
                head = frames.CALL_HEAD.pack(size, frames.CALL_REQ, call_id, 0, milliseconds)
                self._outgoing.append(
                    b"".join((head, prefix, u16(len(arg2)), arg2, u16(len(arg3)), arg3))
                )
                self.frames_out += 1
                self.queued_bytes += size
                self._sent[call_id] = _WAITING
                return call_id
        self._send_large_call(call_id, call, milliseconds)
        self._sent[call_id] = _WAITING
        return call_id

    def send_answer(self, call_id: int, answer: Answer) -> bool:
        """Queue the answer to the peer's call; False if it no longer waits for one."""
        asked = self._serving.pop(call_id, None)
        if asked is None:
            return False
        scheme = answer.scheme or asked.head.scheme
        if not asked.checksum_type:
            prefix = self._answer_prefixes.get(scheme) or self._new_answer_prefix(scheme)
            arg2, arg3 = answer.arg2, answer.arg3
            size = FRAME_HEAD_BYTES + _ANSWER_FIXED + len(prefix) + len(arg2) + len(arg3)
            if size <= _INLINE_BYTES_MAX:
                size += _EMPTY_SIZES
                head = frames.ANSWER_HEAD.pack(size, frames.CALL_RES, call_id, 0, not answer.ok)
                self._outgoing.append(
                    b"".join((head, prefix, u16(len(arg2)), arg2, u16(len(arg3)), arg3))
                )
                self.frames_out += 1
                self.queued_bytes += size
                return True
        self._send_large_answer(call_id, answer, scheme, asked.checksum_type)
        return True

    def send_error(self, call_id: int, code: ErrorCode, message: str) -> bool:
        """Queue an error instead of an answer; False if the peer's call no longer waits."""
        if self._serving.pop(call_id, None) is None:
            return False
        self._queue(error_frame(call_id, code, message))
        return True

    def send_cancel(self, call_id: int, why: str) -> bool:
        """Give up a call of ours; what still comes for it is dropped. False if it had ended."""
        if self._fail_sent(call_id, CallCancelled(why)) is None:
            return False
        self._queue(frames.cancel_frame(call_id, 1, why))
        return True

    def forget_call(self, call_id: int) -> None:
        """Give up a call of ours without a word, because the peer counts its ttl itself."""
        self._fail_sent(call_id, CallTimeout())

    def send_fatal(self, reason: str) -> None:
        """Tell the peer why the connection ends, and end it."""
        self._queue(error_frame(frames.NO_ID, ErrorCode.FATAL, reason))
        self.close()

    def send_goodbye(self, reason: str) -> None:
        """End the connection in good order: no call that the peer has not had an answer to has run.

        Send errors first for calls that were begun here and have no answer yet. A peer of another
        implementation ignores this frame, for it belongs to no call.
        """
        self._queue(error_frame(frames.NO_ID, ErrorCode.DECLINED, reason))
        self.close()

    def _new_id(self) -> int:
        call_id = self._next_id
        while call_id in self._sent:
            call_id = call_id + 1 if call_id < frames.ID_MAX else 0
        self._next_id = call_id + 1 if call_id < frames.ID_MAX else 0
        return call_id

    def _queue(self, raw: bytes) -> None:
        self._outgoing.append(raw)
        self.frames_out += 1
        self.queued_bytes += len(raw)

    def _call_prefix(self, call: Call) -> bytes:
        """What stands between tracing and arg2, built once an endpoint."""
        if call.headers:
            return self._new_call_prefix(call)
        key = (call.service, call.endpoint, call.scheme)
        prefix = self._call_prefixes.get(key)
        if prefix is None:
            prefix = self._new_call_prefix(call)
            if len(self._call_prefixes) == PREFIXES_MAX:
                self._call_prefixes.clear()
            self._call_prefixes[key] = prefix
        return prefix

    def _new_call_prefix(self, call: Call) -> bytes:
        raw = call.endpoint.encode("utf-8", "replace")
        if len(raw) > ENDPOINT_BYTES_MAX:
            message = f"an endpoint has at most {ENDPOINT_BYTES_MAX} bytes, not {len(raw)}"
            raise BadRequest(message)
        return self._call_fields(call) + b"\0" + u16(len(raw)) + raw

    def _call_fields(self, call: Call) -> bytes:
        """The service and the transport headers of *call*."""
        headers: Headers = (
            (SCHEME_HEADER, call.scheme),
            (CALLER_HEADER, self._caller_name),
            *call.headers,
        )
        _check_headers(headers, self._limits)
        try:
            return text1(call.service) + pack_headers(headers)
        except WireError as error:
            raise BadRequest(*error.args) from None

    def _new_answer_prefix(self, scheme: str) -> bytes:
        if len(self._answer_prefixes) == PREFIXES_MAX:
            self._answer_prefixes.clear()
        prefix = pack_headers(((SCHEME_HEADER, scheme),)) + b"\0\0\0"  # no checksum, no arg1
        self._answer_prefixes[scheme] = prefix
        return prefix

    def _send_large_call(self, call_id: int, call: Call, milliseconds: int) -> None:
        """Queue a call in as many frames as it takes, or one with a checksum."""
        self._new_call_prefix(call)  # the same checks
        arguments = (call.endpoint.encode("utf-8", "replace"), call.arg2, call.arg3)
        bytes_max = _request_bytes_max(call.service, call.endpoint, self._limits)
        if sum(map(len, arguments)) > bytes_max:
            message = f"a request for {call.endpoint} has at most {bytes_max} bytes"
            raise BadRequest(message)
        fields = milliseconds.to_bytes(4, "big") + bytes(TRACING_BYTES) + self._call_fields(call)
        self._queue_fragments(
            (frames.CALL_REQ, frames.CALL_REQ_CONTINUE), call_id, fields, arguments,
            call.checksum_type,
        )  # fmt: skip

    def _send_large_answer(
        self, call_id: int, answer: Answer, scheme: str, checksum_type: int
    ) -> None:
        arguments = (b"", answer.arg2, answer.arg3)
        size = len(answer.arg2) + len(answer.arg3)
        if size > self._limits.message_bytes_max:
            message = f"the answer has {size} bytes, more than {self._limits.message_bytes_max}"
            self._queue(error_frame(call_id, ErrorCode.UNEXPECTED, message))
            return
        headers = pack_headers(((SCHEME_HEADER, scheme),))
        fields = bytes((not answer.ok,)) + bytes(TRACING_BYTES) + headers
        kinds = (frames.CALL_RES, frames.CALL_RES_CONTINUE)
        self._queue_fragments(kinds, call_id, fields, arguments, checksum_type)

    def _queue_fragments(
        self,
        kinds: tuple[int, int],
        call_id: int,
        fields: bytes,
        arguments: tuple[bytes, bytes, bytes],
        checksum_type: int,
    ) -> None:
        room = FRAME_BYTES_MAX - FRAME_HEAD_BYTES - 2 - (4 if checksum_type else 0)
        cuts = list(cut(arguments, room - len(fields), room))
        value = 0
        for index, pieces in enumerate(cuts):
            is_first, is_last = index == 0, index == len(cuts) - 1
            flags = b"\0" if is_last else b"\1"
            end, value = pack_pieces(pieces, checksum_type, value)
            start = flags + fields if is_first else flags
            self._queue(frames.frame(kinds[0 if is_first else 1], call_id, start + end))


PREFIXES_MAX: Final = 256
"""How many built heads are kept; at the limit, none are."""


def _break(message: str) -> NoReturn:
    raise WireError(message)


def _require_type(checksum_type: int, assembly: Assembly) -> None:
    if checksum_type != assembly.checksum_type:
        _break("the checksum type changes between fragments")


def _last_two(data: bytes, start: int, stop: int) -> tuple[bytes, bytes] | None:
    """arg2 and arg3, if they are all that stands between *start* and *stop*."""
    arg2_at = start + 2
    if arg2_at > stop:
        return None
    arg3_size_at = arg2_at + (data[start] << 8 | data[start + 1])
    arg3_at = arg3_size_at + 2
    if arg3_at > stop:
        return None
    if data[arg3_size_at] << 8 | data[arg3_size_at + 1] != stop - arg3_at:
        return None
    return data[arg2_at:arg3_size_at], data[arg3_at:stop]


def _received(call_id: int, incoming: _Incoming, limits: WireLimits) -> CallReceived:
    """The call whose last fragment has come.

    Raises:
        WireError: if its arguments are malformed.
        TooLarge: if this endpoint takes less.
    """
    arg1, arg2, arg3 = incoming.assembly.finish()
    if len(arg1) > ENDPOINT_BYTES_MAX:
        message = f"an endpoint has at most {ENDPOINT_BYTES_MAX} bytes, not {len(arg1)}"
        raise TooLarge(message)
    endpoint = decode(arg1)
    bytes_max = _request_bytes_max(incoming.service, endpoint, limits)
    if len(arg1) + len(arg2) + len(arg3) > bytes_max:
        message = f"a request for {endpoint} has at most {bytes_max} bytes"
        raise TooLarge(message)
    headers = incoming.headers
    head = CallHead(incoming.service, endpoint, headers[SCHEME_HEADER], headers)
    return CallReceived(call_id, head, arg2, arg3, incoming.ttl_ms, incoming.assembly.checksum_type)


def _request_bytes_max(service: str, endpoint: str, limits: WireLimits) -> int:
    control = service == NODE_SERVICE and endpoint.startswith(CONTROL_PREFIXES)
    return limits.control_bytes_max if control else limits.message_bytes_max


def _check_headers(headers: Iterable[tuple[str, str]], limits: WireLimits) -> None:
    """Refuse to send what a peer would refuse.

    Raises:
        BadRequest: if the headers break a limit, or one is there twice.
    """
    keys = [key.encode("utf-8", "replace") for key, _ in headers]
    fitting = all(0 < len(key) <= limits.header_key_bytes_max for key in keys)
    if not fitting or len(keys) > limits.headers_max or len(set(keys)) != len(keys):
        message = f"headers have distinct keys of 1 to {limits.header_key_bytes_max} bytes"
        raise BadRequest(message)
