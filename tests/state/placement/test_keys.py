"""`ringpop_py.state.placement.keys`: a key is in the partition that Spark computes for it."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import ConfigError
from ringpop_py.state.placement.keys import Placing, hash_tag, partition_of, partitions_of


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


# Hash tags.


@pytest.mark.parametrize(
    ("key", "tag"),
    # The first four are the examples in the specification of Redis Cluster.
    [
        ("{user1000}.following", "user1000"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("", ""),
        ("plain", "plain"),
        ("{", "{"),
        ("}{", "}{"),
        ("}{a}", "a"),
        ("{a", "{a"),
        ("{}", "{}"),
        ("{ключ}/é", "ключ"),
        ("{\ud800}x", "\ud800"),
        ("{ }", " "),
        ("a\n{b\nc}\n", "b\nc"),
    ],
)
def test_a_hash_tag_is_that_of_redis_cluster(key: str, tag: str) -> None:
    assert hash_tag(key) == tag
    assert Placing(251, hash_tags=True).partition_of(key) == partition_of(tag, 251)


def tag_by_redis(key: str) -> str:
    """The loops of `keyHashSlot`, character by character."""
    start = 0
    while start < len(key) and key[start] != "{":
        start += 1
    if start == len(key):
        return key
    end = start + 1
    while end < len(key) and key[end] != "}":
        end += 1
    if end == len(key) or end == start + 1:
        return key
    return key[start + 1 : end]


BRACED = st.text(st.one_of(st.sampled_from("{}{}a"), st.characters(exclude_categories=())))


@given(st.lists(BRACED), st.integers(1, 400))
def test_keys_with_braces_anywhere_are_placed_by_their_tag(keys: list[str], count: int) -> None:
    placing = Placing(count, hash_tags=True)

    assert [hash_tag(key) for key in keys] == [tag_by_redis(key) for key in keys]
    expected = [partition_of(tag_by_redis(key), count) for key in keys]
    assert [placing.partition_of(key) for key in keys] == expected
    assert placing.partitions_of(keys) == expected


@given(st.lists(BRACED), st.integers(1, 400))
def test_without_hash_tags_braces_are_as_other_characters(keys: list[str], count: int) -> None:
    placing = Placing(count)

    expected = [partition_of(key, count) for key in keys]
    assert [placing.partition_of(key) for key in keys] == expected
    assert placing.partitions_of(keys) == expected


@pytest.mark.parametrize("key", [b"{a}", 5, None])
def test_a_key_that_is_no_text_has_no_hash_tag(key: str) -> None:
    with pytest.raises(ConfigError, match="key is text"):
        hash_tag(key)
    for placing in (Placing(4), Placing(4, hash_tags=True)):
        with pytest.raises(ConfigError, match="key is text"):
            placing.partition_of(key)
        with pytest.raises(ConfigError, match="key is text"):
            placing.partitions_of(["a", key])
