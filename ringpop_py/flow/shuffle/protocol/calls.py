"""The messages of shuffles: calls and replies, each with a head and a body.

A message is a fixed part (`FIXED`), a head in msgpack, and a body of bytes: rows, or files. Replies
name the call that they answer, and come in any order.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, Literal

from ringpop_py.base import errors
from ringpop_py.base.errors import BodyError, ShuffleError, ShuffleIncomplete, ShuffleRefused
from ringpop_py.base.values.declared import (
    Checksum,
    Declared,
    Meta,
    Natural,
    Text,
    decode,
    encode,
)
from ringpop_py.flow.shuffle.protocol.messages import Query, Report
from ringpop_py.flow.shuffle.protocol.record import Record, Winner

FIXED: Final = struct.Struct("<4sQIQ")
"""Magic, the number of the call, bytes of the head, bytes of the body."""
MAGIC: Final = b"RSH1"
HEAD_BYTES_MAX: Final = 16 * 1024 * 1024
SMALL_HEAD_BYTES: Final = 64 * 1024
"""The most bytes of most heads; only those in `_LARGE` may be longer."""
PIECE_BYTES: Final = 64 * 1024
"""What a head announces gets memory in pieces: of this size at first, then twice as much."""
BODY_PIECE_BYTES: Final = 2 * 1024 * 1024
"""The first piece of a body that is held in memory: few are longer."""
BODY_BYTES_MAX: Final = 1 << 40
"""The most bytes of a body; a file's body is not held in memory."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of a body that is held in memory."""
NAME_CHARACTERS_MAX: Final = 200
INTERVALS_MAX: Final = 4_096
ATTEMPTS_AT_A_TIME_MAX: Final = 100_000
"""The most numbers of attempts that are taken at a time; there are 2^32."""


Durability = Literal["replica", "store"]


class Definition(Declared, frozen=True):
    """The properties of a shuffle, as its creator asks for them.

    Attributes:
        schema: of the rows, as Arrow writes it.
        by: the key columns.
        keep_keys_together: whether all rows of a key are in one interval.
        seed: of a random order; clients draw the key of each row from it.
        durability: where the second copy of each frame lies: at a ``"replica"``, or in the
            ``"store"``.
    """

    schema: bytes
    by: tuple[Text, ...]
    keep_keys_together: bool = False
    seed: Natural | None = None
    durability: Durability = "replica"


class _OfShuffle(Declared, frozen=True):
    name: Text


class _OfOne(_OfShuffle, frozen=True):
    uid: Natural  # of the shuffle that is meant, of all that have had that name


class _AtVersion(_OfOne, frozen=True):
    version: Natural  # of the record that the caller goes by


# Calls of clients.


class Create(_OfShuffle, frozen=True, tag=True):
    """Create a shuffle, unless there is one with this definition."""

    definition: Definition
    interval_count: Natural

    def check(self) -> None:
        """Check its name and numbers. Raises ShuffleRefused."""
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX or not self.name.isprintable():
            raise ShuffleRefused(
                f"a shuffle's name is 1 to {NAME_CHARACTERS_MAX} printable characters, "
                f"not {self.name[:100]!r}"
            )
        if not 0 < self.interval_count <= INTERVALS_MAX:
            raise ShuffleRefused(
                f"a shuffle has 1 to {INTERVALS_MAX} intervals, not {self.interval_count}"
            )


class Describe(_OfShuffle, frozen=True, tag=True):
    """Ask for the record, and for the addresses of its members."""


class List(Declared, frozen=True, tag=True):
    """Ask for the records of all shuffles."""


class TakeAttempts(_OfOne, frozen=True, tag=True):
    """Ask for numbers of attempts."""

    count: Annotated[int, Meta(ge=1, le=ATTEMPTS_AT_A_TIME_MAX)]


class Put(_OfOne, frozen=True, tag=True):
    """Put the frame in the body."""


class Commit(_OfOne, frozen=True, tag=True):
    """Let the attempts of a batch of a stream count when the shuffle ends; each batch once.

    Attributes:
        fingerprint: of the rows of all these attempts.
    """

    stream: Text
    batch: Natural
    winners: dict[int, Winner]
    fingerprint: Natural


class End(_OfOne, frozen=True, tag=True):
    """End the shuffle with these attempts, and those of batches that were committed.

    The reply comes when the record says so.
    """

    winners: dict[int, Winner]


class Delete(_OfOne, frozen=True, tag=True):
    """Delete the shuffle; the reply comes when the record says so."""


class Get(_AtVersion, frozen=True, tag=True):
    """Ask for an interval, by the version of the record that the caller goes by."""

    interval: Natural


class Feed(_AtVersion, frozen=True, tag=True):
    """Have the holder of an interval put its rows into another shuffle, in a random order.

    Attributes:
        target, target_uid, attempt: where they are put.
    """

    interval: Natural
    target: Text
    target_uid: Natural
    attempt: Natural


class Count(_OfShuffle, frozen=True, tag=True):
    """Ask a member for its progress."""


# Calls of members.


class Append(_AtVersion, frozen=True, tag=True):
    """Add the frame in the body to a segment."""

    segment: Natural


class Ask(_OfShuffle, frozen=True, tag=True):
    """Ask a member what it has."""

    query: Query


class FetchSegment(_AtVersion, frozen=True, tag=True):
    """Ask for the file of a segment."""

    segment: Natural


