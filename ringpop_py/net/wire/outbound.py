"""Our calls on one connection: they are sent, and wait for the peer's answers.

The id of a call is free again when its answer, an error or our own cancel has ended it; what
still comes for it is dropped. Most answers are one frame that begins like an earlier one: its head
is recognised (`KnownHeads`), and is not parsed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.errors import (
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
from ringpop_py.net.wire import frames
from ringpop_py.net.wire.calls import (
    CALLER_HEADER,
    ENDPOINT_BYTES_MAX,
    SCHEME_HEADER,
    Answer,
    AnswerReceived,
    Call,
    CallFailed,
    Headers,
    KnownHeads,
    pack_headers,
    read_headers,
    recognises,
    request_bytes_max,
    text1,
    ttl_ms,
)
from ringpop_py.net.wire.fragments import (
    EMPTY_SIZES,
    INLINE_BYTES_MAX,
    PREFIXES_MAX,
    Assembly,
    Budget,
    ChecksumMismatch,
    TooLarge,
    first_end,
    frames_of,
)
from ringpop_py.net.wire.frames import (
    CALL_HEAD,
    CALL_REQ,
    FRAME_HEAD_BYTES,
    ID_MAX,
    TRACING_BYTES,
    Cursor,
    ErrorCode,
    FrameQueue,
    malformed,
    u16,
)

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import WireLimits

    _AnswerEvent = AnswerReceived | CallFailed

_ANSWER_FIXED: Final = 1 + 1 + TRACING_BYTES  # flags, code, tracing
_CALL_HEAD_BYTES: Final = FRAME_HEAD_BYTES + 1 + 4 + TRACING_BYTES  # flags, ttl, tracing


class _Arriving(NamedTuple):
    code: int
    scheme: str
    assembly: Assembly


_FAILURES: Final[dict[int, type[CallError]]] = {
    ErrorCode.TIMEOUT: CallTimeout,
    ErrorCode.CANCELLED: CallCancelled,
    ErrorCode.BUSY: PeerBusy,
    ErrorCode.DECLINED: PeerDeclined,
    ErrorCode.UNEXPECTED: PeerFailed,
    ErrorCode.BAD_REQUEST: BadRequest,
    ErrorCode.NETWORK: ConnectionLost,
    # A peer that considers its service failing sends this without an attempt, as if busy.
    ErrorCode.UNHEALTHY: PeerBusy,
}


def call_error(code: int, message: str) -> CallError:
    """Return what an error frame means to the caller. After an unknown code, it may have run."""
    return _FAILURES.get(code, PeerFailed)(message or "no reason given")


class OutboundCalls:
    """Our calls that have no answer yet.

    The methods that take a frame get its id, and where its payload lies, and raise `WireError`
    if it breaks the protocol.

    Args:
        process_name: the caller's name.
        queue: where calls are put.

    Attributes:
        peer: the peer's address; None before it is known, and after the connection is closed.
    """

    def __init__(
        self, process_name: str, limits: WireLimits, budget: Budget, queue: FrameQueue
    ) -> None:
        self.peer: str | None = None
        self._caller_name = process_name.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")
        self._limits = limits
        self._budget = budget
        self._queue = queue
        self._recognises = recognises(limits)
        self._next_id = 1
        self._sent: dict[int, _Arriving | None] = {}
        self._known: KnownHeads[str] = KnownHeads()
        # What stands between tracing and arg2, by service, endpoint and scheme.
        self._prefixes: dict[tuple[str, str, str], bytes] = {}

    def __len__(self) -> int:
        """Return how many wait for an answer."""
        return len(self._sent)

    def clear(self) -> None:
        """Forget all of them; no more can be sent."""
        self.peer = None
        for arriving in self._sent.values():
            if arriving is not None:
                arriving.assembly.release()
        self._sent.clear()

    # What is sent.

    def new_id(self) -> int:
        """Return an id that no call has."""
        call_id = self._next_id
        while call_id in self._sent:
            call_id = call_id + 1 if call_id < ID_MAX else 0
        self._next_id = call_id + 1 if call_id < ID_MAX else 0
        return call_id

    def send(self, call: Call) -> int:
        """Queue *call* and return its id, which is free again after an answer, error or cancel.

        Raises:
            TooManyInFlight: at the limit of calls in flight.
            BadRequest: if it does not fit the format or the limits.
        """
        assert self.peer is not None, "the connection is not open"
        if len(self._sent) >= self._limits.calls_in_flight_max:
            raise TooManyInFlight(f"{len(self._sent)} calls are in flight to {self.peer}")
        call_id = self._next_id  # as `new_id`, without a call in the usual case
        if call_id in self._sent or call_id == ID_MAX:
            call_id = self.new_id()
        else:
            self._next_id = call_id + 1
        milliseconds = ttl_ms(call.ttl_s)
        if not call.checksum_type:
            key = (call.service, call.endpoint, call.scheme)
            prefix = None if call.headers else self._prefixes.get(key)
            if prefix is None:  # always with headers: they differ from call to call
                prefix = self._new_prefix(call, key)
            arg2, arg3 = call.arg2, call.arg3
            size = _CALL_HEAD_BYTES + len(prefix) + len(arg2) + len(arg3)
            if size <= INLINE_BYTES_MAX:
                size += EMPTY_SIZES
                head = CALL_HEAD.pack(size, CALL_REQ, call_id, 0, milliseconds)
                if call.tracing:
                    head = head[:-TRACING_BYTES] + call.tracing
                queue = self._queue
                queue.chunks.append(
                    b"".join((head, prefix, u16(len(arg2)), arg2, u16(len(arg3)), arg3))
                )
                queue.byte_count += size
                self._sent[call_id] = None
                return call_id
        self._send_large(call_id, call, milliseconds)
        self._sent[call_id] = None
        return call_id

    def _new_prefix(self, call: Call, key: tuple[str, str, str]) -> bytes:
        raw = _endpoint_bytes(call)
        prefix = self._fields(call) + b"\0" + u16(len(raw)) + raw
        if not call.headers:
            if len(self._prefixes) == PREFIXES_MAX:
                self._prefixes.clear()
            self._prefixes[key] = prefix
        return prefix

    def _fields(self, call: Call) -> bytes:
        headers: Headers = (
            (SCHEME_HEADER, call.scheme),
            (CALLER_HEADER, self._caller_name),
            *call.headers,
        )
        keys = [key.encode("utf-8", "replace") for key, _ in headers]
        key_bytes_max = self._limits.header_key_bytes_max
        fitting = all(0 < len(key) <= key_bytes_max for key in keys)
        if not fitting or len(keys) > self._limits.headers_max or len(set(keys)) != len(keys):
            raise BadRequest(f"headers have distinct keys of 1 to {key_bytes_max} bytes")
        try:
            return text1(call.service) + pack_headers(headers)
        except WireError as error:
            raise BadRequest(*error.args) from None

    def _send_large(self, call_id: int, call: Call, milliseconds: int) -> None:
        arguments = (_endpoint_bytes(call), call.arg2, call.arg3)
        fields = (
            milliseconds.to_bytes(4, "big")
            + (call.tracing or bytes(TRACING_BYTES))
            + self._fields(call)
        )
        bytes_max = request_bytes_max(call.service, call.endpoint, self._limits)
        if sum(map(len, arguments)) > bytes_max:
            raise BadRequest(f"a request for {call.endpoint} has at most {bytes_max} bytes")
        kinds = (CALL_REQ, frames.CALL_REQ_CONTINUE)
        for raw in frames_of(kinds, call_id, fields, arguments, call.checksum_type):
            self._queue.put(raw)

    # What arrives.

    def take_answer(self, call_id: int, data: bytes, start: int, stop: int) -> _AnswerEvent | None:
        """Take an answer, or its first fragment."""
        if call_id not in self._sent:  # it timed out or was cancelled here
            return None
        if start + _ANSWER_FIXED > stop:  # the bytes are read below without a `Cursor`
            malformed("an answer ends before its headers")
        if self._sent[call_id] is not None:
            malformed(f"the answer to call {call_id} came twice")
        if not data[start]:  # no flags: the answer is one frame
            known = self._known.find(data, start + _ANSWER_FIXED, stop)
            if known is not None:
                del self._sent[call_id]
                scheme, arg2, arg3 = known
                answer = Answer(not data[start + 1], arg2, arg3, scheme)
                return AnswerReceived(call_id, answer)
        return self._parse(call_id, data, start, stop)

    def _parse(self, call_id: int, data: bytes, start: int, stop: int) -> _AnswerEvent | None:
        cursor = Cursor(data, start, stop)
        more = cursor.u8() & frames.MORE_FRAGMENTS
        code = cursor.u8()
        cursor.take(TRACING_BYTES)
        headers = read_headers(cursor, self._limits)
        if SCHEME_HEADER not in headers:
            malformed(f"an answer has no {SCHEME_HEADER} header")
        scheme = headers[SCHEME_HEADER]
        assembly = Assembly(cursor.u8(), self._limits.message_bytes_max, self._budget)
        arguments_at = cursor.position
        event = self._feed(call_id, _Arriving(code, scheme, assembly), cursor, more)
        if self._recognises and not more and not assembly.checksum_type:
            raw = data[start + _ANSWER_FIXED : first_end(data, arguments_at)]
            self._known.add(raw, scheme)
        return event

    def continue_answer(
        self, call_id: int, data: bytes, start: int, stop: int
    ) -> _AnswerEvent | None:
        """Take one more fragment of an answer."""
        if call_id not in self._sent:  # it timed out or was cancelled here
            return None
        arriving = self._sent[call_id]
        if arriving is None:
            malformed(f"the answer to call {call_id} has no beginning")
        cursor = Cursor(data, start, stop)
        more = arriving.assembly.resume(cursor)
        return self._feed(call_id, arriving, cursor, more)

    def _feed(
        self, call_id: int, arriving: _Arriving, cursor: Cursor, more: int
    ) -> _AnswerEvent | None:
        event: _AnswerEvent
        try:
            arguments = arriving.assembly.feed(cursor, more=more)
        except TooLarge as error:
            event = CallFailed(call_id, PeerFailed(f"the answer was refused: {error}"))
        except ChecksumMismatch:
            event = CallFailed(call_id, PeerFailed("the checksum of the answer does not match"))
        else:
            if arguments is None:
                self._sent[call_id] = arriving
                return None
            _, arg2, arg3 = arguments
            event = AnswerReceived(call_id, Answer(not arriving.code, arg2, arg3, arriving.scheme))
        del self._sent[call_id]
        return event

    def fail(self, call_id: int, error: CallError) -> CallFailed | None:
        """End a call without an answer; return None if it had ended."""
        if call_id not in self._sent:
            return None
        arriving = self._sent.pop(call_id)
        if arriving is not None:
            arriving.assembly.release()
        return CallFailed(call_id, error)


def _endpoint_bytes(call: Call) -> bytes:
    raw = call.endpoint.encode("utf-8", "replace")
    if len(raw) > ENDPOINT_BYTES_MAX:
        raise BadRequest(f"an endpoint has at most {ENDPOINT_BYTES_MAX} bytes, not {len(raw)}")
    return raw
