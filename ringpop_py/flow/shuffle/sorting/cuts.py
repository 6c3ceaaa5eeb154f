"""Which keys cut a shuffle into intervals of equal size, and what of a frame is in which interval.

A cut is a key and a share: of the rows that have just that key, this share is below the cut. So one
key that many rows have is spread over several intervals. Which rows of a frame these are follows
from the frame alone, and is the same wherever it is computed.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ringpop_py.base.errors import BodyError
from ringpop_py.flow.shuffle.sorting.frames import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.flow.shuffle.sorting.frames import Bytes
    from ringpop_py.flow.shuffle.sorting.order import Order

POINTS_MAX: Final = 4_096
"""The most keys of a frame that sum it up, as far from each other as possible."""
SUMMARY_POINTS_MAX: Final = 16_384
"""The most keys that sum up all frames at a member."""
WEIGHT: Final = "__weight"
SHARE: Final = "__share"


def points_of(order: Order, table: pa.Table, frame: tuple[int, int]) -> pa.Table:
    """Return keys of *table*, the rows of *frame* in order, that each stand for equally many."""
    rows = table.num_rows
    count = min(rows, POINTS_MAX)
    # Of other frames, keys a bit further on: together they show more than each of them.
    offset = _fraction(frame)
    places = [int((number + offset) * rows / count) for number in range(count)]
    keys = table.select(order.by).take(pa.array(places, pa.int64()))
    return _weighted(keys, np.full(count, rows / max(count, 1)))


def summary_of(
    order: Order, points: Iterable[pa.Table], count: int = SUMMARY_POINTS_MAX
) -> pa.Table:
    """Return at most *count* keys that stand for as much as *points* do."""
    empty = _weighted(order.key_schema.empty_table(), np.empty(0))
    table = order.sorted(pa.concat_tables([empty, *points]))
    if table.num_rows <= count:
        return table
    sums = np.cumsum(table.column(WEIGHT).to_numpy())
    step = sums[-1] / count
    places = np.searchsorted(sums, (np.arange(count) + 0.5) * step)
    keys = table.select(order.by).take(pa.array(places))
    return _weighted(keys, np.full(count, step))


def check_points(order: Order, points: Bytes) -> None:
    """Check the keys that stand for the rows of a frame, as their sender packed them.

    Raises:
        BodyError: if they are not such keys, too many, or stand for no number of rows.
    """
    table = unpacked(points, order.key_schema.append(pa.field(WEIGHT, pa.float64())))
    weights = table.column(WEIGHT).to_numpy()
    if not 0 < len(weights) <= POINTS_MAX or not 0 < weights.min() <= weights.max() < inf:
        raise BodyError(f"{len(weights)} keys do not stand for the rows of a frame")


def _weighted(keys: pa.Table, weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Table:
    return keys.append_column(WEIGHT, pa.array(weights))


def cuts_of(
    order: Order, summaries: Iterable[pa.Table], count: int, *, keep_keys_together: bool
) -> pa.Table:
    """Return the cuts between *count* intervals of about equal size; no cuts if there are no rows.

    With *keep_keys_together*, all rows of a key are in one interval.
    """
    table = summary_of(order, summaries)
    schema = order.key_schema.append(pa.field(SHARE, pa.float64()))
    if not table.num_rows:
        return schema.empty_table()
    sums = np.cumsum(table.column(WEIGHT).to_numpy())
    targets = sums[-1] * np.arange(1, count) / count
    places = np.minimum(np.searchsorted(sums, targets, "right"), table.num_rows - 1)
    cuts = table.select(order.by).take(pa.array(places))
    shares = []
    for target, (first, end) in zip(targets, order.ranges(table, cuts), strict=True):
        below = sums[first - 1] if first else 0.0
        shares.append(0.0 if keep_keys_together else (target - below) / (sums[end - 1] - below))
    return cuts.append_column(SHARE, pa.array(shares, pa.float64())).cast(schema)


def even_cuts(order: Order, count: int) -> pa.Table:
    """Return the cuts between *count* intervals of a random order.

    They do not depend on the rows. So whatever was tried twice or failed in between, a row is in
    the same interval, at the same place.
    """
    keys = [number * (1 << 64) // count for number in range(1, count)]
    cuts = pa.table({order.by[0]: pa.array(keys, pa.uint64())})
    return cuts.append_column(SHARE, pa.array([0.0] * len(keys), pa.float64()))


def slices_of(
    order: Order, cuts: pa.Table, table: pa.Table, frame: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return, for each interval, which rows of *table* are in it: the first, and the end.

    Args:
        cuts: those of the shuffle.
        table: the rows of one frame, in order.
        frame: the id of the frame. Where all frames have a key once, it says on which side that is.
    """
    offset = _fraction(frame)
    ends = []
    for (first, end), share in zip(
        order.ranges(table, cuts), cuts.column(SHARE).to_pylist(), strict=True
    ):
        below = ceil(share * (end - first) - offset)
        ends.append(first + min(max(below, 0), end - first))
    return list(zip([0, *ends], [*ends, table.num_rows], strict=True))


def _fraction(frame: tuple[int, int]) -> float:
    """Return a number from 0 to 1 that differs from frame to frame, spread evenly."""
    attempt, sequence = frame
    mixed = (attempt * 0x9E3779B97F4A7C15 + sequence * 0xD1342543DE82EF95) % (1 << 64)
    mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9 % (1 << 64)
    return (mixed >> 11) / (1 << 53)
