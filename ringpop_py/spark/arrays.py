"""Between Arrow and NumPy, without pandas.

When pyarrow converts by itself (`pyarrow.array`, `to_numpy`, scalars), it imports pandas if that is
there: a quarter of a second, which each of Spark's workers would spend before its first row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)


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
