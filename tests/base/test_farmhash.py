"""`ringpop_py.base.farmhash`: the recorded values, each length class, and the C extension."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.farmhash import fingerprint32, hash32_with_seed, pure_fingerprint32

VECTORS = {
    b"": 3696677242,
    b"a": 1016544589,
    b"abc": 795041479,
    b"abcde": 2750637740,
    b"user-1": 581942988,
    b"Hello World": 253619754,
    b"identity#99": 1903372392,
    b"127.0.0.1:30000": 1854233723,
    b"10.0.0.1:3000#0": 3415996689,
    b"127.0.0.1:3000alive1414142122274;": 594055096,
    b"localhost:3000alive1414142122274;localhost:3001alive1414142122275": 3616289216,
}
CLASS_EDGES = [0, 1, 4, 5, 12, 13, 24, 25, 44, 45, 300]


@pytest.mark.parametrize("data", VECTORS)
def test_the_fingerprint_is_that_of_the_go_implementation(data: bytes) -> None:
    assert fingerprint32(data) == VECTORS[data]
    assert pure_fingerprint32(data) == VECTORS[data]


@given(st.binary(max_size=300))
def test_the_pure_fingerprint_equals_the_extension(data: bytes) -> None:
    extension = pytest.importorskip("farmhash")

    assert pure_fingerprint32(data) == extension.fingerprint32(data)


@pytest.mark.parametrize("size", CLASS_EDGES)
def test_every_length_class_agrees_on_bytes_above_127(size: int) -> None:
    extension = pytest.importorskip("farmhash")
    data = bytes(255 - i % 200 for i in range(size))

    assert pure_fingerprint32(data) == extension.fingerprint32(data)


@pytest.mark.parametrize("data", [data for data in VECTORS if len(data) <= 24])
def test_the_seed_zero_changes_nothing_up_to_24_bytes(data: bytes) -> None:
    assert hash32_with_seed(data, 0) == VECTORS[data]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(3, 2440032437), (8, 1965124167), (20, 2926451543), (60, 1736641558)],
)
def test_the_seeded_hash_keeps_its_values_in_every_length_class(size: int, expected: int) -> None:
    assert hash32_with_seed(bytes(range(size)), 0xDEADBEEF) == expected


@given(st.binary(max_size=100), st.integers(0, 2**32 - 1))
def test_the_seeded_hash_stays_within_32_bits(data: bytes, seed: int) -> None:
    assert 0 <= hash32_with_seed(data, seed) < 2**32
