"""Calls and answers as values, and how their three arguments are cut into frames and joined.

A message is arg1 (the endpoint), arg2 and arg3. A frame says how much of an argument it holds;
an argument is complete when more data follows it in the same frame, or, where it ended exactly
at a frame's end, when the next frame begins with nothing for it.

Rules for this file: pure values and arithmetic; what a peer may make us hold is counted here
(`Assembly`, `Budget`), what to do about it is decided in `connection`.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ringpop_py.errors import WireError
from ringpop_py.wire import checksums
from ringpop_py.wire.frames import (
    SHORT_TEXT_BYTES_MAX,
    TTL_MS_MAX,
    Cursor,
    decode,
    u16,
    u32,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.config.settings import WireLimits

ARGUMENTS: Final = 3
SIZE_BYTES: Final = 2
"""What the size of an argument takes in a frame."""

ENDPOINT_BYTES_MAX: Final = 16_384
SCHEME_HEADER: Final = "as"
CALLER_HEADER: Final = "cn"
SHARD_KEY_HEADER: Final = "sk"

KNOWN_HEADS_MAX: Final = 64
KNOWN_HEAD_BYTES_MAX: Final = 512
KNOWN_LENGTHS_MAX: Final = 4

Headers = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Call:
    """A request for one endpoint of one service. It is a value: nobody changes one.

    It is not frozen, because one is made for each call, and a frozen one takes three times as long.

    Attributes:
        arg2: application headers; *arg3*: the body; both as *scheme* says.
        ttl_s: how long an answer is of use.
        headers: transport headers besides the scheme and the caller's name.
        checksum_type: see `checksums`; the answer comes with the same.
    """

    service: str
    endpoint: str
    arg2: bytes = b""
    arg3: bytes = b""
    _: KW_ONLY
    ttl_s: float
    scheme: str = "msgpack"
    headers: Headers = ()
    checksum_type: int = checksums.NONE


class Answer(NamedTuple):
    """What a handler said. One is made for each call: a tuple, which is made fastest.

    Attributes:
        ok: whether the application calls it a success.
        scheme: of the arguments; empty: the one that was asked in.
    """

    ok: bool
    arg2: bytes = b""
    arg3: bytes = b""
    scheme: str = ""


class CallHead(NamedTuple):
    """What repeats from call to call, parsed."""

    service: str
    endpoint: str
    scheme: str
    headers: Mapping[str, str]


def ttl_ms(ttl_s: float) -> int:
    """The ttl field for what is left: never 0, which is a protocol error."""
    if not ttl_s * 1_000 < TTL_MS_MAX:  # also true for NaN
        return TTL_MS_MAX
    return max(1, math.ceil(ttl_s * 1_000))


_Head = TypeVar("_Head")


class KnownHeads(Generic[_Head]):
    """Parsed forms of what began earlier frames, found again by their very bytes.

    Equal bytes parse alike, so a hit needs no parsing at all. Bounded: full, it starts anew.
    """

    __slots__ = ("_heads", "_lengths")

    def __init__(self) -> None:
        self._heads: dict[bytes, _Head] = {}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, data: bytes, start: int) -> tuple[_Head, int] | None:
        """The head that stands at *start*, and where it ends."""
        for length in self._lengths:
            end = start + length
            head = self._heads.get(data[start:end])
            if head is not None:
                return head, end
        return None

    def add(self, raw: bytes, head: _Head) -> None:
        """Remember *raw*, if it is small enough to be worth it."""
        if len(raw) > KNOWN_HEAD_BYTES_MAX:
            return
        new_length = len(raw) not in self._lengths
        many_lengths = new_length and len(self._lengths) == KNOWN_LENGTHS_MAX
        if many_lengths or len(self._heads) == KNOWN_HEADS_MAX:
            self._heads.clear()
            self._lengths.clear()
            new_length = True
        self._heads[raw] = head
        if new_length:
            self._lengths.append(len(raw))


def read_headers(cursor: Cursor, limits: WireLimits) -> Mapping[str, str]:
    """The transport headers of a call or an answer.

    Raises:
        WireError: if there are too many, or a key is empty, too long, or there twice.
    """
    count = cursor.u8()
    if count > limits.headers_max:
        message = f"{count} headers are more than {limits.headers_max}"
        raise WireError(message)
    headers: dict[str, str] = {}
    for _ in range(count):
        size = cursor.u8()
        if not 0 < size <= limits.header_key_bytes_max:
            message = (
                f"the key of a header has 1 to {limits.header_key_bytes_max} bytes, not {size}"
            )
            raise WireError(message)
        key = decode(cursor.take(size))
        if key in headers:
            message = f"the header {key!r} is there twice"
            raise WireError(message)
        headers[key] = cursor.text1()
    return MappingProxyType(headers)


def pack_headers(headers: Headers) -> bytes:
    """The bytes of transport headers, with their number.

    Raises:
        WireError: if they do not fit the format (a name or value of more than 255 bytes).
    """
    parts = [bytes((len(headers),))]
    for key, value in headers:
        parts += (text1(key), text1(value))
    return b"".join(parts)


def text1(text: str) -> bytes:
    """Text after its length in one byte.

    Raises:
        WireError: if it is longer than such a length can say.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) > SHORT_TEXT_BYTES_MAX:
        message = f"a name of {len(raw)} bytes does not fit a frame"
        raise WireError(message)
    return bytes((len(raw),)) + raw


