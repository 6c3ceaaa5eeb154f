"""Partitions of many keys at once are those of each."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ringpop_py.state.placement.hashes import TOGETHER_MIN, TOGETHER_ROWS, hashes_of, partitions_of
from ringpop_py.state.placement.keys import hash_text, partition_of

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

    partitions = partitions_of(*column_of(texts, before=b"skipped"), 251)

    assert partitions.tolist() == [partition_of(text, 251) for text in texts]


def test_more_texts_than_are_taken_at_a_time() -> None:
    texts = [f"{number:08}" for number in range(2 * TOGETHER_ROWS + 1)]

    partitions = partitions_of(*column_of(texts), 256)

    assert partitions.tolist() == [partition_of(text, 256) for text in texts]


def test_no_keys_have_no_partitions() -> None:
    assert not len(partitions_of(*column_of([]), 4))
