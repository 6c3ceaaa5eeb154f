"""Pack columns of Arrow as msgpack values, and unpack them: many rows in one call.

The bytes equal those of `values.encode_value`. A matrix has a place for every byte that a row may
need, except for text and bytes themselves: Arrow joins these with the bytes between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.errors import BodyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)

SLICE_ROWS: Final = 8_192
"""The rows packed at a time: their matrix should fit into a cache."""
NIL: Final = b"\xc0"
_FALSE: Final = 0xC2
_DOUBLE: Final = 0xCB
_ARRAY_32: Final = b"\xdd"
_UINT_8_MAX: Final = 0xFF
_UINT_16_MAX: Final = 0xFFFF
# By the number of bytes that follow: the first bytes of integers, not negative and negative.
_UNSIGNED: Final = np.array([0, 0xCC, 0xCD, 0, 0xCE, 0, 0, 0, 0xCF], np.uint8)
_SIGNED: Final = np.array([0, 0xD0, 0xD1, 0, 0xD2, 0, 0, 0, 0xD3], np.uint8)


@dataclass(frozen=True, slots=True)
class _Lengths:
    short: int  # the first byte of a length in itself, up to *short_max*
    short_max: int
    after: NDArray[np.uint8]  # the first byte, by the number of length bytes that follow


_TEXT: Final = _Lengths(0xA0, 31, np.array([0, 0xD9, 0xDA, 0, 0xDB], np.uint8))
_BYTES: Final = _Lengths(0, -1, np.array([0, 0xC4, 0xC5, 0, 0xC6], np.uint8))
_LIST: Final = _Lengths(0x90, 15, np.array([0, 0, 0xDC, 0, 0xDD], np.uint8))
_MAP: Final = _Lengths(0x80, 15, np.array([0, 0, 0xDE, 0, 0xDF], np.uint8))


@dataclass(frozen=True, slots=True)
class _Block:
    rows: NDArray[np.uint8]
    keep: NDArray[np.bool_] | None = None  # the bytes that count; None: all of them


_Piece = Any
"""A `_Block`, or an array of large_binary (a type that mypy does not know)."""


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
    return _joined([_head(counts, _MAP), *columns])


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
        columns += [_as_column(together)] if kind is _Block else together
    if len(columns) == 1:
        return columns[0]
    return _join(*columns)


def _join(*columns: pa.LargeBinaryArray | pa.LargeBinaryScalar) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def _as_column(blocks: Sequence[_Block]) -> pa.LargeBinaryArray:
    rows = np.hstack([block.rows for block in blocks])
    if all(block.keep is None for block in blocks):
        offsets = np.arange(len(rows) + 1) * rows.shape[1]
        return _column_of(offsets, pa.py_buffer(rows.reshape(-1)))
    keep = np.hstack(
        [np.ones(each.rows.shape, np.bool_) if each.keep is None else each.keep for each in blocks]
    )
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(keep.view(np.uint8).sum(axis=1, dtype=np.int64), out=offsets[1:])
    data = np.compress(keep.reshape(-1), rows.reshape(-1))  # twice as fast as rows[keep]
    return _column_of(offsets, pa.py_buffer(data))


def _column_of(offsets: NDArray[np.int64], data: pa.Buffer) -> pa.LargeBinaryArray:
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data]
    )


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
        return [_Block(np.full((len(column), 1), NIL[0], np.uint8))]
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        size = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        head = _head(size, _TEXT if pa.types.is_large_string(kind) else _BYTES)
        content = column.cast(pa.large_binary()).fill_null(b"")
        return [_with_nil(head, nulls), content]
    if pa.types.is_boolean(kind):
        values = column.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
        block = _Block((_FALSE + values.astype(np.uint8)).reshape(-1, 1))
    elif pa.types.is_integer(kind):
        block = _integers(column.fill_null(0).to_numpy(zero_copy_only=False))
    else:
        assert pa.types.is_float64(kind), kind
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        rows = np.empty((len(values), 9), np.uint8)
        rows[:, 0] = _DOUBLE
        rows[:, 1:] = values.astype(">f8").view(np.uint8).reshape(-1, 8)
        block = _Block(rows)
    return [_with_nil(block, nulls)]


def _nested(column: pa.Array) -> list[_Piece]:
    kind, rows_count = column.type, len(column)
    if pa.types.is_struct(kind):
        head = msgpack.Packer().pack_map_header(kind.num_fields)
        pieces: list[_Piece] = [_constant(head, rows_count)]
        for field, values in zip(kind, column.flatten(), strict=True):
            pieces += [_constant(msgpack.packb(field.name), rows_count), *_pieces(values)]
        return pieces
    if pa.types.is_map(kind):
        form = _MAP
        counts, keys, values = entries_of(column)
        items = _joined([*_pieces(keys), *_pieces(values)])
    else:
        form = _LIST
        counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        items = pack_column(column.flatten())
    # The items of one list are next to each other already; only the cuts change.
    firsts = np.zeros(rows_count + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    return [_head(counts, form), _column_of(offsets_of(items)[firsts], items.buffers()[2])]


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


def _constant(content: bytes, rows_count: int) -> _Block:
    row = np.frombuffer(content, np.uint8)
    return _Block(np.broadcast_to(row, (rows_count, len(row))))


def _head(lengths: NDArray[Any], form: _Lengths) -> _Block:
    lengths = lengths.astype(np.int64)
    sizes = 2 * (lengths > form.short_max) + 2 * (lengths > _UINT_16_MAX)
    if form.after[1]:  # lists and maps have no form with one length byte
        sizes -= (lengths > form.short_max) & (lengths <= _UINT_8_MAX)
    first = np.where(sizes == 0, form.short | (lengths & _UINT_8_MAX), form.after[sizes])
    return _with_number(first, lengths.view(np.uint64), sizes)


def _integers(values: NDArray[Any]) -> _Block:
    # In the shortest form, as msgpack's own packers do.
    if values.dtype == np.uint64:
        bits, negative = values, None
    else:
        signed = values.astype(np.int64)
        bits = signed.view(np.uint64)
        negative = signed < 0
        if not negative.any():
            negative = None
    sizes = _sizes(bits, 0x7F, 0xFF, 0xFFFF, 0xFFFF_FFFF)
    first = _UNSIGNED[sizes]
    if negative is not None:
        below = _sizes(~bits, 0x1F, 0x7F, 0x7FFF, 0x7FFF_FFFF)  # ~bits is -n - 1
        sizes = np.where(negative, below, sizes)
        first = np.where(negative, _SIGNED[below], first)
    first = np.where(sizes == 0, bits.astype(np.uint8), first)
    return _with_number(first, bits, sizes)


def _sizes(bits: NDArray[np.uint64], none: int, one: int, two: int, four: int) -> NDArray[np.int64]:
    # How many bytes follow the first: by the greatest number for each count, or 8.
    highest = int(bits.max(initial=0))
    sizes = (bits > np.uint64(none)).astype(np.int64)
    for limit, more in ((one, 1), (two, 2), (four, 4)):
        if highest > limit:  # most columns are small: spare a pass over all rows
            sizes += (bits > np.uint64(limit)) * more
    return sizes


def _with_number(first: NDArray[Any], bits: NDArray[np.uint64], sizes: NDArray[np.int64]) -> _Block:
    # Each row is its *first* byte, and the low *sizes* bytes of its number.
    widest = int(sizes.max(initial=0))
    rows = np.empty((len(first), 1 + widest), np.uint8)
    rows[:, 0] = first
    if not widest:
        return _Block(rows)
    big_endian = bits.astype(">u8").view(np.uint8).reshape(-1, 8)
    rows[:, 1:] = big_endian[:, 8 - widest :]
    if int(sizes.min()) == widest:
        return _Block(rows)
    keep = np.arange(widest, -1, -1) < sizes[:, None]
    keep[:, 0] = True
    return _Block(rows, keep)


def _with_nil(block: _Block, nulls: NDArray[np.bool_] | None) -> _Block:
    if nulls is None:
        return block
    rows = block.rows.copy()
    rows[nulls, 0] = NIL[0]
    if rows.shape[1] == 1:
        return _Block(rows)
    keep = np.ones(rows.shape, np.bool_) if block.keep is None else block.keep.copy()
    keep[nulls, 1:] = False
    return _Block(rows, keep)


# Between Arrow and NumPy, without pandas. When pyarrow converts by itself (`pyarrow.array`,
# `to_numpy`, scalars), it imports pandas if that is installed: a quarter of a second, which each of
# Spark's workers would spend before its first row.


def numbers_of(array: pa.Array, dtype: type[N]) -> NDArray[N]:
    """The numbers in *array*, which has no NULL and values of the width of *dtype*; not a copy."""
    assert not array.null_count
    values = array.buffers()[1]
    if not len(array) or values is None:
        return np.empty(0, dtype)
    assert array.type.bit_width == np.dtype(dtype).itemsize * 8
    return np.frombuffer(values, dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def array_of(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """*numbers*, whose values have the width of *kind*, as an array; not a copy if contiguous."""
    assert kind.bit_width == numbers.dtype.itemsize * 8
    values = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, values])


def places_of_valid(array: pa.Array) -> NDArray[np.intp]:
    """Where *array* is not NULL."""
    valid = array.is_valid()
    bits = np.frombuffer(valid.buffers()[1], np.uint8)
    end = valid.offset + len(valid)
    return np.flatnonzero(np.unpackbits(bits, count=end, bitorder="little")[valid.offset :])


def binary_of(value: bytes) -> pa.Array:
    """An array of *value* alone."""
    offsets = pa.py_buffer(np.array([0, len(value)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(value)])
