"""The messages between members of a shuffle, and the duties of a member."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ringpop_py.base.values.declared import Checksum, Declared, Natural
from ringpop_py.flow.shuffle.protocol.record import MemberId, Winner

FrameId = tuple[int, int]
"""A frame of rows: the number of its attempt, and its place in that, from 0 on."""


class Answer(Enum):
    """The answer to a put or a get; the value is its status in HTTP."""

    OK = 200
    MOVED = 400
    """The caller goes by another version of the record, or this member is not a holder."""
    ENDED = 409
    DELETED = 410
    LOST = 500
    """No member holds the interval any longer."""
    NOT_NOW = 503
    """Try later, or at another member."""


class Store(NamedTuple):
    """What a put asks of the driver: that the frame is added to *segment*, here and at *replica*.

    When both have it, the driver asks `ShuffleMember.stored` whether that may be acknowledged.
    """

    segment: int
    replica: MemberId


class Query(Declared, frozen=True):
    """Asks all members what they have, before the record is changed.

    Attributes:
        round: grows whenever earlier reports no longer prove anything.
        with_frames: whether the frames are asked for, which an end needs.
    """

    uid: Natural
    version: Natural
    round: Natural
    with_frames: bool = False


class Report(Declared, frozen=True):
    """The answer to a `Query`.

    Attributes:
        copied: segments that this member was to fetch, and has.
        frames: by attempt, ranges of the frames held in segments of which it is a holder.
        finished: by attempt, the receipt that came with its last frame.
        summary: of the keys held, from which cuts are made; the protocol does not read it.
        files: by interval, rows and checksum of what it has as owner, replica, or to be either.
        totals: by attempt, the rows in all intervals that it owns.
    """

    member: MemberId
    uid: Natural
    version: Natural
    round: Natural
    copied: tuple[Natural, ...] = ()
    frames: dict[int, tuple[tuple[Natural, Natural], ...]] | None = None
    finished: dict[int, Winner] = {}  # noqa: RUF012 - msgspec copies an empty default
    summary: bytes = b""
    files: dict[int, tuple[Natural, Checksum]] = {}  # noqa: RUF012
    totals: dict[int, Natural] = {}  # noqa: RUF012


class Held(NamedTuple):
    """A merged interval on disk.

    Attributes:
        totals: by attempt, its rows in the interval.
    """

    rows: int
    checksum: int
    totals: dict[int, int]


# Duties. Each names the life of its member: what a former life has begun ends without consequence.


class CopySegment(NamedTuple):
    """Fetch a closed segment, whole, from *source*; the result is a `Copied`."""

    life: int
    number: int
    source: MemberId


class Push(NamedTuple):
    """Send what segment *number* has of an interval to its owner; the result is None."""

    life: int
    interval: int
    number: int
    to: MemberId


class Merge(NamedTuple):
    """Merge all slices of an interval into a file; the result is a `Held`."""

    life: int
    interval: int
    segments: tuple[int, ...]


class CopyInterval(NamedTuple):
    """Fetch the file of an interval from *source*; the result is a `Held`."""

    life: int
    interval: int
    source: MemberId


Duty = CopySegment | Push | Merge | CopyInterval


class Copied(NamedTuple):
    """The content of a segment that was fetched: its frames, and receipts by attempt."""

    frames: frozenset[FrameId]
    finished: dict[int, Winner]


# What a member asks of its driver when the record changes. Each is carried out where it stands.


class Forget(NamedTuple):
    """Delete all files of life *life*; a new life has begun."""

    life: int


class HeldFiles(NamedTuple):
    """The files of these segments, slices and intervals; as a change: they are to be deleted."""

    segments: tuple[int, ...] = ()
    slices: tuple[tuple[int, int], ...] = ()
    intervals: tuple[int, ...] = ()


Change = Forget | HeldFiles
