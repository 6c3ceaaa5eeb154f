"""Frames: rows in order on their way, and as they lie in the file of a segment."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import xxhash

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.arrow import batch_in, known_batch_in
from ringpop_py.flow.shuffle.protocol.record import Winner

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.protocol.messages import FrameId

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most bytes of a frame's rows, in Arrow's form; a client cuts its batches."""
FRAME_ROWS_MAX: Final = 1 << 20
_HEAD: Final = struct.Struct("<4sIIIIIBQ")
"""Magic, attempt, sequence, rows, bytes of points and of rows, whether it is the last, and the rows
of the attempt in that case; then a checksum of all."""
_CHECKSUM: Final = struct.Struct("<Q")
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size
_MAGIC: Final = b"RSF1"


Bytes = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """Rows of one attempt.

    Attributes:
        id: the number of the attempt, and the frame's place in it.
        rows: how many.
        points: keys that stand for them (`cuts.points_of`), as bytes.
        body: the rows in order, as bytes.
        receipt: what the attempt consists of, if this is its last frame, which has no rows. The
            frames before it are those with rows.
    """

    id: FrameId
    rows: int
    points: Bytes
    body: Bytes
    receipt: Winner | None = None


def packed(table: pa.Table) -> memoryview:
    """Return the rows of *table*, as one batch, without its schema."""
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return memoryview(batch.serialize())


def unpacked(body: Bytes, schema: pa.Schema, *, is_known: bool = False) -> pa.Table:
    """Return the rows in *body*, without copying them.

    Args:
        is_known: whether *body* is of a frame that `frame_builder.check_frame` has checked.

    Raises:
        BodyError: if *body* is not a batch of *schema*.
    """
    batch = known_batch_in(body, schema) if is_known else batch_in(body, schema)
    return pa.Table.from_batches([batch])


def entry_of(frame: Frame) -> bytes:
    """Return *frame* as it lies in a file, with a checksum."""
    return b"".join(pieces_of(frame))


def pieces_of(frame: Frame) -> tuple[bytes, Bytes]:
    """Return `entry_of` in two pieces, of which the second is its body: it is not copied."""
    total = 0 if frame.receipt is None else frame.receipt.rows
    head = _HEAD.pack(
        _MAGIC,
        *frame.id,
        frame.rows,
        len(frame.points),
        len(frame.body),
        frame.receipt is not None,
        total,
    )
    checksum = _checksum(head, frame.points, frame.body)
    return b"".join((head, checksum, frame.points)), frame.body


def _checksum(head: Bytes, points: Bytes, body: Bytes) -> bytes:
    digest = xxhash.xxh3_64(head)
    digest.update(points)
    digest.update(body)
    return _CHECKSUM.pack(digest.intdigest())


class Entry(NamedTuple):
    """The place of a frame in a file of frames.

    Attributes:
        offset: where its head begins.
    """

    id: FrameId
    rows: int
    receipt: Winner | None
    offset: int
    points_bytes: int
    body_bytes: int

    @property
    def end(self) -> int:
        """The offset of the next frame."""
        return self.offset + HEAD_BYTES + self.points_bytes + self.body_bytes


def entry_at(data: Bytes, offset: int, base: int = 0) -> Entry:
    """Return the frame whose head stands in *data* at *offset*, which is *base* bytes further on.

    Raises:
        BodyError: if no whole head of a frame is there.
    """
    if len(data) - offset < HEAD_BYTES:
        raise BodyError(f"{len(data) - offset} bytes are not the head of a frame")
    magic, attempt, sequence, rows, points, body, is_last, total = _HEAD.unpack_from(data, offset)
    if magic != _MAGIC or points + body > 2 * FRAME_BYTES_MAX or rows > FRAME_ROWS_MAX:
        raise BodyError("this is not the head of a frame")
    receipt = Winner(sequence, total) if is_last else None
    return Entry((attempt, sequence), rows, receipt, offset + base, points, body)


def frame_in(data: Bytes, entry: Entry) -> Frame:
    """Return the frame of which *data* is the whole entry.

    Raises:
        BodyError: if that is damaged.
    """
    view = memoryview(data)
    points = view[HEAD_BYTES : HEAD_BYTES + entry.points_bytes]
    body = view[HEAD_BYTES + entry.points_bytes :]
    checksum = view[_HEAD.size : HEAD_BYTES]
    if len(body) != entry.body_bytes or _checksum(view[: _HEAD.size], points, body) != checksum:
        raise BodyError(f"frame {entry.id} is damaged: its checksum does not fit")
    return Frame(entry.id, entry.rows, points, body, entry.receipt)


def whole_frame(data: Bytes) -> tuple[Entry, Frame]:
    """Return the frame that is all of *data*, and its entry. Raises BodyError if it is not one."""
    entry = entry_at(data, 0)
    if entry.end != len(data):
        raise BodyError("this is not one frame")
    return entry, frame_in(data, entry)
