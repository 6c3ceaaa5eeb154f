"""TChannel v2 frames: their fields as constants, how to read them in pieces, how to build them.

A frame is ``size:2 type:1 reserved:1 id:4 reserved:8 payload``, and *size* counts the sixteen
bytes of the header, too. Rules for this file: nothing here depends on the state of a connection. A
reader holds at most the bytes of one unfinished frame, and reserves nothing that a peer announces.
"""

from __future__ import annotations

import itertools
import struct
from enum import IntEnum
from typing import Final, NoReturn

from ringpop_py.base.errors import WireError

FRAME_HEAD_BYTES: Final = 16
FRAME_BYTES_MAX: Final = 65_535
VERSION: Final = 2
TRACING_BYTES: Final = 25
SHORT_TEXT_BYTES_MAX: Final = 255
"""The most that a length of one byte can count: service names, keys and values of headers."""

ERROR_MESSAGE_BYTES_MAX: Final = 1_024
"""The longest explanation in an error frame, in bytes; longer ones are cut."""

NO_ID: Final = 0xFFFF_FFFF
"""The id of an error frame that belongs to no call."""

ID_MAX: Final = 0xFFFF_FFFE
TTL_MS_MAX: Final = 0xFFFF_FFFF

INIT_REQ: Final = 0x01
INIT_RES: Final = 0x02
CALL_REQ: Final = 0x03
CALL_RES: Final = 0x04
CALL_REQ_CONTINUE: Final = 0x13
CALL_RES_CONTINUE: Final = 0x14
CANCEL: Final = 0xC0
CLAIM: Final = 0xC1
PING_REQ: Final = 0xD0
PING_RES: Final = 0xD1
ERROR: Final = 0xFF

MORE_FRAGMENTS: Final = 0x01
"""The one flag: the message goes on in a continue frame."""


class ErrorCode(IntEnum):
    """Why a call, or the connection, failed; see `outbound.call_error` for their meaning."""

    TIMEOUT = 0x01
    CANCELLED = 0x02
    BUSY = 0x03
    DECLINED = 0x04
    UNEXPECTED = 0x05
    BAD_REQUEST = 0x06
    NETWORK = 0x07
    UNHEALTHY = 0x08
    FATAL = 0xFF


HEAD: Final = struct.Struct(">HBxI8x")  # the reserved bytes are skipped, and sent as 0
CALL_HEAD: Final = struct.Struct(f">HBxI8xBI{TRACING_BYTES}x")
"""A frame's head, then a call's flags, ttl and (empty) tracing."""

ANSWER_HEAD: Final = struct.Struct(f">HBxI8xBB{TRACING_BYTES}x")
"""A frame's head, then an answer's flags, code and (empty) tracing."""

_CANCEL: Final = struct.Struct(f">I{TRACING_BYTES}xH")
_ERROR: Final = struct.Struct(f">B{TRACING_BYTES}xH")

u16 = struct.Struct(">H").pack
u32 = struct.Struct(">I").pack


def malformed(why: str) -> NoReturn:
    """Raise WireError: a peer has broken the protocol, and *why* says how."""
    raise WireError(why)


FrameSpan = tuple[int, int, int, int]
"""One whole frame in the bytes that `FrameReader.feed` returned: its type, its id, and where its
payload starts and stops. A plain tuple, because one is made for each frame."""


class FrameReader:
    """Finds whole frames in a stream of bytes that arrives in pieces of any size.

    Attributes:
        frame_count: how many whole frames have arrived.
        partial: whether a frame has begun and not ended.
    """

    __slots__ = ("_rest", "frame_count", "partial")

    def __init__(self) -> None:
        self._rest = b""
        self.frame_count = 0
        self.partial = False

    def feed(self, data: bytes) -> tuple[bytes, list[FrameSpan]]:
        """Return the bytes to look at, and the whole frames in them, in order.

        Raises:
            WireError: if a frame claims to be smaller than its own head. The frames before
                it are lost: the connection ends anyway.
        """
        if self._rest:
            data = self._rest + data
        spans: list[FrameSpan] = []
        start, end = 0, len(data)
        unpack = HEAD.unpack_from
        while end - start >= FRAME_HEAD_BYTES:
            size, kind, frame_id = unpack(data, start)
            if size < FRAME_HEAD_BYTES:
                malformed(f"a frame cannot have {size} bytes")
            if size > end - start:  # the rest has not arrived yet
                break
            stop = start + size
            spans.append((kind, frame_id, start + FRAME_HEAD_BYTES, stop))
            start = stop
        self._rest = data[start:]
        self.partial = start < end
        self.frame_count += len(spans)
        return data, spans


