"""Fingerprints of rows: they tell whether what is sent again under one name is the same rows.

A fingerprint depends on the values of all rows, and neither on their order nor on the batches in
which they come, as both may be others when rows are computed anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import xxhash

from ringpop_py.state.rows.hashes import hashes_of
from ringpop_py.state.rows.packed import offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

MASK: Final = (1 << 63) - 1
"""Fingerprints have 63 bits, so that they fit wherever whole numbers do."""
_PRIME: Final = np.uint64(0x9E3779B185EBCA87)
_NULL: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(29)
_WORD_BITS: Final = 64


def fingerprint(rows: pa.RecordBatch, *, floats: bool = True) -> int:
    """Return a number that depends on all *rows*.

    Args:
        floats: whether floating-point numbers count; sums may differ in their last digits if they
            are computed anew.
    """
    columns = [_hashes(column, floats=floats) for column in rows.columns]
    hashes = _combined(rows.schema.names, columns, rows.num_rows)
    return int(np.add.reduce(hashes)) & MASK  # which wraps around


def quick_hashes(rows: pa.RecordBatch, keys: Hashes) -> Hashes:
    """Return a number for each of *rows*, for a tenth of what a `fingerprint` costs.

    It depends on *keys*, a hash of each row's key, and on whole numbers, dates and times of at most
    64 bits; on no other column. All its upper bits depend on all of these.
    """
    hashes = keys * _PRIME
    for column in rows.columns:
        kind = column.type
        is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
        if pa.types.is_integer(kind) or is_time:
            hashes = (hashes ^ _hashes(column, floats=False)) * _PRIME
    return hashes


def added(fingerprints: Iterable[int]) -> int:
    """Return the fingerprint of all rows, from those of some."""
    return sum(fingerprints) & MASK


def _combined(names: Iterable[str], columns: Iterable[Hashes], count: int) -> Hashes:
    hashes = np.zeros(count, np.uint64)
    for name, column in zip(names, columns, strict=True):
        hashes = _mixed((hashes ^ column) + np.uint64(xxhash.xxh64_intdigest(name.encode())))
    return hashes


def _mixed(hashes: Hashes) -> Hashes:
    for _ in range(2):  # so that each bit of a column affects all bits, and order counts
        hashes = hashes * _PRIME
        hashes ^= hashes >> _SHIFT
    return hashes


def _hashes(column: pa.Array, *, floats: bool) -> Hashes:
    """Return a number for each value in *column*, on which no other value has an effect."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    types, kind = pa.types, column.type
    found: Hashes
    if types.is_null(kind):
        return np.full(len(column), _NULL)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [_hashes(each, floats=floats) for each in column.flatten()]
        found = _combined(names, fields, len(column))
    elif kind.num_fields:
        found = _of_lists(column, floats=floats)
    elif types.is_floating(kind):
        if not floats:
            return np.zeros(len(column), np.uint64)
        reals = _reals(column.cast(pa.float64())) + 0.0  # -0.0 becomes 0.0
        reals[np.isnan(reals)] = np.nan
        found = reals.view(np.uint64)
    else:
        found = _of_plain(column)
    found = found + _PRIME  # so that zeros do not vanish
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _reals(column: pa.Array) -> NDArray[np.float64]:
    """Return the values of *column*, with 0 for NULL."""
    found: NDArray[np.float64] = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    return found


def _of_plain(column: pa.Array) -> Hashes:
    types, kind = pa.types, column.type
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_temporal(kind) and kind.bit_width <= _WORD_BITS:
        column = column.view(pa.int32() if kind.bit_width < _WORD_BITS else pa.int64())
    if types.is_integer(column.type):
        whole: NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False)
        return whole.astype(np.int64).view(np.uint64)
    if types.is_decimal(kind) or types.is_interval(kind):
        column = column.view(pa.binary(kind.bit_width // 8))
    octets = column.cast(pa.large_binary())
    return hashes_of(offsets_of(octets), octets.buffers()[2] or b"")


def _of_lists(column: pa.Array, *, floats: bool) -> Hashes:
    kind, count = column.type, len(column)
    if pa.types.is_fixed_size_list(kind):
        edges = (np.arange(count + 1) + column.offset) * kind.list_size
    else:
        edges = column.offsets.to_numpy().astype(np.int64)
    first, last = int(edges[0]), int(edges[-1])
    if pa.types.is_map(kind):  # whose entries have no order
        parts = [each.slice(first, last - first) for each in (column.keys, column.items)]
        items = _combined("kv", [_hashes(each, floats=floats) for each in parts], last - first)
    else:
        items = _hashes(column.values.slice(first, last - first), floats=floats)
        starts = np.repeat(edges[:-1], np.diff(edges))
        items = _mixed(items ^ ((np.arange(first, last) - starts).astype(np.uint64) * _PRIME))
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum(items, out=sums[1:])
    edges = edges - first
    found: Hashes = sums[edges[1:]] - sums[edges[:-1]] + np.diff(edges).astype(np.uint64)
    return found
