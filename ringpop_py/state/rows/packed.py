"""Pack columns of Arrow as msgpack values, and unpack them: many rows in one call.

The bytes equal those of `values.encode_value`. Numbers and lengths are blocks
(`ringpop_py.base.values.bulk`); Arrow joins text and bytes with the blocks between them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.bulk import (
    BYTES,
    LIST,
    MAP,
    TEXT,
    Block,
    booleans,
    constant,
    doubles,
    heads,
    integers,
    joined,
)
from ringpop_py.state.table.due import INSTANT_BYTES, MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)

SLICE_ROWS: Final = 8_192
"""The rows packed at a time: their matrix should fit into a cache."""
NIL: Final = b"\xc0"
_ARRAY_32: Final = b"\xdd"
_Piece = Any
"""A `Block`, or an array of large_binary (a type that mypy does not know)."""


def pack_column(column: pa.Array) -> pa.LargeBinaryArray:
    """Pack each row of *column*; NULL is packed as None.

    The column is of null, bool, an integer, double, large_string, large_binary, or of large_list,
    struct or map (keys: large_string) of these.
    """
    slices = [
        _joined(_pieces(column.slice(start, SLICE_ROWS)))
        for start in range(0, len(column), SLICE_ROWS)
    ]
    if not slices:
        return pa.array([], pa.large_binary())
    return slices[0] if len(slices) == 1 else pa.concat_arrays(slices)


def pack_lists(*items: pa.LargeBinaryArray | pa.LargeBinaryScalar) -> pa.LargeBinaryArray:
    """Pack a list in each row of packed items; NULL if one is NULL. A scalar is in every row."""
    head = msgpack.Packer().pack_array_header(len(items))
    return _join(pa.scalar(head, pa.large_binary()), *items)


def pack_maps(fields: Mapping[str, pa.LargeBinaryArray], rows_count: int) -> pa.LargeBinaryArray:
    """Pack a map in each row, of packed *fields*, without those that are NULL in the row."""
    counts = np.zeros(rows_count, np.int64)
    columns = []
    for name, values in fields.items():
        entries = _join(pa.scalar(msgpack.packb(name), pa.large_binary()), values)
        counts += entries.is_valid().to_numpy(zero_copy_only=False)
        columns.append(entries.fill_null(b""))
    return _joined([heads(counts, MAP), *columns])


def stamp_column(packed: pa.LargeBinaryArray, at_ms: pa.Int64Array) -> pa.LargeBinaryArray:
    """Return each row of *packed* behind its instant, if that is not NULL; see `stamped`."""
    valid = at_ms.is_valid().to_numpy(zero_copy_only=False)
    stamps = np.empty((len(at_ms), INSTANT_BYTES), np.uint8)
    stamps[:, 0] = MARK[0]
    stamps[:, 1:] = (
        numbers_of(at_ms.fill_null(0), np.int64).astype(">i8").view(np.uint8).reshape(-1, 8)
    )
    offsets = np.concatenate([[0], np.cumsum(valid * INSTANT_BYTES)]).astype(np.int64)
    return _join(_column_of(offsets, stamps[valid].reshape(-1)), packed)


def unpack_column(packed: pa.LargeBinaryArray) -> list[Any]:
    """Return the values in *packed*, which has no NULL. Raises BodyError if one is malformed."""
    if not len(packed):
        return []
    offsets = offsets_of(packed)
    data = memoryview(packed.buffers()[2])[offsets[0] : offsets[-1]]
    try:
        values = msgpack.unpackb(b"".join([_ARRAY_32, len(packed).to_bytes(4, "big"), data]))
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise BodyError(f"not msgpack values: {type(error).__name__}") from None
    assert isinstance(values, list)
    return values


def _joined(pieces: Sequence[_Piece]) -> pa.LargeBinaryArray:
    columns: list[pa.LargeBinaryArray] = []
    for kind, group in groupby(pieces, type):
        together = list(group)
        columns += [_column_of(*joined(together))] if kind is Block else together
    if len(columns) == 1:
        return columns[0]
    return _join(*columns)


def _join(*columns: pa.LargeBinaryArray | pa.LargeBinaryScalar) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def _column_of(
    offsets: NDArray[np.int64], data: NDArray[np.uint8] | pa.Buffer
) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def offsets_of(column: pa.LargeBinaryArray) -> NDArray[np.int64]:
    """Return the start of each row in the data, and the end of the last one."""
    if not len(column):
        return np.zeros(1, np.int64)
    start = column.offset
    return np.frombuffer(column.buffers()[1], np.int64)[start : start + len(column) + 1]


# Pieces of each type.


def _pieces(column: pa.Array) -> list[_Piece]:
    kind = column.type
    if pa.types.is_struct(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        pieces = _nested(column)
        if not column.null_count:
            return pieces
        packed = _joined(pieces)  # NULL rows as well; they are replaced
        return [pc.if_else(column.is_valid(), packed, pa.scalar(NIL, pa.large_binary()))]
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if pa.types.is_null(kind):
        return [Block(np.full((len(column), 1), NIL[0], np.uint8))]
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        size = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        head = heads(size, TEXT if pa.types.is_large_string(kind) else BYTES)
        content = column.cast(pa.large_binary()).fill_null(b"")
        return [head.with_nil(nulls), content]
    if pa.types.is_boolean(kind):
        values = column.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
        block = booleans(values)
    elif pa.types.is_integer(kind):
        block = integers(column.fill_null(0).to_numpy(zero_copy_only=False))
    else:
        assert pa.types.is_float64(kind), kind
        block = doubles(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    return [block.with_nil(nulls)]


def _nested(column: pa.Array) -> list[_Piece]:
    kind, rows_count = column.type, len(column)
    if pa.types.is_struct(kind):
        head = msgpack.Packer().pack_map_header(kind.num_fields)
        pieces: list[_Piece] = [constant(head, rows_count)]
        for field, values in zip(kind, column.flatten(), strict=True):
            pieces += [constant(msgpack.packb(field.name), rows_count), *_pieces(values)]
        return pieces
    if pa.types.is_map(kind):
        form = MAP
        counts, keys, values = entries_of(column)
        items = _joined([*_pieces(keys), *_pieces(values)])
    else:
        form = LIST
        counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        items = pack_column(column.flatten())
    # The items of one list are next to each other already; only the cuts change.
    firsts = np.zeros(rows_count + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    return [heads(counts, form), _column_of(offsets_of(items)[firsts], items.buffers()[2])]


def entries_of(maps: pa.MapArray) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """Return how many entries each of *maps* has, and their keys and values."""
    # Arrow's own cast to lists returns corrupt lists if the maps are a slice with NULLs; flattening
    # these crashes the process.
    edges = maps.offsets.to_numpy().astype(np.int64)
    counts = np.diff(edges)
    first, last = int(edges[0]), int(edges[-1])
    keys, values = (each.slice(first, last - first) for each in (maps.keys, maps.items))
    if maps.null_count:
        valid = maps.is_valid().to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(np.repeat(valid, counts))
        counts[~valid] = 0
        if len(kept) < last - first:
            keys, values = keys.take(pa.array(kept)), values.take(pa.array(kept))
    return counts, keys, values


# Between Arrow and NumPy, without pandas. When pyarrow converts implicitly (`pyarrow.array`,
# `to_numpy`, scalars), it imports pandas if that is installed: a quarter of a second, which each of
# Spark's workers would spend before its first row.


def numbers_of(array: pa.Array, dtype: type[N]) -> NDArray[N]:
    """Return the numbers in *array*, without NULL, of the width of *dtype*; not a copy."""
    assert not array.null_count
    values = array.buffers()[1]
    if not len(array) or values is None:
        return np.empty(0, dtype)
    assert array.type.bit_width == np.dtype(dtype).itemsize * 8
    return np.frombuffer(values, dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def array_of(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return *numbers*, of the width of *kind*, as an array; not a copy if contiguous."""
    assert kind.bit_width == numbers.dtype.itemsize * 8
    values = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, values])


def places_of_valid(array: pa.Array) -> NDArray[np.intp]:
    """Return the places at which *array* is not NULL."""
    valid = array.is_valid()
    bits = np.frombuffer(valid.buffers()[1], np.uint8)
    end = valid.offset + len(valid)
    return np.flatnonzero(np.unpackbits(bits, count=end, bitorder="little")[valid.offset :])


def binary_of(value: bytes) -> pa.Array:
    """Return an array of *value* alone."""
    offsets = pa.py_buffer(np.array([0, len(value)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(value)])