class FrameQueue:
    """Frames that are to be sent, in order.

    Attributes:
        chunks: what has not been taken yet; callers that append to it add to *byte_count*.
        byte_count: how many bytes were ever queued.
    """

    __slots__ = ("byte_count", "chunks")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.byte_count = 0

    def put(self, raw: bytes) -> None:
        """Queue one frame."""
        self.chunks.append(raw)
        self.byte_count += len(raw)

    def take(self) -> bytes:
        """Return all that is queued, in order, and forget it."""
        chunks = self.chunks
        if len(chunks) == 1:
            return chunks.pop()  # the most frequent case, without a copy
        data = b"".join(chunks)
        chunks.clear()
        return data

    def take_piece(self) -> bytes:
        """Return the first frames, as many as fit into `FRAME_BYTES_MAX`, and forget them.

        The frames of a large message come one by one, without a copy.
        """
        ends = itertools.accumulate(map(len, self.chunks))
        count = len([*itertools.takewhile(lambda end: end <= FRAME_BYTES_MAX, ends)])
        data = b"".join(self.chunks[:count])  # of one: that same one
        del self.chunks[:count]
        return data


class Cursor:
    """Reads the fields of one payload, and never beyond its end."""

    __slots__ = ("_data", "position", "stop")

    def __init__(self, data: bytes, start: int, stop: int) -> None:
        self._data = data
        self.position = start
        self.stop = stop

    def take(self, count: int) -> bytes:
        """Return the next *count* bytes. Raises WireError if the payload has fewer."""
        start = self.position
        if count > self.stop - start:
            malformed("a frame ends in the middle of a field")
        self.position = start + count
        return self._data[start : self.position]

    def u8(self) -> int:
        """Return a number of one byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Return a number of two bytes."""
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        """Return a number of four bytes."""
        return int.from_bytes(self.take(4), "big")

    def text1(self) -> str:
        """Return text after its length in one byte."""
        return decode(self.take(self.u8()))

    def bytes2(self) -> bytes:
        """Return bytes after their length in two bytes."""
        return self.take(self.u16())

    def text2(self) -> str:
        """Return text after its length in two bytes."""
        return decode(self.bytes2())


def decode(raw: bytes) -> str:
    """Return text from a peer. Raises WireError if *raw* is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise WireError("a name in a frame is not UTF-8") from None


def frame(kind: int, frame_id: int, *payload: bytes | memoryview) -> bytes:
    """Return one frame; the parts of its *payload* must fit."""
    size = FRAME_HEAD_BYTES + sum(map(len, payload))
    assert size <= FRAME_BYTES_MAX, "the builder must fragment or refuse before"
    return b"".join((HEAD.pack(size, kind, frame_id), *payload))


def error_frame(frame_id: int, code: int, message: str) -> bytes:
    """Return an error for the call *frame_id*, or for the connection (`NO_ID`)."""
    raw = _explanation(message)
    return frame(ERROR, frame_id, _ERROR.pack(code, len(raw)) + raw)


def cancel_frame(frame_id: int, ttl_ms: int, why: str) -> bytes:
    """Return a request to stop working on the call *frame_id*."""
    raw = _explanation(why)
    return frame(CANCEL, frame_id, _CANCEL.pack(ttl_ms, len(raw)) + raw)


def _explanation(text: str) -> bytes:
    raw = text.encode("utf-8", "replace")[:ERROR_MESSAGE_BYTES_MAX]
    return raw.decode("utf-8", "ignore").encode()  # the cut may have split a character
