"""From frames to intervals: parts of segments, and the files into which owners merge them."""

from __future__ import annotations

import os
import struct
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import xxhash

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.arrow import stream_in
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.flow.shuffle.protocol.messages import FrameId, Held
from ringpop_py.flow.shuffle.sorting.cuts import cuts_of, points_of, slices_of
from ringpop_py.flow.shuffle.sorting.frames import packed, unpacked
from ringpop_py.flow.shuffle.sorting.order import RANDOM, Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ringpop_py.flow.shuffle.sorting.frames import Bytes


class Part(NamedTuple):
    """The rows of several frames of one segment in one interval.

    Attributes:
        frames: which they are, and how many rows of each.
        body: the rows, frame after frame, each in order.
    """

    frames: tuple[tuple[int, int, int], ...]
    body: Bytes


_HEAD: Final = struct.Struct("<IQ")
"""Bytes of the list of frames, and of the rows."""


def entry_of_part(part: Part) -> tuple[bytes, Bytes]:
    """Return *part* as it lies in a file, in two pieces."""
    frames = encode(part.frames)
    return _HEAD.pack(len(frames), len(part.body)) + frames, part.body


def parts_in(path: Path) -> Iterator[Part]:
    """Return the parts in the file at *path*; the file is empty if nothing was pushed.

    Raises:
        BodyError: if the file is damaged.
        OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            if len(head) < _HEAD.size:
                raise BodyError(f"{path.name} is cut off")
            frames_bytes, body_bytes = _HEAD.unpack(head)
            frames = decode(tuple[tuple[int, int, int], ...], file.read(frames_bytes))
            body = file.read(body_bytes)
            if len(body) < body_bytes:
                raise BodyError(f"{path.name} is cut off")
            yield Part(frames, body)


RUN_BYTES: Final = 32 * 1024 * 1024
"""The bytes of frames that are sliced together: the slices of one frame alone are small."""
FRAME_COST: Final = 1_024
"""The bytes of a frame besides its rows."""
BATCH_ROWS: Final = 65_536
"""The most rows of a batch in the file of an interval."""
READ_BYTES: Final = 1024 * 1024


def parts_of(
    order: Order,
    cuts: pa.Table,
    frames: Iterable[tuple[FrameId, pa.Table]],
    *,
    bytes_max: int = RUN_BYTES,
) -> Iterator[tuple[int, Part]]:
    """Return what *frames* have of each interval, in parts; *bytes_max* are cut together."""
    run: list[tuple[FrameId, pa.Table]] = []
    size = 0
    for frame in frames:
        run.append(frame)
        size += frame[1].nbytes + FRAME_COST
        if size >= min(bytes_max, RUN_BYTES):
            yield from _parts_of_run(order, cuts, run)
            run, size = [], 0
    if run:
        yield from _parts_of_run(order, cuts, run)


def _parts_of_run(
    order: Order, cuts: pa.Table, run: list[tuple[FrameId, pa.Table]]
) -> Iterator[tuple[int, Part]]:
    slices = [slices_of(order, cuts, table, frame) for frame, table in run]
    for interval in range(cuts.num_rows + 1):
        frames, tables = [], []
        for (frame, table), of_frame in zip(run, slices, strict=True):
            first, end = of_frame[interval]
            if end > first:
                frames.append((*frame, end - first))
                tables.append(table.slice(first, end - first))
        if tables:
            yield interval, Part(tuple(frames), packed(pa.concat_tables(tables)))


def merged(order: Order, parts: Iterable[Part]) -> tuple[pa.Table, dict[int, int]]:
    """Return the rows of *parts* in order, and how many each attempt has.

    A frame that is in two segments counts once.
    """
    pieces: dict[FrameId, pa.Table] = {}
    for frame, piece in _frames_in(order, parts):
        pieces.setdefault(frame, piece)
    totals: Counter[int] = Counter()
    for (attempt, _), piece in pieces.items():
        totals[attempt] += piece.num_rows
    # By frame, so that rows of equal keys are in the same order wherever this is done.
    tables = [pieces[frame] for frame in sorted(pieces)]
    return order.sorted(pa.concat_tables([order.schema.empty_table(), *tables])), dict(totals)


def write_interval(
    path: Path, order: Order, parts: Callable[[], Iterable[Part]], *, bytes_max: int = 1 << 62
) -> Held:
    """Merge *parts* into the file at *path*.

    Args:
        parts: makes the parts; it is called again if they are too many to be sorted in one piece.
        bytes_max: rows that take more are sorted one piece after the other.

    Raises:
        OSError: if files cannot be written or read.
        BodyError: if a part is damaged.
    """
    schema = order.schema
    if RANDOM in schema.names:
        schema = schema.remove(schema.get_field_index(RANDOM))
    totals: Counter[int] = Counter()
    rows = 0
    with pa.OSFile(os.fspath(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for some in _pieces(path, order, parts, bytes_max):
            table, of_attempts = merged(order, some)
            writer.write_table(table.select(schema.names), BATCH_ROWS)
            totals.update(of_attempts)
            rows += table.num_rows
    return Held(rows, checksum_of(path), dict(totals))


def _pieces(
    path: Path, order: Order, parts: Callable[[], Iterable[Part]], bytes_max: int
) -> Iterator[Iterable[Part]]:
    """Return *parts* as they are, or in files of rows that follow each other, next to *path*."""
    size = sum(len(part.body) for part in parts())
    if size <= bytes_max:
        yield parts()
        return
    points = [points_of(order, piece, frame) for frame, piece in _frames_in(order, parts())]
    count = -(-size // bytes_max)
    cuts = cuts_of(order, points, count, keep_keys_together=False)
    files = [path.with_name(f"{path.name}-{number}") for number in range(count)]
    try:
        for number, part in parts_of(order, cuts, _frames_in(order, parts()), bytes_max=bytes_max):
            with files[number].open("ab") as file:
                for piece in entry_of_part(part):
                    file.write(piece)
        for file_of in files:
            if file_of.exists():
                yield parts_in(file_of)
    finally:
        for file_of in files:
            file_of.unlink(missing_ok=True)


def _frames_in(order: Order, parts: Iterable[Part]) -> Iterator[tuple[FrameId, pa.Table]]:
    for part in parts:
        table = unpacked(part.body, order.schema)
        first = 0
        for attempt, sequence, rows in part.frames:
            yield (attempt, sequence), table.slice(first, rows)
            first += rows


def checksum_of(path: Path) -> int:
    """Return the checksum of a file. Raises OSError."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
    return digest.intdigest()


def batches_of(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the file at *path*, batch by batch.

    Raises:
        BodyError: if the file is damaged.
        OSError: if it cannot be read.
    """
    with pa.memory_map(os.fspath(path)) as file:
        yield from stream_in(file).batches
