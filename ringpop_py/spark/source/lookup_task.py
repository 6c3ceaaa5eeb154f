"""A task of `ringpop_py.spark.source.lookups.lookup`: it asks the state for the keys of its rows.

Rules for this file: see `ringpop_py.spark.tasks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ringpop_py.spark.arrow.columns import unpack_rows
from ringpop_py.spark.keys import key_texts
from ringpop_py.spark.source.reader import KeyspaceReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GATHERED_ROWS: Final = 65_536
GATHERED_BYTES: Final = 16 << 20
"""Of rows whose keys are asked for together: each partition that has some costs a look."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Adds to rows what a keyspace has of their keys.

    Attributes:
        columns: what is added; NULL where a key, or that column of its value, is not there.
        value: the column that a value is as a whole; None: values are maps of columns.
    """

    peers: tuple[str, ...]
    keyspace: str
    key: str
    columns: pa.Schema
    value: str | None
    direct: bool
    stale: bool
    timeout_s: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches*, with further columns."""
        with KeyspaceReader(
            self.peers,
            self.keyspace,
            direct=self.direct,
            stale=self.stale,
            timeout_s=self.timeout_s,
        ) as reader:
            for gathered in _gathered(batches):
                yield from self._joined(reader, gathered)

    def _joined(
        self, reader: KeyspaceReader, batches: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        keys = [key_texts(batch.column(self.key)).cast(pa.large_string()) for batch in batches]
        encoded = pa.concat_arrays(keys).dictionary_encode()
        distinct = encoded.dictionary
        values = unpack_rows(
            distinct, reader.read(distinct), self.columns, key=None, value=self.value
        )
        first = 0
        for batch in batches:
            places = encoded.indices.slice(first, batch.num_rows)
            first += batch.num_rows
            found = [column.take(places) for column in values.columns]
            fields = [*batch.schema, *self.columns]
            yield pa.record_batch([*batch.columns, *found], schema=pa.schema(fields))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """*batches*, several at a time."""
    gathered: list[pa.RecordBatch] = []
    rows_count = size_bytes = 0
    for batch in batches:
        gathered.append(batch)
        rows_count += batch.num_rows
        size_bytes += batch.nbytes
        if rows_count >= GATHERED_ROWS or size_bytes >= GATHERED_BYTES:
            yield gathered
            gathered, rows_count, size_bytes = [], 0, 0
    if gathered:
        yield gathered
