"""Arrow data from outside: the one place where it is opened.

Arrow believes what a batch says of itself. An offset that is too large reads memory that is not the
batch's own, a few compressed bytes unpack to any amount of memory, and so does a list of a billion
nulls, which has no bytes at all. So a batch is returned only after all of it was checked, and if it
is not larger than what came.

Rules for this file: nothing else in the product opens Arrow data or validates it, and
`ringpop_py.base.values.inflate` alone unpacks compressed data. `tests/base/values/test_arrow.py`
reads the source, and says so.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ringpop_py.base.errors import BodyError

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS_MAX: Final = 16_384
"""The most columns of a schema, those within others included; a schema with more is refused."""
FREE_ROWS_MAX: Final = 1 << 20
"""A batch may have so many rows whatever its size, and beyond that one for each of its bits."""
_FAULTS: Final = (
    *(pa.ArrowException, ValueError, OSError, EOFError, MemoryError, OverflowError),
    *(struct.error, TypeError, KeyError),
)
"""What pyarrow raises for data that it cannot read."""

Bytes = bytes | bytearray | memoryview
T = TypeVar("T", pa.Array, pa.ChunkedArray, pa.Table)


class ArrowStream(NamedTuple):
    """A stream of Arrow: its schema, and its batches, which are read one after the other.

    The iterator raises BodyError at a batch that cannot be believed.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def schema_in(data: Bytes) -> pa.Schema:
    """Return the schema that *data* describes, as the message that begins a stream.

    Raises:
        BodyError: if *data* is no schema, has a type of which values can be larger than their
            bytes, or more than `FIELDS_MAX` columns.
    """
    with _reading("schema"):
        return _plain(pa.ipc.read_schema(pa.py_buffer(data)))


def batch_in(data: Bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of *schema* in *data*, which is one message. Its columns are views of it.

    Raises:
        BodyError: if *data* is not such a batch, is compressed, or describes more than it has.
    """
    with _reading("batch"):
        return _checked(pa.ipc.read_message(pa.py_buffer(data)), schema)


def known_batch_in(data: Bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch in *data*, which `batch_in` returned before, and a checksum has kept since.

    Raises:
        BodyError: if *data* is not a batch of *schema*.
    """
    with _reading("batch"):
        return pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(data)), schema)


def stream_in(data: Bytes | pa.Buffer | pa.NativeFile) -> ArrowStream:
    """Return what the stream *data* has; the batches are views of it.

    Raises:
        BodyError: as `schema_in`; the batches as `batch_in`.
    """
    source = data if isinstance(data, pa.NativeFile | pa.Buffer) else pa.py_buffer(data)
    with _reading("stream"):
        messages = pa.ipc.MessageReader.open_stream(source)
        first = next(iter(messages), None)
        if first is None or first.type != "schema":
            raise BodyError("a stream of Arrow begins with its schema")
        schema = _plain(pa.ipc.read_schema(first))
    return ArrowStream(schema, _batches(messages, schema))


def table_in(data: Bytes | pa.Buffer | pa.NativeFile) -> pa.Table:
    """Return all rows of the stream *data*. Raises BodyError, as `stream_in`."""
    schema, batches = stream_in(data)
    return pa.Table.from_batches(list(batches), schema)


def sound(data: T) -> T:
    """Return *data*, which was made or changed by others, after all of it was checked.

    Raises:
        BodyError: if it cannot be believed, such as for text that is not UTF-8.
    """
    try:
        data.validate(full=True)
    except _FAULTS as error:
        raise BodyError(str(error)) from None
    return data


