"""What rows are, as one number: whether a job that comes again under its name has the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ringpop_py.columns.packed import offsets_of, pack_column
from ringpop_py.placing.hashes import hashes_of
from ringpop_py.spark.arrow.stored import stored_column

if TYPE_CHECKING:
    from collections.abc import Iterable

_MASK: Final = (1 << 64) - 1


def fingerprint(rows: pa.RecordBatch) -> int:
    """Return a number of 64 bits that all *rows* have a part in, and their order none.

    Raises: as `ringpop_py.spark.arrow.stored.stored_column`.
    """
    if not rows.num_rows or not rows.num_columns:
        return 0
    names = rows.schema.names
    columns = [stored_column(rows.column(name), name) for name in names]
    packed = pack_column(pa.StructArray.from_arrays(columns, names=names))
    hashes = hashes_of(offsets_of(packed), packed.buffers()[2])
    return int(np.add.reduce(hashes))  # which wraps around


def added(fingerprints: Iterable[int]) -> int:
    """Return the fingerprint of all rows, from those of some."""
    return sum(fingerprints) & _MASK
