"""How the three arguments of a message are cut into frames, and joined again.

A frame says how much of an argument it holds. An argument is complete when more data follows it
in the same frame. If it ends exactly at a frame's end, the next frame begins with 0 bytes of it.

Rules for this file: what a peer may make us hold is counted here (`Assembly`, `Budget`); what to
do at the limits is decided in `inbound` and `outbound`.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final, TypeVar

from ringpop_py.net.wire import checksums
from ringpop_py.net.wire.frames import (
    FRAME_BYTES_MAX,
    FRAME_HEAD_BYTES,
    MORE_FRAGMENTS,
    Cursor,
    frame,
    malformed,
    u16,
    u32,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ARGUMENTS: Final = 3
SIZE_BYTES: Final = 2
"""How many bytes the size of an argument takes in a frame."""

PREFIXES_MAX: Final = 256
"""How many heads of calls, or of answers, one end keeps; at the limit, all are forgotten."""

EMPTY_SIZES: Final = 2 * SIZE_BYTES
INLINE_BYTES_MAX: Final = FRAME_BYTES_MAX - EMPTY_SIZES
"""How many bytes a frame may have without the sizes of arg2 and arg3."""

Arguments = tuple[bytes, bytes, bytes]
_Bytes = TypeVar("_Bytes", bytes, memoryview)


def cut(arguments: Sequence[_Bytes], room_first: int, room: int) -> Iterator[list[_Bytes]]:
    """Yield the pieces of *arguments* for each frame in turn; *room* counts sizes and bytes."""
    assert room >= 2 * SIZE_BYTES, "the end of one argument and the start of the next must fit"
    pieces: list[_Bytes] = []
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
            # If no further size fits behind an argument, it ends with a size of 0 in the next
            # frame, unless it is the last: then the message ends here.
            if start == len(argument) and (left >= SIZE_BYTES or is_last):
                break
    yield pieces


def pack_pieces(
    pieces: Sequence[bytes | memoryview], checksum_type: int, value: int
) -> tuple[list[bytes | memoryview], int]:
    """Return the end of a frame, from its checksum type on, in parts, and the checksum after it."""
    checksum = checksums.checksum_of_type(checksum_type)
    parts: list[bytes | memoryview] = []
    for piece in pieces:
        if checksum_type:
            value = checksum(bytes(piece), value)
        parts += (u16(len(piece)), piece)
    stamp = u32(value) if checksum_type else b""
    return [bytes((checksum_type,)), stamp, *parts], value


def frames_of(
    kinds: tuple[int, int], call_id: int, fields: bytes, arguments: Arguments, checksum_type: int
) -> Iterator[bytes]:
    """Yield the frames of a message: one of the first of *kinds*, then those that continue it.

    Args:
        fields: what the first frame has between its flags and its checksum type.
    """
    # Behind the head stand the flags, the type of the checksum, and the checksum, if there is one.
    room = FRAME_BYTES_MAX - FRAME_HEAD_BYTES - 2 - (4 if checksum_type else 0)
    # Views: what is large is copied once, into its frame.
    cuts = list(cut([memoryview(each) for each in arguments], room - len(fields), room))
    kind, value = kinds[0], 0
    for count, pieces in enumerate(cuts, start=1):
        flags = b"\1" if count < len(cuts) else b"\0"
        end, value = pack_pieces(pieces, checksum_type, value)
        yield frame(kind, call_id, flags, fields, *end)
        kind, fields = kinds[1], b""  # continue frames have neither ttl nor headers


def first_end(data: bytes, start: int) -> int:
    """Return where arg1 ends if its size stands at *start*."""
    return start + SIZE_BYTES + int.from_bytes(data[start : start + SIZE_BYTES], "big")


class Budget:
    """How many bytes of unfinished messages may be held; all connections of a node share one."""

    __slots__ = ("bytes_max", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, count: int) -> bool:
        """Count *count* bytes as held; return False, and count nothing, if there is no room."""
        if self.used_bytes + count > self.bytes_max:
            return False
        self.used_bytes += count
        return True

    def give(self, count: int) -> None:
        """Count *count* bytes as free again."""
        self.used_bytes -= count
        assert self.used_bytes >= 0


class TooLarge(Exception):
    """A message is larger than its limit, or there is no room for it now. Only it is refused."""


class ChecksumMismatch(Exception):
    """The arguments are not those that were sent. Only this message is refused."""


class Assembly:
    """One message whose fragments are still arriving; it holds only bytes that have arrived.

    Attributes:
        checksum_type: of the first fragment; all others have the same.
        held_bytes: how much of the budget it uses.
    """

    def __init__(self, checksum_type: int, bytes_max: int, budget: Budget) -> None:
        self.checksum_type = checksum_type
        self.held_bytes = 0
        self._checksum = checksums.checksum_of_type(checksum_type)
        self._value = 0
        self._arguments: list[bytes] = []
        self._current = BytesIO()  # which grows as bytes arrive, and is not copied at the end
        self._bytes_max = bytes_max
        self._budget = budget

    def feed(self, cursor: Cursor, *, more: int) -> Arguments | None:
        """Take the rest of a frame; return the arguments, or None if *more* frames follow.

        The budget is given back when the message ends, also by an error.

        Raises:
            WireError: the message is malformed.
            TooLarge: it is larger than its limit, or there is no room now.
            ChecksumMismatch: the bytes are not those that were sent.
        """
        over = True
        try:
            self.add(cursor)
            over = not more
            return self.finish() if over else None
        finally:
            if over:
                self.release()

    def resume(self, cursor: Cursor) -> int:
        """Take the head of the next frame; return whether more follow. Raises WireError."""
        more = cursor.u8() & MORE_FRAGMENTS
        if cursor.u8() != self.checksum_type:
            malformed("the checksum type changes between fragments")
        return more

    def add(self, cursor: Cursor) -> None:
        """Take the rest of a frame after its checksum type; raises as `feed` does."""
        expected = cursor.u32() if self.checksum_type else 0
        first = True
        while cursor.position < cursor.stop:
            if not first:
                self._complete_argument()
            first = False
            piece = cursor.bytes2()
            if self.held_bytes + len(piece) > self._bytes_max:
                raise TooLarge(f"a message has more than {self._bytes_max} bytes")
            # Counted as bytes arrive, not as a head claims: claims alone would use the budget up.
            if not self._budget.take(len(piece)):
                raise TooLarge(f"unfinished messages hold {self._budget.bytes_max} bytes already")
            self.held_bytes += len(piece)
            self._current.write(piece)
            self._value = self._checksum(piece, self._value)
        if self._value != expected:
            raise ChecksumMismatch

    def finish(self) -> Arguments:
        """Return the three arguments of the complete message. Raises WireError for fewer."""
        self._complete_argument()
        if len(self._arguments) != ARGUMENTS:
            malformed(f"a message has {ARGUMENTS} arguments, not {len(self._arguments)}")
        arg1, arg2, arg3 = self._arguments
        return arg1, arg2, arg3

    def release(self) -> None:
        """Give the budget back."""
        self._budget.give(self.held_bytes)
        self.held_bytes = 0

    def _complete_argument(self) -> None:
        if len(self._arguments) == ARGUMENTS:
            malformed(f"a message has {ARGUMENTS} arguments, and this one has more")
        self._arguments.append(self._current.getvalue())
        self._current = BytesIO()
