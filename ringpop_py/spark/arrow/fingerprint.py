"""Fingerprints of rows: they tell whether a job repeated under its name has the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import xxhash

from ringpop_py.columns.packed import offsets_of, pack_column
from ringpop_py.placing.hashes import hashes_of
from ringpop_py.spark.arrow.stored import stored_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_MASK: Final = (1 << 64) - 1
_PRIME: Final = np.uint64(0x9E3779B185EBCA87)
_NULL: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(29)


def fingerprint(rows: pa.RecordBatch) -> int:
    """Return a number of 64 bits that depends on all *rows*, but not on their order.

    Raises: as `ringpop_py.spark.arrow.stored.stored_column`.
    """
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in rows.schema.names:
        hashes ^= _hashes(stored_column(rows.column(name), name))
        hashes += np.uint64(xxhash.xxh64_intdigest(name.encode()))
        for _ in range(2):  # so that each bit of a column affects all bits, and order counts
            hashes *= _PRIME
            hashes ^= hashes >> _SHIFT
    return int(np.add.reduce(hashes))  # which wraps around


def added(fingerprints: Iterable[int]) -> int:
    """Return the fingerprint of all rows, from those of some."""
    return sum(fingerprints) & _MASK


def _hashes(column: pa.Array) -> NDArray[np.uint64]:
    """Return a number for each value in *column*, which is in the form that is kept."""
    # A row's number depends on that row alone: the other rows of its batch must not matter.
    kind = column.type
    found: NDArray[np.uint64]
    if pa.types.is_float64(kind):
        reals = column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        reals[np.isnan(reals)] = np.nan
        found = reals.view(np.uint64)
    elif pa.types.is_integer(kind):
        found = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    elif pa.types.is_large_string(kind):
        texts = column.fill_null("")
        found = hashes_of(offsets_of(texts), texts.buffers()[2] or b"")
    else:
        packed = pack_column(column)
        return hashes_of(offsets_of(packed), packed.buffers()[2] or b"")
    found = found + _PRIME  # so that zeros do not vanish
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found
