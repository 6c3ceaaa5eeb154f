"""Rows as Arrow IPC, between workers: columns ``key``, ``time``, and ``value`` in msgpack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ringpop_py.base.errors import BadElement, BodyError
from ringpop_py.base.values.arrow import stream_in
from ringpop_py.base.values.packed import decode_value, make_packer
from ringpop_py.flow.dataflow.stage import ROW_BYTES_MAX, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("time", pa.int64()),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
BATCH_BYTES: Final = 2 << 20
"""The bytes of values at which a batch ends, with the row that brings them."""


class Packer:
    """Packs rows. It is used by one thread at a time."""

    def __init__(self) -> None:
        self._pack: Callable[[object], bytes] = make_packer()

    def pack(self, rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
        """Yield *rows* as batches of a bounded size. Raises ValueError for a value too large."""
        pack, values, start, size = self._pack, list[bytes](), 0, 0
        for row in rows:
            packed = pack(row.value)
            if len(packed) > ROW_BYTES_MAX:
                raise ValueError(f"a value has {len(packed)} bytes, of at most {ROW_BYTES_MAX}")
            values.append(packed)
            size += len(packed) + len(row.key)
            if size >= BATCH_BYTES:
                yield _batch(rows[start : start + len(values)], values)
                start, values, size = start + len(values), [], 0
        if values:
            yield _batch(rows[start:], values)


def _batch(rows: Sequence[Row], values: Sequence[bytes]) -> pa.RecordBatch:
    keys, times = [row.key for row in rows], [row.time for row in rows]
    arrays = [
        pa.array(column, field.type)
        for column, field in zip((keys, times, values), SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def body_of(batch: pa.RecordBatch) -> bytes:
    """Return *batch* as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def rows_in(body: bytes | pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch, which may be bytes of `body_of`.

    Raises:
        BadElement: *body* is anything else.
    """
    try:
        batches = stream_in(body).batches if isinstance(body, bytes) else [body]
        return [row for batch in batches for row in _rows_of(batch)]
    except BodyError as error:
        raise BadElement(f"records are not a valid Arrow batch: {error}") from None


def _rows_of(batch: pa.RecordBatch) -> list[Row]:
    if batch.schema != SCHEMA:
        raise BadElement(f"the columns of records are {SCHEMA}, not {batch.schema}")
    keys, times, values = (column.to_pylist() for column in batch.columns)
    return [
        Row(key, decode_value("msgpack", value), time)
        for key, time, value in zip(keys, times, values, strict=True)
    ]
