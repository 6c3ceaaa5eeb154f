"""Files of rows on their way into a keyspace."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
import xxhash

from ringpop_py.base.errors import BadOperation, StateDamaged
from ringpop_py.base.values.operations import KEY_BYTES_MAX
from ringpop_py.state.rows import stagefile
from ringpop_py.state.rows.stagefile import (
    CHUNK_BYTES_MAX,
    CHUNK_ROWS_MAX,
    MAGIC,
    Chunk,
    decode_stage,
    encode_stage,
    index_of,
)
from ringpop_py.state.table.evaluator import VALUE_BYTES_MAX


def a_chunk(partition: int, *keys: str) -> Chunk:
    """A value each, which is the key again."""
    return Chunk(partition, pa.array(keys, pa.string()), pa.array([k.encode() for k in keys]))


def rows_of(chunks: list[Chunk]) -> list[list[tuple[str, bytes]]]:
    return [
        list(zip(chunk.keys.to_pylist(), chunk.values.to_pylist(), strict=True)) for chunk in chunks
    ]


def sealed(rest: bytes) -> bytes:
    """Return *rest* sealed, as a writer of something else would do it."""
    return MAGIC + xxhash.xxh64_digest(rest) + rest


def test_staged_rows_are_read_by_partition() -> None:
    file = encode_stage("add", [a_chunk(7, "a", "ü"), a_chunk(3, "b"), a_chunk(7, "c")])

    stage = decode_stage(file)

    assert stage.index.operation == "add"
    assert stage.partitions == (3, 7)
    assert rows_of(stage.chunks(7)) == [[("a", b"a"), ("ü", "ü".encode())], [("c", b"c")]]
    assert rows_of(stage.chunks(3)) == [[("b", b"b")]]
    assert stage.chunks(4) == []


def test_the_head_says_which_chunks_there_are() -> None:
    index = index_of(encode_stage("put", [a_chunk(7, "a", "b"), a_chunk(3, "c"), a_chunk(7, "d")]))

    assert index.operation == "put"
    assert index.chunks == ((3, 1), (7, 2), (7, 1))
    assert index.chunk_counts() == {3: 1, 7: 2}
    assert index.rows_count == 4


def test_large_and_chunked_arrays_are_taken_and_come_back_as_plain_ones() -> None:
    keys = pa.chunked_array(
        [pa.array(["a"], pa.large_string()), pa.array(["b"], pa.large_string())]
    )
    chunk = Chunk(0, keys, pa.array([b"1", b"2"], pa.large_binary()))

    (found,) = decode_stage(encode_stage("put", [chunk])).chunks(0)

    assert (found.keys.type, found.values.type) == (pa.string(), pa.binary())
    assert rows_of([found]) == [[("a", b"1"), ("b", b"2")]]


def test_a_slice_of_a_larger_array_is_taken_for_what_it_shows() -> None:
    keys, values = pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"])

    file = encode_stage("put", [Chunk(0, keys.slice(1, 1), values.slice(1, 1))])

    assert rows_of(decode_stage(file).chunks(0)) == [[("b", b"2")]]


def test_one_row_may_have_the_largest_key_and_value() -> None:
    key, value = "k" * KEY_BYTES_MAX, bytes(VALUE_BYTES_MAX)

    file = encode_stage("put", [Chunk(0, pa.array([key]), pa.array([value]))])

    assert rows_of(decode_stage(file).chunks(0)) == [[(key, value)]]


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([], "a chunk at least"),
        ([a_chunk(0)], "1 to 8192 rows"),
        ([a_chunk(0, *(str(n) for n in range(CHUNK_ROWS_MAX + 1)))], "1 to 8192 rows"),
        ([a_chunk(-1, "a")], "order"),
        ([a_chunk(1 << 20, "a")], "partitions"),
        ([a_chunk(0, "")], "a key has 1 to"),
        ([a_chunk(0, "k" * (KEY_BYTES_MAX + 1))], "a key has 1 to"),
        ([Chunk(0, pa.array(["a"]), pa.array([b""]))], "a value has 1 to"),
        ([Chunk(0, pa.array(["a"]), pa.array([bytes(VALUE_BYTES_MAX + 1)]))], "a value has 1 to"),
        ([Chunk(0, pa.array(["a"]), pa.array([], pa.binary()))], "as many values"),
        ([Chunk(0, pa.array(["a", None]), pa.array([b"1", b"2"]))], "without a key"),
        ([Chunk(0, pa.array(["a"]), pa.array([None], pa.binary()))], "without a key or a value"),
        ([Chunk(0, pa.array(["a", "b"]), pa.array([bytes(CHUNK_BYTES_MAX)] * 2))], "of several"),
        ([Chunk(0, pa.array([[1]]), pa.array([b"1"]))], "keys are text"),
    ],
)
def test_rows_that_no_keyspace_would_accept_are_refused(chunks: list[Chunk], why: str) -> None:
    with pytest.raises(BadOperation, match=why):
        encode_stage("put", chunks)


@pytest.mark.parametrize("operation", ["", "x" * 65])
def test_an_operation_has_a_name(operation: str) -> None:
    with pytest.raises(BadOperation, match="name"):
        encode_stage(operation, [a_chunk(0, "a")])


def test_a_file_has_a_largest_size() -> None:
    chunks = [Chunk(n, pa.array(["a"]), pa.array([bytes(VALUE_BYTES_MAX)])) for n in range(4)]

    with pytest.raises(BadOperation, match="at most 4194304 bytes"):
        encode_stage("put", chunks)


def test_a_torn_file_and_one_with_a_bit_turned_are_known() -> None:
    file = encode_stage("put", [a_chunk(0, *(f"key-{n}" for n in range(20)))])

    for size in range(len(file)):
        with pytest.raises(StateDamaged):
            decode_stage(file[:size])
    for at in range(len(file)):
        damaged = bytearray(file)
        damaged[at] ^= 0x10
        with pytest.raises(StateDamaged):
            decode_stage(bytes(damaged))


def test_no_bytes_behind_a_good_seal_do_worse_than_damage() -> None:
    rest = encode_stage("put", [a_chunk(0, *(f"key-{n}" for n in range(20)))])[16:]

    for at in range(len(rest)):
        for bit in (0x01, 0x10, 0x80):
            damaged = bytearray(rest)
            damaged[at] ^= bit
            try:
                stage = decode_stage(sealed(bytes(damaged)))
            except StateDamaged:
                continue
            for partition in stage.partitions:
                rows_of(stage.chunks(partition))


def test_more_than_a_file_may_have_is_not_looked_at() -> None:
    with pytest.raises(StateDamaged, match="bytes"):
        index_of(bytes(stagefile.FILE_BYTES_MAX + 1))


def test_a_head_that_is_none_is_damage() -> None:
    head = b"\xc1"

    with pytest.raises(StateDamaged):
        index_of(sealed(struct.pack("<I", len(head)) + head))
