"""Frames made of tables: cut, sorted, summed up; in a random order with keys that are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ringpop_py.base.errors import BodyError, ShuffleRefused
from ringpop_py.flow.shuffle.protocol.record import Winner
from ringpop_py.flow.shuffle.sorting.cuts import check_points, points_of
from ringpop_py.flow.shuffle.sorting.frames import (
    FRAME_BYTES_MAX,
    FRAME_ROWS_MAX,
    Frame,
    entry_of,
    packed,
    unpacked,
)
from ringpop_py.flow.shuffle.sorting.order import RANDOM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.flow.shuffle.sorting.order import Order

FRAME_BYTES: Final = 4 * 1024 * 1024
"""About the bytes of each frame that a table is cut into."""
FED_BYTES: Final = 16 * 1024 * 1024
"""The bytes of an interval that are put into another shuffle at a time."""
FRAMES_MAX: Final = 1 << 20
"""The most frames of an attempt."""
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)


def entries_of(order: Order, table: pa.Table, attempt: int, first: int) -> Iterator[bytes]:
    """Return *table* as `frames_of`, each as it lies in a file. Raises as that."""
    return map(entry_of, frames_of(order, table, attempt, first))


def frames_of(order: Order, table: pa.Table, attempt: int, first: int) -> Iterator[Frame]:
    """Return *table* as frames of *attempt*, of which *first* were made before.

    Raises:
        ShuffleRefused: if a row is too long, or there are too many frames.
    """
    number = first
    for part in _cut(table):
        for frame in _frames(order, part, attempt, number):
            yield frame
            number += 1


def _frames(order: Order, table: pa.Table, attempt: int, number: int) -> list[Frame]:
    """Return *table* as one frame, or as several if it is too long for one."""
    if number >= FRAMES_MAX:
        raise ShuffleRefused(f"attempt {attempt} has {FRAMES_MAX} frames: use more attempts")
    in_order = order.sorted(table)
    body = packed(in_order)
    rows = table.num_rows
    if len(body) <= FRAME_BYTES_MAX:
        points = packed(points_of(order, in_order, (attempt, number)))
        return [Frame((attempt, number), rows, points, body)]
    if rows == 1:
        raise ShuffleRefused(
            f"a row of {len(body)} bytes is too long: at most {FRAME_BYTES_MAX} bytes"
        )
    some = _frames(order, table.slice(0, rows // 2), attempt, number)
    return some + _frames(order, table.slice(rows // 2), attempt, number + len(some))


def last_frame_of(attempt: int, frames: int, rows: int) -> Frame:
    """Return the frame that says that *attempt* consists of so many frames and rows."""
    return Frame((attempt, frames), 0, b"", b"", Winner(frames, rows))


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    """Cut *table* into parts of about `FRAME_BYTES`."""
    count = max(1, -(-table.nbytes // FRAME_BYTES), -(-table.num_rows // FRAME_ROWS_MAX))
    rows = max(1, -(-table.num_rows // count))
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)


def check_frame(order: Order | None, frame: Frame) -> None:
    """Check all of *frame*, which came from outside, before it is kept or passed on.

    Args:
        order: that of its shuffle, whose record was read.

    Raises:
        ShuffleRefused: if its rows or keys cannot be believed, or it says something else of them.
    """
    assert order is not None
    try:
        fault = _fault_in(order, frame)
    except BodyError as error:
        fault = str(error)
    if fault:
        raise ShuffleRefused(f"frame {frame.id} is refused: {fault}")


def _fault_in(order: Order, frame: Frame) -> str:
    """Return what is wrong with *frame*, or nothing. Raises BodyError."""
    if (frame.receipt is not None) == bool(frame.rows or frame.body or frame.points):
        return "it has rows, or is the last of its attempt: not both"
    if frame.receipt is not None:
        return ""
    check_points(order, frame.points)
    rows = unpacked(frame.body, order.schema).num_rows
    return "" if rows == frame.rows else f"it has {rows} rows, not {frame.rows}"


def with_random_keys(table: pa.Table, seed: int, part: int, first: int) -> pa.Table:
    """Return *table* with the keys of a random order; *first* is the number of its first row.

    They seem to be drawn, and are the same each time for one *seed*, *part* and row.
    """
    # Mixed one after the other: a sum of both would give one seed the keys of the next one's rows.
    begin = np.full(1, seed % (1 << 64), dtype=np.uint64)
    begin = _mixed(_mixed(begin) + np.uint64(part % (1 << 64)))
    rows = np.arange(first + 1, first + table.num_rows + 1, dtype=np.uint64)
    return table.append_column(RANDOM, pa.array(_mixed(rows * _GAMMA + begin)))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers that seem to be drawn, one for each of *numbers* (the end of SplitMix64)."""
    numbers = numbers + _GAMMA
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    drawn: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return drawn


def next_entries(
    batches: Iterator[pa.RecordBatch],
    order: Order,
    seed_and_part: tuple[int, int],
    attempt: int,
    frames: int,
    rows: int,
) -> tuple[list[bytes], int]:
    """Return the next rows as frames in a random order, and how many rows; nothing at the end.

    Args:
        frames: how many of them *attempt* has already.
        rows: as *frames*.

    Raises:
        ShuffleRefused: see `entries_of`.
    """
    taken, size = [], 0
    while size < FED_BYTES and (batch := next(batches, None)) is not None:
        taken.append(batch)
        size += batch.nbytes
    if not taken:
        return [], 0
    table = with_random_keys(pa.Table.from_batches(taken), *seed_and_part, rows)
    return list(entries_of(order, table, attempt, frames)), table.num_rows
