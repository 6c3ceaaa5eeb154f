"""Between Arrow and NumPy, as pyarrow itself would, slices and empty arrays too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ringpop_py.state.rows.packed import array_of, binary_of, numbers_of, places_of_valid


@pytest.mark.parametrize("part", [slice(0, None), slice(3, 7), slice(2, 2)])
def test_numbers_are_those_of_the_array(part: slice) -> None:
    array = pa.array(range(-5, 5), pa.int64())[part]

    assert numbers_of(array, np.int64).tolist() == array.to_pylist()
    assert numbers_of(array, np.uint64).dtype == np.uint64


@pytest.mark.parametrize("numbers", [np.arange(5, dtype=np.int32), np.arange(0, dtype=np.int32)])
def test_an_array_has_the_numbers(numbers: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
    assert array_of(numbers, pa.int32()).to_pylist() == numbers.tolist()
    assert array_of(numbers[::2], pa.int32()).to_pylist() == numbers[::2].tolist()


@pytest.mark.parametrize("part", [slice(0, None), slice(3, 19), slice(9, 9)])
def test_places_of_what_is_valid_are_found(part: slice) -> None:
    array = pa.array([None if index % 3 == 0 else str(index) for index in range(30)])[part]

    expected = [index for index, value in enumerate(array.to_pylist()) if value is not None]
    assert places_of_valid(array).tolist() == expected


@pytest.mark.parametrize("value", [b"", b"abc\x00"])
def test_one_value_of_bytes_is_an_array(value: bytes) -> None:
    array = binary_of(value)
    array.validate(full=True)

    assert array.to_pylist() == [value]
