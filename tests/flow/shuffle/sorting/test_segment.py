"""The file of a segment after a disk that filled up: as it was before, and whole."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ringpop_py.base.errors import BodyError, ShuffleRefused
from ringpop_py.flow.shuffle.sorting.frame_builder import check_frame, entries_of
from ringpop_py.flow.shuffle.sorting.frames import entry_at, entry_of, frame_in, packed
from ringpop_py.flow.shuffle.sorting.order import Order
from ringpop_py.flow.shuffle.sorting.segment import SegmentFile

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("key", pa.int64())])


ORDER = Order(SCHEMA, ("key",))


def frame(number: int) -> bytes:
    table = pa.table({"key": [number] * 100}, schema=SCHEMA)
    [entry] = entries_of(ORDER, table, 0, number)
    return entry


def adopted(path: Path) -> SegmentFile:
    return SegmentFile.adopted(path, partial(check_frame, ORDER))


def test_a_frame_that_the_disk_took_half_of_is_gone_and_the_file_can_be_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = SegmentFile(tmp_path / "0")
    segment.append(frame(0))
    pwrite, room = os.pwrite, [len(frame(1)) // 2]

    def filling(file: int, data: bytes, offset: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(file, data[: room.pop()], offset)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", filling)
        with pytest.raises(OSError, match="No space left"):
            segment.append(frame(1))
    assert segment.path.stat().st_size == segment.bytes == len(frame(0))
    copy = adopted(segment.path)
    assert list(copy.entries) == [(0, 0)]
    copy.close()

    segment.append(frame(1))
    assert segment.path.read_bytes() == frame(0) + frame(1)
    segment.close()


def test_a_file_that_is_cut_off_or_damaged_is_not_adopted(tmp_path: Path) -> None:
    whole = frame(0) + frame(1)
    damaged = bytearray(whole)
    damaged[-10] ^= 1
    for data in (whole[:-1], bytes(damaged)):
        (tmp_path / "0").write_bytes(data)
        with pytest.raises(BodyError):
            adopted(tmp_path / "0")


def test_a_file_with_a_frame_that_is_not_what_it_says_is_not_adopted(tmp_path: Path) -> None:
    (whole,) = (frame_in(data, entry_at(data, 0)) for data in [frame(1)])
    other = packed(pa.table({"text": ["x"] * 100}))
    for hostile in (whole._replace(body=other), whole._replace(rows=99)):
        (tmp_path / "0").write_bytes(frame(0) + entry_of(hostile))  # its checksum fits
        with pytest.raises(ShuffleRefused, match=r"frame \(0, 1\) is refused"):
            adopted(tmp_path / "0")
