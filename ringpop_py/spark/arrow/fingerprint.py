"""Fingerprints of rows as they are kept: they tell whether a repeated job has the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ringpop_py.spark.arrow.stored import stored_column
from ringpop_py.state.rows import fingerprint as of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable


def fingerprint(rows: pa.RecordBatch) -> int:
    """Return a number that depends on all *rows*, but not on their order.

    Raises: as `ringpop_py.spark.arrow.stored.stored_column`.
    """
    names = rows.schema.names
    columns = [stored_column(rows.column(name), name) for name in names]
    return of_rows.fingerprint(pa.RecordBatch.from_arrays(columns, names))


def added(fingerprints: Iterable[int]) -> int:
    """Return the fingerprint of all rows, from those of some."""
    return of_rows.added(fingerprints)