def is_plain(kind: pa.DataType) -> bool:
    """Return whether values of *kind* have bytes of their own each, in a batch without its schema.

    Dictionaries, unions, views and runs refer to bytes that other values refer to as well: a short
    batch of them may stand for any amount of memory. So may lists of items that have no bytes.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return is_plain(kind.storage_type)
    if any(
        refers(kind)
        for refers in (
            *(types.is_dictionary, types.is_union, types.is_run_end_encoded),
            *(types.is_string_view, types.is_binary_view),
            *(types.is_list_view, types.is_large_list_view),
        )
    ):
        return False
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    if not types.is_struct(kind) and any(map(_is_empty, inner)):
        return False
    return all(map(is_plain, inner))


def _is_empty(kind: pa.DataType) -> bool:
    """Return whether values of *kind* take no bytes, however many there are."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _is_empty(kind.storage_type)
    if types.is_struct(kind):
        return all(_is_empty(kind.field(place).type) for place in range(kind.num_fields))
    if types.is_fixed_size_list(kind):
        return kind.list_size == 0 or _is_empty(kind.value_type)
    if types.is_fixed_size_binary(kind):
        return kind.byte_width == 0  # type: ignore[no-any-return] # pyarrow has no types
    return types.is_null(kind)  # type: ignore[no-any-return] # as above


def _plain(schema: pa.Schema) -> pa.Schema:
    names, waiting = list[str](), list(schema)
    while waiting and len(names) < FIELDS_MAX:
        field = waiting.pop()
        names.append(field.name)  # decodes it, and fails if it is not UTF-8
        inner = [field.type.field(place) for place in range(field.type.num_fields)]
        if pa.types.is_struct(field.type) and len({each.name for each in inner}) < len(inner):
            raise BodyError(f"column {field.name!r} has two fields of one name")
        waiting += inner
    if waiting:
        raise BodyError(f"a schema has at most {FIELDS_MAX} columns, inner ones included")
    for field in schema:
        if not is_plain(field.type):
            raise BodyError(
                f"column {field.name!r} is of type {field.type}, of which a value may be larger"
                " than its bytes: cast it to its plain values"
            )
    for kind in schema.types:
        pa.nulls(0, kind).validate()  # fails for types that cannot be: lists of a negative length
    return schema


def _batches(messages: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - pyarrow has no types
    with _reading("batch"):
        for message in messages:
            yield _checked(message, schema)


def _checked(message: Any, schema: pa.Schema) -> pa.RecordBatch:  # noqa: ANN401 - as above
    if message.type != "record batch":
        raise BodyError(f"a batch of rows is expected, not a {message.type}")
    if _is_compressed(message.metadata.to_pybytes()):
        raise BodyError("compressed batches are not accepted: write them without compression")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate()
    for column in batch.columns:
        _as_bytes_if_ascii(column).validate(full=True)
    size = len(message.body) if message.body is not None else 0
    if batch.nbytes > size or batch.num_rows > max(FREE_ROWS_MAX, 8 * size):
        raise BodyError(f"{batch.num_rows} rows of {batch.nbytes} bytes are in {size} bytes")
    return batch


def _as_bytes_if_ascii(column: pa.Array) -> pa.Array:
    """Return *column*, as bytes if it has texts in ASCII: that is UTF-8 wherever it is cut.

    To see that takes a thirtieth of the time of validating each text.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        data = column.buffers()[2]
        if not data or np.frombuffer(data, np.int8).min() >= 0:
            return column.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    return column


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turn what pyarrow raises for data that it cannot read into a BodyError."""
    try:
        yield
    except _FAULTS as error:
        text = str(error).partition("\n")[0][:200]
        raise BodyError(f"not a sound {what} of Arrow: {type(error).__name__}: {text}") from None


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the record batch described by *metadata* is compressed.

    pyarrow can tell only after unpacking it. In the FlatBuffers of Arrow's format,
    ``Message.header`` is field 2 and ``RecordBatch.compression`` is field 3.
    """
    (message,) = struct.unpack_from("<I", metadata)
    header = _flat_field(metadata, message, 2)
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _flat_field(metadata, header + offset, 3) != 0


def _flat_field(data: bytes, table: int, index: int) -> int:
    # The position of a field of the FlatBuffers table at *table*; 0 if the field is not set.
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", data, vtable)
    slot = 4 + 2 * index
    if slot >= vtable_bytes:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + slot)
    return table + offset if offset else 0
