"""Read packed values that are all alike as columns: several times as fast as one by one.

Values are alike if one batch of rows could have been packed into them: maps of the same fields in
the same order, with values of one kind in each field. NumPy steps through all rows together, with a
cursor in each. If a row differs, the functions return None, and the caller uses
`packed.unpack_column`: only that function decides what is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgpack
import numpy as np
import pyarrow as pa

from ringpop_py.columns.packed import offsets_of, unpack_column
from ringpop_py.errors import BodyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_PADDING: Final = bytes(16)
"""Bytes after the data, so that reads of a few bytes past its end stay within the array."""
_FIELDS_MAX: Final = 1_000
_NIL: Final = 0xC0
_FALSE, _TRUE = 0xC2, 0xC3
_DOUBLE: Final = 0xCB
_WORD: Final = 8
_INT_63: Final = 1 << 63

# Kinds of values, by their first byte.
_OTHER, _NULL, _BOOL, _INTEGER, _REAL, _TEXT, _BYTES = range(7)


def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    # By first byte: the kind, the bytes of the length, and the least that follow.
    kinds, length_sizes, sizes = (np.zeros(256, np.uint8) for _ in range(3))
    kinds[:0x80] = kinds[0xE0:] = _INTEGER
    kinds[0xA0:0xC0] = _TEXT
    sizes[0xA0:0xC0] = np.arange(32)
    kinds[_NIL] = _NULL
    kinds[[_FALSE, _TRUE]] = _BOOL
    kinds[_DOUBLE], sizes[_DOUBLE] = _REAL, 8
    for first in (0xCC, 0xD0):  # unsigned, signed
        kinds[first : first + 4] = _INTEGER
        sizes[first : first + 4] = 1, 2, 4, 8
    for first, kind in ((0xC4, _BYTES), (0xD9, _TEXT)):
        kinds[first : first + 3] = kind
        length_sizes[first : first + 3] = 1, 2, 4
    return kinds, length_sizes, sizes


_KINDS, _LENGTH_SIZES, _SIZES = _tables()


class _Unlike(Exception):
    """A value differs from the others, or is of a kind that is not read here."""


class _Cursors:
    """A place (*at*) in each of many packed values, which are stored one after the other."""

    def __init__(self, packed: pa.LargeBinaryArray) -> None:
        offsets = offsets_of(packed)
        data = memoryview(packed.buffers()[2])[offsets[0] : offsets[-1]]
        self._buffer = pa.py_buffer(b"".join([data, _PADDING]))
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self.at = offsets[:-1] - offsets[0]
        self._ends = offsets[1:] - offsets[0]

    def read(self, kind: str, places: NDArray[np.int64]) -> NDArray[Any]:
        # Strides of one byte make a number of every position, aligned or not.
        size = np.dtype(kind).itemsize
        count = len(self._bytes) - size + 1
        numbers: Any = np.ndarray((count,), kind, self._buffer, strides=(1,))
        found: NDArray[Any] = numbers[places]
        return found

    def pass_by(self, expected: bytes) -> None:
        before = self.at
        self.at = before + len(expected)
        self._check()
        for start in range(0, len(expected), _WORD):  # compare eight bytes of all rows at a time
            word = expected[start : start + _WORD]
            unused = 8 * (_WORD - len(word))
            found = self.read(">u8", before + start) >> np.uint64(unused)
            if (found != np.uint64(int.from_bytes(word, "big"))).any():
                raise _Unlike

    def take(self, kind: pa.DataType | None) -> pa.Array | None:
        """Step over the values here; return them as a column of that *kind*, if it is not None."""
        first = self._bytes[self.at]
        kinds = _KINDS[first]
        found = set(np.flatnonzero(np.bincount(kinds, minlength=7)).tolist())
        if _OTHER in found or (kind is not None and not found <= {_kind_of(kind), _NULL}):
            raise _Unlike
        length_sizes, sizes = _LENGTH_SIZES[first], _SIZES[first].astype(np.int64)
        starts = self.at + 1 + length_sizes
        for size in np.flatnonzero(np.bincount(length_sizes)[1:]) + 1:
            where = length_sizes == size
            sizes[where] = self.read(f">u{size}", self.at[where] + 1)
        self.at = starts + sizes
        self._check()
        if kind is None:
            return None
        nulls = kinds == _NULL if _NULL in found else None
        if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            return self._texts(kind, starts, nulls)
        if pa.types.is_null(kind):
            return pa.nulls(len(first))
        return pa.array(self._numbers(kind, first, starts, sizes), mask=nulls)

    def finish(self) -> None:
        if (self.at != self._ends).any():
            raise _Unlike

    def _check(self) -> None:
        if (self.at > self._ends).any():
            raise _Unlike

    def _numbers(
        self,
        kind: pa.DataType,
        first: NDArray[np.uint8],
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
    ) -> NDArray[Any]:
        if pa.types.is_boolean(kind):
            return np.equal(first, _TRUE)
        if pa.types.is_floating(kind):
            # Rows that are NULL, with fewer bytes, read something harmless at 0.
            return self.read(">f8", np.where(sizes == _WORD, starts, 0)).astype(np.float64)
        values = first.view(np.int8).astype(np.int64)
        signed = first >= 0xD0  # noqa: PLR2004 - of those with further bytes
        for size in np.flatnonzero(np.bincount(sizes)[1:]) + 1:
            where = np.flatnonzero(sizes == size)
            places = starts[where]
            unsigned = self.read(f">u{size}", places).astype(np.uint64)
            if size == _WORD and (unsigned[~signed[where]] >= np.uint64(_INT_63)).any():
                raise _Unlike  # they do not fit into int64
            negative = self.read(f">i{size}", places).astype(np.int64)
            values[where] = np.where(signed[where], negative, unsigned.view(np.int64))
        return values

    def _texts(
        self, kind: pa.DataType, starts: NDArray[np.int64], nulls: NDArray[np.bool_] | None
    ) -> pa.Array:
        # The texts and the bytes between them are an array as well; every second item is a text.
        offsets = np.empty(2 * len(starts), np.int64)
        offsets[0::2], offsets[1::2] = starts, self.at
        buffers = [None, pa.py_buffer(offsets), self._buffer]
        mixed = pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
        texts = mixed.take(pa.array(np.arange(0, len(offsets), 2), mask=nulls))
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raise _Unlike from None
        return texts


def _kind_of(kind: pa.DataType) -> int:
    types = pa.types
    known = (
        (types.is_null, _NULL),
        (types.is_boolean, _BOOL),
        (types.is_integer, _INTEGER),
        (types.is_float64, _REAL),
        (types.is_large_string, _TEXT),
        (types.is_large_binary, _BYTES),
    )
    return next((number for holds, number in known if holds(kind)), _OTHER)


def column_of(packed: pa.LargeBinaryArray, kind: pa.DataType) -> pa.Array | None:
    """Return the values in *packed*, which has no NULL, or None if they are not of that *kind*.

    *kind* is a type that `ringpop_py.columns.packed.pack_column` takes; integers become int64.
    """
    if not len(packed):
        return None
    cursors = _Cursors(packed)
    try:
        column = cursors.take(kind)
        cursors.finish()
    except _Unlike:
        return None
    return column


def columns_of(
    packed: pa.LargeBinaryArray, kinds: Mapping[str, pa.DataType]
) -> dict[str, pa.Array] | None:
    """Return the fields *kinds* of the maps in *packed*, which has no NULL; None if not alike.

    A field that no map has is NULL. See `column_of`.
    """
    if not len(packed):
        return None
    try:
        names = _names_in(packed[:1])
        cursors = _Cursors(packed)
        cursors.pass_by(msgpack.Packer().pack_map_header(len(names)))
        found = {}
        for name in names:
            cursors.pass_by(msgpack.packb(name))
            found[name] = cursors.take(kinds.get(name))
        cursors.finish()
    except _Unlike:
        return None
    return {
        name: found[name] if name in found else pa.nulls(len(packed), kind)
        for name, kind in kinds.items()
    }


def _names_in(packed: pa.LargeBinaryArray) -> list[str]:
    try:
        (value,) = unpack_column(packed)
    except BodyError:
        raise _Unlike from None
    if not isinstance(value, dict) or not len(value) <= _FIELDS_MAX:
        raise _Unlike
    return [name for name in value if isinstance(name, str)]
