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

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.arrow import sound
from ringpop_py.base.values.bulk import (
    BINARY,
    BOOLEAN,
    INTEGER,
    KINDS_COUNT,
    NULL,
    OTHER,
    REAL,
    STRING,
    TRUE,
    Cursors,
)
from ringpop_py.state.rows.packed import offsets_of, unpack_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ringpop_py.base.values.bulk import Ahead

_FIELDS_MAX: Final = 1_000


class _Unlike(Exception):
    """A value differs from the others, or is of a kind that is not read here."""


class _Cursors(Cursors):
    """Cursors in *packed* that only go on if all rows are as expected."""

    def __init__(self, packed: pa.LargeBinaryArray) -> None:
        offsets = offsets_of(packed)
        data = memoryview(packed.buffers()[2])[offsets[0] : offsets[-1]]
        super().__init__(data, offsets - offsets[0])

    def check(self) -> None:
        if not self.sound.all():
            raise _Unlike

    def pass_by(self, expected: bytes) -> None:
        if not self.have(expected).all():
            raise _Unlike
        self.at = self.at + len(expected)

    def take(self, kind: pa.DataType | None) -> pa.Array | None:
        """Step over the values here; return them as a column of that *kind*, if it is not None."""
        ahead = self.ahead()
        found = set(np.flatnonzero(np.bincount(ahead.kinds, minlength=KINDS_COUNT)).tolist())
        if OTHER in found or (kind is not None and not found <= {_kind_of(kind), NULL}):
            raise _Unlike
        self.move(ahead.starts + ahead.sizes)
        self.check()
        if kind is None:
            return None
        nulls = ahead.kinds == NULL if NULL in found else None
        if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            return self._texts(kind, ahead.starts, nulls)
        if pa.types.is_null(kind):
            return pa.nulls(len(ahead.first))
        return pa.array(self._values(kind, ahead), mask=nulls)

    def _values(self, kind: pa.DataType, ahead: Ahead) -> NDArray[Any]:
        if pa.types.is_boolean(kind):
            return np.equal(ahead.first, TRUE)
        if pa.types.is_floating(kind):
            return self.reals_in(ahead)
        values, too_large = self.integers_in(ahead)
        if too_large.any():
            raise _Unlike  # they do not fit into int64
        return values

    def _texts(
        self, kind: pa.DataType, starts: NDArray[np.int64], nulls: NDArray[np.bool_] | None
    ) -> pa.Array:
        # The texts and the bytes between them are an array as well; every second item is a text.
        offsets = np.empty(2 * len(starts), np.int64)
        offsets[0::2], offsets[1::2] = starts, self.at
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        mixed = pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
        texts = mixed.take(pa.array(np.arange(0, len(offsets), 2), mask=nulls))
        try:
            sound(texts)
        except BodyError:
            raise _Unlike from None
        return texts


def _kind_of(kind: pa.DataType) -> int:
    types = pa.types
    known = (
        (types.is_null, NULL),
        (types.is_boolean, BOOLEAN),
        (types.is_integer, INTEGER),
        (types.is_float64, REAL),
        (types.is_large_string, STRING),
        (types.is_large_binary, BINARY),
    )
    return next((number for holds, number in known if holds(kind)), OTHER)


def column_of(packed: pa.LargeBinaryArray, kind: pa.DataType) -> pa.Array | None:
    """Return the values in *packed*, which has no NULL, or None if they are not of that *kind*.

    *kind* is a type that `ringpop_py.state.rows.packed.pack_column` takes; integers become int64.
    """
    if not len(packed):
        return None
    cursors = _Cursors(packed)
    try:
        column = cursors.take(kind)
        cursors.finish()
        cursors.check()
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
        cursors.check()
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