class FetchInterval(_AtVersion, frozen=True, tag=True):
    """Ask for the file of an interval."""

    interval: Natural


class PushPart(_AtVersion, frozen=True, tag=True):
    """Bring a part of what a segment has of an interval.

    Attributes:
        push: tells pushes of the same slice from each other.
        frames: of which frames the rows in the body are, and how many of each.
    """

    interval: Natural
    segment: Natural
    push: Natural
    frames: tuple[tuple[Natural, Natural, Natural], ...]


class PushEnd(_AtVersion, frozen=True, tag=True):
    """Say that all parts of a push have come. A push may have no parts."""

    interval: Natural
    segment: Natural
    push: Natural


Call = (
    Create
    | Describe
    | List
    | TakeAttempts
    | Put
    | Commit
    | End
    | Delete
    | Get
    | Feed
    | Count
    | Append
    | Ask
    | FetchSegment
    | FetchInterval
    | PushPart
    | PushEnd
)

OF_MEMBERS: Final = (Append, Ask, FetchSegment, FetchInterval, PushPart, PushEnd)
"""Calls that change or show what one member has alone; a client has no use for them."""


# Replies.


class Said(Declared, frozen=True, tag=True):
    """An `Answer`, by its value.

    Attributes:
        number: the version of the record that the member goes by; or the first number of attempts.
    """

    answer: Natural
    number: Natural = 0


class Told(Declared, frozen=True, tag=True):
    """The report of a member; None if the process that was asked is not a member."""

    report: Report | None


class Described(Declared, frozen=True, tag=True):
    """A record, and where its members and others can be reached, by host."""

    name: Text
    record: Record
    addresses: dict[str, Text]


class Listed(Declared, frozen=True, tag=True):
    """All shuffles."""

    shuffles: tuple[Described, ...]


class File(Declared, frozen=True, tag=True):
    """The body is a file.

    Attributes:
        rows, checksum, totals: of an interval.
    """

    rows: Natural = 0
    checksum: Checksum = 0
    totals: dict[int, Natural] = {}  # noqa: RUF012 - msgspec copies an empty default


class Fed(Declared, frozen=True, tag=True):
    """The receipt of an attempt."""

    frames: Natural
    rows: Natural


class Counted(Declared, frozen=True, tag=True):
    """The progress of a member.

    Attributes:
        rows, size_bytes: of the frames that clients have put there, whether they count or not.
        held_bytes: of all its files of this shuffle.
        merged: how many of the intervals that it owns, or is the replica of, it has.
        finished: the receipts of attempts whose last frame it has.
    """

    rows: Natural
    size_bytes: Natural
    held_bytes: Natural
    merged: Natural
    finished: dict[int, Winner] = {}  # noqa: RUF012 - msgspec copies an empty default


class Failed(Declared, frozen=True, tag=True):
    """An error: the code of its class, its text, and the attempts that it names."""

    code: Text
    text: Text
    attempts: tuple[Natural, ...] = ()


_ERRORS: Final[dict[str, type[ShuffleError]]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ShuffleError)
}


def error_of(failed: Failed) -> ShuffleError:
    """Return the error that a process has answered with."""
    kind = _ERRORS.get(failed.code, ShuffleError)
    if kind is ShuffleIncomplete:
        return ShuffleIncomplete(failed.text, attempts=failed.attempts)
    return kind(failed.text)


Reply = Said | Told | Described | Listed | File | Fed | Counted | Failed

# A schema, attempts or frames, and as replies what is said of these. A head begins with its tag.
_LARGE: Final = tuple(
    encode(kind.__name__)
    for kind in (Create, Commit, End, PushPart, Told, Described, Listed, File, Counted, Failed)
)


def packed_head(number: int, head: Call | Reply, body_bytes: int) -> bytes:
    """Return all of a message but its body."""
    packed = encode(head)
    if len(packed) > HEAD_BYTES_MAX:
        raise BodyError(f"a {type(head).__name__} of {len(packed)} bytes is too long to be sent")
    return FIXED.pack(MAGIC, number, len(packed), body_bytes) + packed


def fixed_part(data: bytes | bytearray) -> tuple[int, int, int]:
    """Return the number of the call, and the bytes of its head and of its body.

    Raises:
        BodyError: if *data* is not the beginning of a message.
    """
    magic, number, head_bytes, body_bytes = FIXED.unpack(data)
    if magic != MAGIC:
        raise BodyError("this is not a message of a shuffle")
    if head_bytes > HEAD_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        raise BodyError(f"a message of {head_bytes} and {body_bytes} bytes is too long")
    return number, head_bytes, body_bytes


def check_may_be_large(beginning: bytes | bytearray) -> None:
    """Raise BodyError if a head with this *beginning* has at most `SMALL_HEAD_BYTES`."""
    if not beginning[1:].startswith(_LARGE):
        raise BodyError(f"a head of its kind has at most {SMALL_HEAD_BYTES} bytes")


def next_piece(came_bytes: int, size: int) -> int:
    """Return for how many more bytes of *size* there is memory once *came_bytes* have come."""
    return min(size - came_bytes, came_bytes)


def call_in(head: bytes) -> Call:
    """Return the call in *head*. Raises BodyError."""
    return decode(Call, head)  # type: ignore[arg-type] # a union


def reply_in(head: bytes) -> Reply:
    """Return the reply in *head*. Raises BodyError."""
    return decode(Reply, head)  # type: ignore[arg-type]
