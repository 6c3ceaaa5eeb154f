"""Calls and answers as values, their transport headers, and what a connection tells its owner.

Rules for this file: pure values and arithmetic; how arguments travel is in `fragments`. What is
made for each call is a struct, which is made fastest. The garbage collector does not look at these,
since they refer to nothing that could refer to them.
"""

from __future__ import annotations

from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ringpop_py.base.values.declared import Struct
from ringpop_py.net.wire import checksums
from ringpop_py.net.wire.frames import (
    FRAME_BYTES_MAX,
    SHORT_TEXT_BYTES_MAX,
    TTL_MS_MAX,
    Cursor,
    decode,
    malformed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.base.errors import CallError

NODE_SERVICE: Final = "ringpop"
CONTROL_PREFIXES: Final = ("/protocol/", "/admin/")
"""Requests for these endpoints of `NODE_SERVICE` are held to `WireLimits.control_bytes_max`."""

ENDPOINT_BYTES_MAX: Final = 16_384
SCHEME_HEADER: Final = "as"
CALLER_HEADER: Final = "cn"
SHARD_KEY_HEADER: Final = "sk"

KNOWN_HEADS_MAX: Final = 64
KNOWN_HEAD_BYTES_MAX: Final = 512
KNOWN_LENGTHS_MAX: Final = 4

Headers = tuple[tuple[str, str], ...]


class _Asked(Struct, frozen=True, gc=False):
    """What is asked of whom: the part of a `Call` that is given by position."""

    service: str
    endpoint: str
    arg2: bytes = b""
    arg3: bytes = b""


class Call(_Asked, kw_only=True, frozen=True, gc=False):
    """A request for one endpoint of one service.

    Attributes:
        arg2: application headers; *arg3*: the body; both encoded in *scheme*.
        ttl_s: how long an answer is of use.
        headers: transport headers besides the scheme and the caller's name.
        checksum_type: see `checksums`; the answer comes with the same.
        tracing: 25 bytes that say to which trace it belongs; empty if to none.
    """

    ttl_s: float
    scheme: str = "msgpack"
    headers: Headers = ()
    checksum_type: int = checksums.NONE
    tracing: bytes = b""


class Answer(Struct, frozen=True, gc=False):
    """The answer of a handler.

    Attributes:
        ok: whether the application considers it a success.
        scheme: of the arguments; empty for that of the call.
    """

    ok: bool
    arg2: bytes = b""
    arg3: bytes = b""
    scheme: str = ""


class CallHead(NamedTuple):
    """The part of a call that repeats from call to call, parsed."""

    service: str
    endpoint: str
    scheme: str
    headers: Mapping[str, str]


# Events: what the peer's bytes mean.


class Initialised(NamedTuple):
    """The init frames are exchanged; calls may go both ways."""

    host_port: str
    headers: Mapping[str, str]


class CallReceived(Struct, frozen=True, gc=False):
    """A call of the peer; answer with `Connection.send_answer` or `Connection.send_error`."""

    id: int
    head: CallHead
    arg2: bytes
    arg3: bytes
    ttl_ms: int
    checksum_type: int
    tracing: bytes = b""  # as that of a `Call`


class CallUnreadable(NamedTuple):
    """A call of the peer cannot be read; the peer was informed, so send nothing."""

    service: str
    why: str


class CancelReceived(NamedTuple):
    """The peer gave up its call *id*, and was informed that it ended; send nothing."""

    id: int
    why: str


class AnswerReceived(Struct, frozen=True, gc=False):
    """The answer to our call *id*."""

    id: int
    answer: Answer


class CallFailed(NamedTuple):
    """Our call *id* ended without an answer."""

    id: int
    error: CallError


class Ended(NamedTuple):
    """The connection is closed: one end refused the other, or the peer said why it closes.

    Attributes:
        refused: whether calls that still wait certainly did not run: one end refused the
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


# Headers and limits.


def ttl_ms(ttl_s: float) -> int:
    """Return the ttl field for *ttl_s*: never 0, which is a protocol error."""
    if not ttl_s * 1_000 < TTL_MS_MAX:  # also true for NaN
        return TTL_MS_MAX
    return ceil(ttl_s * 1_000) if ttl_s > 0 else 1


def request_bytes_max(service: str, endpoint: str, limits: WireLimits) -> int:
    """Return how many bytes the arguments of a request for *endpoint* may have."""
    control = service == NODE_SERVICE and endpoint.startswith(CONTROL_PREFIXES)
    return limits.control_bytes_max if control else limits.message_bytes_max


def recognises(limits: WireLimits) -> bool:
    """Return whether heads may be recognised: then no frame is checked against a smaller limit."""
    return min(limits.message_bytes_max, limits.control_bytes_max) >= FRAME_BYTES_MAX


_Head = TypeVar("_Head")


class KnownHeads(Generic[_Head]):
    """The parsed beginnings of earlier frames, by their bytes; at the limit, all are forgotten."""

    __slots__ = ("_heads", "_lengths")

    def __init__(self) -> None:
        self._heads: dict[bytes, _Head] = {}
        self._lengths: list[int] = []

    def find(self, data: bytes, start: int, stop: int) -> tuple[_Head, bytes, bytes] | None:
        """Return the head that stands at *start*, arg2 and arg3, if the frame has nothing else."""
        for length in self._lengths:  # few: heads of one service differ little in length
            end = start + length
            head = self._heads.get(data[start:end])
            if head is not None:
                # By hand instead of with a `Cursor`: this runs for each frame whose head is known.
                arg2_at = end + 2
                if arg2_at > stop:
                    return None
                arg3_size_at = arg2_at + (data[end] << 8 | data[end + 1])
                arg3_at = arg3_size_at + 2
                if arg3_at > stop:
                    return None
                if data[arg3_size_at] << 8 | data[arg3_size_at + 1] != stop - arg3_at:
                    return None
                return head, data[arg2_at:arg3_size_at], data[arg3_at:stop]
        return None

    def add(self, raw: bytes, head: _Head) -> None:
        """Remember *raw*, if it is small."""
        if len(raw) > KNOWN_HEAD_BYTES_MAX:
            return
        new_length = len(raw) not in self._lengths
        many_lengths = new_length and len(self._lengths) == KNOWN_LENGTHS_MAX  # each costs a search
        if many_lengths or len(self._heads) == KNOWN_HEADS_MAX:
            self._heads.clear()
            self._lengths.clear()
            new_length = True
        self._heads[raw] = head
        if new_length:
            self._lengths.append(len(raw))


def read_headers(cursor: Cursor, limits: WireLimits) -> Mapping[str, str]:
    """Return the transport headers of a call or an answer.

    Raises:
        WireError: there are too many, or a key is empty, too long, or there twice.
    """
    count = cursor.u8()
    if count > limits.headers_max:
        malformed(f"{count} headers are more than {limits.headers_max}")
    headers: dict[str, str] = {}
    for _ in range(count):
        size = cursor.u8()
        if not 0 < size <= limits.header_key_bytes_max:
            malformed(
                f"the key of a header has 1 to {limits.header_key_bytes_max} bytes, not {size}"
            )
        key = decode(cursor.take(size))
        if key in headers:
            malformed(f"the header {key!r} is there twice")
        headers[key] = cursor.text1()
    return MappingProxyType(headers)


def pack_headers(headers: Headers) -> bytes:
    """Return transport headers as bytes. Raises WireError for more than 255 bytes of one text."""
    parts = [bytes((len(headers),))]
    for key, value in headers:
        parts += (text1(key), text1(value))
    return b"".join(parts)


def text1(text: str) -> bytes:
    """Return *text* after its length in one byte. Raises WireError if it is too long for that."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > SHORT_TEXT_BYTES_MAX:
        malformed(f"a name of {len(raw)} bytes does not fit a frame")
    return bytes((len(raw),)) + raw
