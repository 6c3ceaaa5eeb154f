"""Partitions of many keys at once are those of each."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.state.placement.keys import Placing, hash_text, partition_of
from ringpop_py.state.rows.hashes import TOGETHER_MIN, TOGETHER_ROWS, hashes_of, partitions_of

ALPHABET = "abz09 -_äß€\U0001f600\x00"


def column_of(texts: list[str], before: bytes = b"") -> tuple[np.ndarray, bytes]:
    """As Arrow has it, with something before the first text."""
    packed = [text.encode() for text in texts]
    lengths = [len(before), *map(len, packed)]
    return np.cumsum(lengths, dtype=np.int32), before + b"".join(packed)


@pytest.mark.parametrize("length", [*range(70), 127, 128, 1_024])
def test_texts_of_one_length_hash_as_each_does(length: int) -> None:
    rng = random.Random(length)
    texts = ["".join(rng.choices("abcdefgh", k=length)) for _ in range(TOGETHER_MIN)]

    hashes = hashes_of(*column_of(texts))

    assert hashes.tolist() == [hash_text(text) for text in texts]


def test_partitions_of_all_sorts_of_keys_are_those_of_each() -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choices(ALPHABET, k=rng.randrange(60))) for _ in range(20_000)]

    partitions = partitions_of(*column_of(texts, before=b"skipped"), Placing(251))

    assert partitions.tolist() == [partition_of(text, 251) for text in texts]


def test_more_texts_than_are_taken_at_a_time() -> None:
    texts = [f"{number:08}" for number in range(2 * TOGETHER_ROWS + 1)]

    partitions = partitions_of(*column_of(texts), Placing(256))

    assert partitions.tolist() == [partition_of(text, 256) for text in texts]


def test_no_keys_have_no_partitions() -> None:
    assert not len(partitions_of(*column_of([]), Placing(4)))


BRACED = st.text(st.one_of(st.sampled_from("{}{}a"), st.characters(exclude_categories=["Cs"])))


@given(st.lists(BRACED), st.text(), st.integers(0, 3))
def test_hash_tags_of_columns_are_those_of_each(texts: list[str], before: str, cut: int) -> None:
    placing = Placing(251, hash_tags=True)
    offsets, data = column_of(texts, before=f"{before}{{".encode())

    found = partitions_of(offsets[cut:], data, placing)
    fewer = partitions_of(offsets[: len(offsets) - cut], data, placing)

    expected = placing.partitions_of(texts)
    assert found.tolist() == expected[cut:]
    assert fewer.tolist() == expected[: max(0, len(texts) - cut)]


def test_all_short_texts_with_braces_have_the_tags_of_each() -> None:
    texts = ["".join(some) for size in range(7) for some in product("{}aé", repeat=size)]
    placing = Placing(251, hash_tags=True)

    assert partitions_of(*column_of(texts), placing).tolist() == placing.partitions_of(texts)
    assert not len(partitions_of(*column_of([]), placing))
