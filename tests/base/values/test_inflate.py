"""Compressed data: what is unpacked has a limit, whatever comes."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.inflate import inflated


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_data_within_the_limit_is_unpacked(size: int) -> None:
    data = bytes(size)

    assert inflated(zlib.compress(data), 100) == data


def test_a_bomb_is_refused_and_takes_no_more_memory_than_the_limit() -> None:
    bomb = zlib.compress(bytes(64 << 20))
    tracemalloc.start()

    with pytest.raises(BodyError, match="unpack to more than 1000000"):
        inflated(bomb, 1_000_000)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_one_byte_more_than_the_limit_is_refused() -> None:
    with pytest.raises(BodyError, match="more than 100"):
        inflated(zlib.compress(bytes(101)), 100)


@pytest.mark.parametrize(
    "data", [b"", b"no stream", zlib.compress(b"x" * 50)[:-1], zlib.compress(b"x") + b"more"]
)
def test_data_that_is_not_one_whole_stream_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        inflated(data, 100)
