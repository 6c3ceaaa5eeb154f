"""Packed rows as stage files."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py.base.errors import BadOperation
from ringpop_py.spark.arrow.columns import Changes
from ringpop_py.spark.source.writer import staged_files
from ringpop_py.state.placement.keys import Placing, partition_of
from ringpop_py.state.rows.stagefile import (
    CHUNK_BYTES_MAX,
    CHUNK_ROWS_MAX,
    FILE_BYTES_MAX,
    decode_stage,
)

TEXT = pa.large_string()
OWNERS = {number: f"node-{number % 3}" for number in range(15)}


def staged(keys: list[str], values: list[bytes], **changes: Any) -> list[bytes]:  # noqa: ANN401 - arguments
    arguments: dict[str, Any] = {"placing": Placing(16), "owners": OWNERS} | changes
    packed = pa.array(values, pa.large_binary())
    return list(staged_files(Changes("put", pa.array(keys, TEXT), packed), **arguments))


def rows_of(files: list[bytes]) -> dict[int, list[tuple[str, bytes]]]:
    """By partition, in the order in which they count."""
    rows: dict[int, list[tuple[str, bytes]]] = {}
    for each in files:
        stage = decode_stage(each)
        for partition in stage.partitions:
            for chunk in stage.chunks(partition):
                pairs = zip(chunk.keys.to_pylist(), chunk.values.to_pylist(), strict=True)
                rows.setdefault(partition, []).extend(pairs)
    return rows


def expected_rows(keys: list[str], values: list[bytes]) -> dict[int, list[tuple[str, bytes]]]:
    rows: dict[int, list[tuple[str, bytes]]] = {}
    for key, value in zip(keys, values, strict=True):
        rows.setdefault(partition_of(key, 16), []).append((key, value))
    return rows


def test_all_rows_are_in_their_partitions_and_in_their_order() -> None:
    rng = random.Random(1)
    keys = [f"é{rng.randrange(5_000)}" for _ in range(40_000)]
    values = [number.to_bytes(4, "big") for number in range(len(keys))]

    files = staged(keys, values)

    assert rows_of(files) == expected_rows(keys, values)


def test_a_file_is_for_one_owner_or_for_nobody_who_is_known() -> None:
    keys = [f"k{number}" for number in range(1_000)]

    files = staged(keys, [b"v"] * len(keys))

    owners = [{OWNERS.get(n, "") for n in decode_stage(each).partitions} for each in files]
    assert owners == [{""}, {"node-0"}, {"node-1"}, {"node-2"}]


def test_a_hot_key_makes_many_chunks_and_none_is_too_large() -> None:
    keys, values = ["hot"] * 20_000, [b"x" * 300] * 20_000

    files = staged(keys, values)

    partition = partition_of("hot", 16)
    chunks = [chunk for each in files for chunk in decode_stage(each).chunks(partition)]
    assert sum(len(chunk.keys) for chunk in chunks) == 20_000
    assert max(len(chunk.keys) for chunk in chunks) <= CHUNK_ROWS_MAX
    assert len(files) > 1
    assert max(len(each) for each in files) <= FILE_BYTES_MAX


def test_the_largest_values_have_chunks_of_their_own() -> None:
    keys = [f"k{number}" for number in range(9)]
    values = [bytes(CHUNK_BYTES_MAX)] * len(keys)

    files = staged(keys, values, placing=Placing(1), owners={0: "a"})

    chunks = [chunk for each in files for chunk in decode_stage(each).chunks(0)]
    assert [len(chunk.keys) for chunk in chunks] == [1] * 9


def test_a_slice_of_a_column_is_staged_as_that_slice() -> None:
    keys = pa.array([f"k{number}" for number in range(100)], TEXT)[10:20]
    values = pa.array([b"%d" % number for number in range(100)], pa.large_binary())[10:20]

    changes = Changes("put", keys, values)
    files = list(staged_files(changes, placing=Placing(16), owners=OWNERS))

    assert rows_of(files) == expected_rows(keys.to_pylist(), values.to_pylist())


def test_no_rows_are_no_file() -> None:
    assert staged([], []) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("", b"v", "a key has"), ("k" * 1_025, b"v", "a key has"), ("k", bytes(2 << 20), "a value")],
)
def test_a_row_that_no_keyspace_accepts_is_refused(key: str, value: bytes, message: str) -> None:
    with pytest.raises(BadOperation, match=message):
        staged([key], [value])