def cut(arguments: Sequence[bytes], room_first: int, room: int) -> Iterator[list[bytes]]:
    """The pieces of *arguments* for each frame in turn; *room* counts sizes and bytes."""
    assert room >= 2 * SIZE_BYTES, "the end of one argument and the start of the next must fit"
    pieces: list[bytes] = []
    left = room_first
    for index, argument in enumerate(arguments, start=1):
        is_last = index == len(arguments)
        start = 0
        while True:
            if left < SIZE_BYTES:
                yield pieces
                pieces, left = [], room
            piece = argument[start : start + left - SIZE_BYTES]
            pieces.append(piece)
            start += len(piece)
            left -= SIZE_BYTES + len(piece)
            # An argument that ends where no size fits any more ends with a size of 0 in the
            # next frame, unless it is the last: then the message ends here.
            if start == len(argument) and (left >= SIZE_BYTES or is_last):
                break
    yield pieces


def pack_pieces(pieces: Sequence[bytes], checksum_type: int, value: int) -> tuple[bytes, int]:
    """The end of a frame, from its checksum type on, and the running checksum after it."""
    checksum = checksums.checksum_of_type(checksum_type)
    parts: list[bytes] = []
    for piece in pieces:
        value = checksum(piece, value)
        parts += (u16(len(piece)), piece)
    stamp = u32(value) if checksum_type else b""
    return b"".join((bytes((checksum_type,)), stamp, *parts)), value


class Budget:
    """Bytes of unfinished messages that may be held; connections of one node share it."""

    __slots__ = ("bytes_max", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, count: int) -> bool:
        """Count *count* bytes as held, or say that there is no room."""
        if self.used_bytes + count > self.bytes_max:
            return False
        self.used_bytes += count
        return True

    def give(self, count: int) -> None:
        """Count *count* bytes as free again."""
        self.used_bytes -= count
        assert self.used_bytes >= 0


class TooLarge(Exception):
    """A message outgrew its limit, or there is no room for it now. Only that message ends."""


class ChecksumMismatch(Exception):
    """The arguments are not those that were sent. Only that message ends."""


class Assembly:
    """One message whose fragments are still arriving; holds only bytes that have come.

    Attributes:
        checksum_type: fixed by the first fragment.
        held_bytes: what it has taken from the budget.
    """

    __slots__ = (
        "_arguments",
        "_budget",
        "_bytes_max",
        "_checksum",
        "_current",
        "_value",
        "checksum_type",
        "held_bytes",
    )

    def __init__(self, checksum_type: int, bytes_max: int, budget: Budget) -> None:
        self.checksum_type = checksum_type
        self.held_bytes = 0
        self._checksum = checksums.checksum_of_type(checksum_type)
        self._value = 0
        self._arguments: list[bytes] = []
        self._current = bytearray()
        self._bytes_max = bytes_max
        self._budget = budget

    def add(self, cursor: Cursor) -> None:
        """Take the rest of a frame, from behind its checksum type.

        Raises:
            WireError: if the frame is malformed.
            TooLarge: if the message may not be as large as it is, or there is no room now.
            ChecksumMismatch: if the bytes are not those that were sent.
        """
        expected = cursor.u32() if self.checksum_type else 0
        first = True
        while not cursor.at_end:
            if not first:
                self._complete_argument()
            first = False
            piece = cursor.bytes2()
            self._hold(len(piece))
            self._current += piece
            self._value = self._checksum(piece, self._value)
        if self._value != expected:
            raise ChecksumMismatch

    def finish(self) -> tuple[bytes, bytes, bytes]:
        """The three arguments; the message is complete.

        Raises:
            WireError: if there are fewer.
        """
        self._complete_argument()
        if len(self._arguments) != ARGUMENTS:
            message = f"a message has {ARGUMENTS} arguments, not {len(self._arguments)}"
            raise WireError(message)
        arg1, arg2, arg3 = self._arguments
        return arg1, arg2, arg3

    def release(self) -> None:
        """Give the budget back; the message is delivered or dropped."""
        self._budget.give(self.held_bytes)
        self.held_bytes = 0

    def _complete_argument(self) -> None:
        if len(self._arguments) == ARGUMENTS:
            message = f"a message has {ARGUMENTS} arguments, and this one has more"
            raise WireError(message)
        self._arguments.append(bytes(self._current))
        self._current = bytearray()

    def _hold(self, count: int) -> None:
        if self.held_bytes + count > self._bytes_max:
            message = f"a message has more than {self._bytes_max} bytes"
            raise TooLarge(message)
        if not self._budget.take(count):
            message = f"unfinished messages hold {self._budget.bytes_max} bytes already"
            raise TooLarge(message)
        self.held_bytes += count
