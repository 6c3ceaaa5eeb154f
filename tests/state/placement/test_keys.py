"""`ringpop_py.state.placement.keys`: a key is in the partition that Spark computes for it."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import ConfigError
from ringpop_py.state.placement.keys import partition_of, partitions_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    # What Spark 4.3 says for `SELECT xxhash64(key)`.
    [
        ("", -7444071767201028348),
        ("a", -8582455328737087284),
        ("N14228", 2818031054348419725),
        ("käse 🧀", 246689506243146068),
    ],
)
def test_a_partition_is_the_signed_hash_of_spark_modulo_the_count(key: str, hashed: int) -> None:
    """F1, V3: pmod(xxhash64(key), P) for every P."""
    for count in (1, 2, 3, 7, 128, 256, 1000, 65_536):
        assert partition_of(key, count) == hashed % count


@given(st.text(), st.integers(1, 400))
def test_a_partition_of_any_text_is_below_the_count(key: str, count: int) -> None:
    signed = int.from_bytes(
        xxhash.xxh64_digest(key.encode("utf-8", "surrogatepass"), 42), "big", signed=True
    )

    assert partition_of(key, count) == signed - signed // count * count
    assert 0 <= partition_of(key, count) < count


@given(st.lists(st.text(st.characters(exclude_categories=()))), st.integers(1, 400))
def test_the_partitions_of_many_texts_are_those_of_each(keys: list[str], count: int) -> None:
    assert partitions_of(keys, count) == [partition_of(key, count) for key in keys]


@pytest.mark.parametrize("count", [1, 7, 256])
def test_a_key_that_is_no_text_has_no_partition(count: int) -> None:
    keys: list[str] = ["a", 5]  # type: ignore[list-item]

    with pytest.raises(ConfigError, match="key is text"):
        partitions_of(keys, count)
