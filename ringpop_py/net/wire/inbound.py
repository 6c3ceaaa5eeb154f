"""The peer's calls on one connection: they arrive, are served elsewhere, and get our answers.

The id of a call is free, or that of a call that still arrives, or of one that is being served. Most
calls are one frame that begins like an earlier one: its head is recognised (`KnownHeads`), and is
not parsed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.net.wire import frames
from ringpop_py.net.wire.calls import (
    CALLER_HEADER,
    ENDPOINT_BYTES_MAX,
    SCHEME_HEADER,
    SHARD_KEY_HEADER,
    Answer,
    CallHead,
    CallReceived,
    CallUnreadable,
    CancelReceived,
    KnownHeads,
    pack_headers,
    read_headers,
    recognises,
    request_bytes_max,
)
from ringpop_py.net.wire.fragments import (
    EMPTY_SIZES,
    INLINE_BYTES_MAX,
    PREFIXES_MAX,
    Arguments,
    Assembly,
    Budget,
    ChecksumMismatch,
    TooLarge,
    first_end,
    frames_of,
)
from ringpop_py.net.wire.frames import (
    ANSWER_HEAD,
    CALL_RES,
    FRAME_HEAD_BYTES,
    NO_ID,
    TRACING_BYTES,
    Cursor,
    ErrorCode,
    FrameQueue,
    decode,
    error_frame,
    malformed,
    u16,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.base.config.settings import WireLimits

    _CallEvent = CallReceived | CallUnreadable

_CALL_FIXED: Final = 1 + 4 + TRACING_BYTES  # flags, ttl, tracing
_ANSWER_HEAD_BYTES: Final = FRAME_HEAD_BYTES + 1 + 1 + TRACING_BYTES  # flags, code, tracing


class _Arriving(NamedTuple):
    service: str
    headers: Mapping[str, str]
    ttl_ms: int
    assembly: Assembly
    tracing: bytes


class InboundCalls:
    """The calls of the peer that have no answer yet.

    The methods that take a frame get its id, and where its payload lies, and raise `WireError`
    if it breaks the protocol.

    Args:
        queue: where answers and refusals are put.
    """

    def __init__(self, limits: WireLimits, budget: Budget, queue: FrameQueue) -> None:
        self._limits = limits
        self._budget = budget
        self._queue = queue
        self._recognises = recognises(limits)
        self._arriving: dict[int, _Arriving] = {}
        self._serving: dict[int, CallReceived] = {}
        self._known: KnownHeads[CallHead] = KnownHeads()
        self._prefixes: dict[str, bytes] = {}  # what stands between tracing and arg2, by scheme

    def __len__(self) -> int:
        """Return how many wait for an answer."""
        return len(self._serving)

    def clear(self) -> None:
        """Forget all of them."""
        for arriving in self._arriving.values():
            arriving.assembly.release()
        self._arriving.clear()
        self._serving.clear()

    # What arrives.

    def take_call(self, call_id: int, data: bytes, start: int, stop: int) -> _CallEvent | None:
        """Take a call, or its first fragment."""
        if call_id == NO_ID or call_id in self._serving or call_id in self._arriving:
            malformed(f"the call id {call_id} cannot be used now")
        if start + _CALL_FIXED > stop:  # the bytes are read below without a `Cursor`
            malformed("a call ends before its service")
        milliseconds = int.from_bytes(data[start + 1 : start + 5], "big")
        if not milliseconds:
            malformed("a call has a ttl of 0")
        if len(self._serving) + len(self._arriving) >= self._limits.calls_in_flight_max:
            self._queue.put(error_frame(call_id, ErrorCode.BUSY, "too many calls in flight"))
            return None
        if not data[start]:  # no flags: the call is one frame
            known = self._known.find(data, start + _CALL_FIXED, stop)
            if known is not None:
                # The last byte of tracing has the flags, which no untraced call has.
                traced = data[start + 5 : start + _CALL_FIXED] if data[start + 29] else b""
                head, arg2, arg3 = known
                event = CallReceived(call_id, head, arg2, arg3, milliseconds, 0, traced)
                self._serving[call_id] = event
                return event
        return self._parse(call_id, data, start, stop)

    def _parse(self, call_id: int, data: bytes, start: int, stop: int) -> _CallEvent | None:
        cursor = Cursor(data, start, stop)
        more = cursor.u8() & frames.MORE_FRAGMENTS
        milliseconds = cursor.u32()
        tracing = bytes(cursor.take(TRACING_BYTES))
        service = cursor.text1()
        headers = read_headers(cursor, self._limits)
        for key in (SCHEME_HEADER, CALLER_HEADER):
            if key not in headers:
                return self._unreadable(call_id, service, f"no {key} header")
        # Only for calls in several frames: a call that is complete holds no memory for later.
        if more and len(self._arriving) >= self._limits.assembling_max:
            self._queue.put(error_frame(call_id, ErrorCode.BUSY, "too many unfinished messages"))
            return None
        assembly = Assembly(cursor.u8(), self._limits.message_bytes_max, self._budget)
        arguments_at = cursor.position
        traced = tracing if tracing[-1] else b""
        arriving = _Arriving(service, headers, milliseconds, assembly, traced)
        event = self._feed(call_id, arriving, cursor, more)
        # A head reaches to the end of arg1. One with a shard key hardly ever comes again.
        plain = not more and not assembly.checksum_type and SHARD_KEY_HEADER not in headers
        if self._recognises and plain and isinstance(event, CallReceived):
            raw = data[start + _CALL_FIXED : first_end(data, arguments_at)]
            self._known.add(raw, event.head)
        return event

    def continue_call(self, call_id: int, data: bytes, start: int, stop: int) -> _CallEvent | None:
        """Take one more fragment of a call."""
        arriving = self._arriving.get(call_id)
        if arriving is None:  # refused or cancelled while its fragments were on the way
            return None
        cursor = Cursor(data, start, stop)
        more = arriving.assembly.resume(cursor)
        return self._feed(call_id, arriving, cursor, more)

    def _feed(
        self, call_id: int, arriving: _Arriving, cursor: Cursor, more: int
    ) -> _CallEvent | None:
        event: _CallEvent
        try:
            arguments = arriving.assembly.feed(cursor, more=more)
            if arguments is None:
                self._arriving[call_id] = arriving
                return None
            event = self._serving[call_id] = self._received(call_id, arriving, arguments)
        except TooLarge as error:
            event = self._unreadable(call_id, arriving.service, str(error))
        except ChecksumMismatch:
            # Only this call is refused: the frames themselves are whole, so the next one can be
            # read.
            event = self._unreadable(call_id, arriving.service, "the checksum does not match")
        self._arriving.pop(call_id, None)
        return event

    def _received(self, call_id: int, arriving: _Arriving, arguments: Arguments) -> CallReceived:
        arg1, arg2, arg3 = arguments
        if len(arg1) > ENDPOINT_BYTES_MAX:
            raise TooLarge(f"an endpoint has at most {ENDPOINT_BYTES_MAX} bytes, not {len(arg1)}")
        endpoint = decode(arg1)
        service, headers, milliseconds, assembly, traced = arriving
        bytes_max = request_bytes_max(service, endpoint, self._limits)
        if len(arg1) + len(arg2) + len(arg3) > bytes_max:
            raise TooLarge(f"a request for {endpoint} has at most {bytes_max} bytes")
        head = CallHead(service, endpoint, headers[SCHEME_HEADER], headers)
        kind = assembly.checksum_type
        return CallReceived(call_id, head, arg2, arg3, milliseconds, kind, traced)

    def _unreadable(self, call_id: int, service: str, why: str) -> CallUnreadable:
        self._queue.put(error_frame(call_id, ErrorCode.BAD_REQUEST, why))
        return CallUnreadable(service, why)

    def take_cancel(
        self, call_id: int, data: bytes, start: int, stop: int
    ) -> CancelReceived | None:
        """Take a cancel frame: the peer no longer wants an answer."""
        cursor = Cursor(data, start, stop)
        cursor.take(4 + TRACING_BYTES)
        why = cursor.text2()
        arriving = self._arriving.pop(call_id, None)
        if arriving is not None:
            arriving.assembly.release()
        served = self._serving.pop(call_id, None) is not None
        if arriving is not None or served:
            self._queue.put(error_frame(call_id, ErrorCode.CANCELLED, why))
        return CancelReceived(call_id, why) if served else None

    # What is sent.

    def answer(self, call_id: int, answer: Answer) -> bool:
        """Queue the answer to a call; return False if it no longer waits for one."""
        asked = self._serving.pop(call_id, None)
        if asked is None:
            return False
        scheme = answer.scheme or asked.head.scheme  # as the caller asked, by default
        if not asked.checksum_type:
            prefix = self._prefixes.get(scheme) or self._new_prefix(scheme)
            arg2, arg3 = answer.arg2, answer.arg3
            size = _ANSWER_HEAD_BYTES + len(prefix) + len(arg2) + len(arg3)
            if size <= INLINE_BYTES_MAX:
                size += EMPTY_SIZES
                head = ANSWER_HEAD.pack(size, CALL_RES, call_id, 0, not answer.ok)
                queue = self._queue
                queue.chunks.append(
                    b"".join((head, prefix, u16(len(arg2)), arg2, u16(len(arg3)), arg3))
                )
                queue.byte_count += size
                return True
        self._answer_large(call_id, answer, scheme, asked.checksum_type)
        return True

    def refuse(self, call_id: int, code: ErrorCode, message: str) -> bool:
        """Queue an error instead of an answer; return False if the call no longer waits."""
        if self._serving.pop(call_id, None) is None:
            return False
        self._queue.put(error_frame(call_id, code, message))
        return True

    def _new_prefix(self, scheme: str) -> bytes:
        # A peer names the schemes, so they must not fill the memory.
        if len(self._prefixes) == PREFIXES_MAX:
            self._prefixes.clear()
        prefix = pack_headers(((SCHEME_HEADER, scheme),)) + b"\0\0\0"  # no checksum, no arg1
        self._prefixes[scheme] = prefix
        return prefix

    def _answer_large(self, call_id: int, answer: Answer, scheme: str, checksum_type: int) -> None:
        size = len(answer.arg2) + len(answer.arg3)
        if size > self._limits.message_bytes_max:
            message = f"the answer has {size} bytes, more than {self._limits.message_bytes_max}"
            # The caller would otherwise wait for its time-out. The handler has run, hence this
            # code.
            self._queue.put(error_frame(call_id, ErrorCode.UNEXPECTED, message))
            return
        headers = pack_headers(((SCHEME_HEADER, scheme),))
        fields = bytes((not answer.ok,)) + bytes(TRACING_BYTES) + headers
        kinds = (CALL_RES, frames.CALL_RES_CONTINUE)
        arguments = (b"", answer.arg2, answer.arg3)
        for raw in frames_of(kinds, call_id, fields, arguments, checksum_type):
            self._queue.put(raw)
