"""A task of `ringpop_py.spark.source.lookups.lookup`: it asks the state for the keys of its rows.

Rules for this file: see `ringpop_py.spark.tasks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ringpop_py.spark.arrow.columns import gathered, unpack_rows
from ringpop_py.spark.keys import key_texts
from ringpop_py.spark.source.reader import KeyspaceReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringpop_py.spark.options import ReadOptions

GATHERED_ROWS: Final = 65_536
GATHERED_BYTES: Final = 16 << 20
"""Of rows whose keys are asked for together: each partition that has some costs a look."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Adds to rows what a keyspace has of their keys.

    Attributes:
        columns: what is added; NULL where a key, or that column of its value, is not there.
    """

    options: ReadOptions
    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches*, with further columns."""
        with KeyspaceReader(self.options.target, stale=self.options.stale) as reader:
            for some in gathered(batches, GATHERED_ROWS, GATHERED_BYTES):
                yield from self._joined(reader, some)

    def _joined(
        self, reader: KeyspaceReader, batches: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        keys = [
            key_texts(batch.column(self.options.key)).cast(pa.large_string()) for batch in batches
        ]
        encoded = pa.concat_arrays(keys).dictionary_encode()
        distinct = encoded.dictionary
        values = unpack_rows(
            distinct, reader.read(distinct), self.columns, key=None, value=self.options.value
        )
        first = 0
        for batch in batches:
            places = encoded.indices.slice(first, batch.num_rows)
            first += batch.num_rows
            found = [column.take(places) for column in values.columns]
            fields = [*batch.schema, *self.columns]
            yield pa.record_batch([*batch.columns, *found], schema=pa.schema(fields))
