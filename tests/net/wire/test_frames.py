"""Frames are found however the stream is cut, and built as the format says."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import WireError
from ringpop_py.net.wire import frames
from ringpop_py.net.wire.frames import (
    FRAME_BYTES_MAX,
    Cursor,
    FrameQueue,
    FrameReader,
    cancel_frame,
    error_frame,
    frame,
)

payloads = st.lists(st.binary(max_size=200), max_size=8)


def read_all(reader: FrameReader, chunks: list[bytes]) -> list[tuple[int, int, bytes]]:
    found = []
    for chunk in chunks:
        data, spans = reader.feed(chunk)
        found += [(kind, frame_id, data[start:stop]) for kind, frame_id, start, stop in spans]
    return found


@given(payloads, st.lists(st.integers(0, 2_000), max_size=20))
def test_frames_are_found_wherever_the_stream_is_cut(
    bodies: list[bytes], places: list[int]
) -> None:
    stream = b"".join(frame(3, index, body) for index, body in enumerate(bodies))
    cuts = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(cuts)]
    reader = FrameReader()

    found = read_all(reader, chunks)

    assert found == [(3, index, body) for index, body in enumerate(bodies)]
    assert reader.frame_count == len(bodies)
    assert not reader.partial


@pytest.mark.parametrize("size", range(frames.FRAME_HEAD_BYTES))
def test_a_frame_smaller_than_its_head_breaks_the_protocol(size: int) -> None:
    with pytest.raises(WireError, match="cannot have"):
        FrameReader().feed(frames.HEAD.pack(size, 3, 1))


def test_a_reader_holds_what_came_and_not_what_was_announced() -> None:
    reader = FrameReader()

    reader.feed(frames.HEAD.pack(frames.FRAME_BYTES_MAX, 3, 1))

    assert reader.partial
    assert len(reader._rest) == frames.FRAME_HEAD_BYTES


def test_a_cursor_never_reads_beyond_its_payload() -> None:
    cursor = Cursor(b"\x05abcdef", 0, 3)

    with pytest.raises(WireError, match="middle of a field"):
        cursor.text1()


def test_a_name_that_is_not_utf8_breaks_the_protocol() -> None:
    with pytest.raises(WireError, match="UTF-8"):
        Cursor(b"\x01\xff", 0, 2).text1()


@given(st.lists(st.integers(1, 100) | st.integers(20_000, FRAME_BYTES_MAX), max_size=30))
def test_pieces_are_whole_frames_in_order_and_as_many_as_fit(sizes: list[int]) -> None:
    queue = FrameQueue()
    sent = [bytes((number,)) * size for number, size in enumerate(sizes)]
    for raw in sent:
        queue.put(raw)

    while queue.chunks:
        size = 0
        count = 0
        while count < len(sent) and size + len(sent[count]) <= FRAME_BYTES_MAX:
            size += len(sent[count])
            count += 1
        assert queue.take_piece() == b"".join(sent[:count])
        del sent[:count]

    assert sent == []
    assert queue.byte_count == sum(sizes)


def test_a_frame_that_is_a_piece_by_itself_is_not_copied() -> None:
    queue = FrameQueue()
    largest = bytes(FRAME_BYTES_MAX)
    queue.put(largest)
    queue.put(b"more")

    assert queue.take_piece() is largest


def test_a_frame_is_the_same_in_parts_and_in_one() -> None:
    assert frame(3, 7, b"ab", memoryview(b"cd"), b"") == frame(3, 7, b"abcd")


@pytest.mark.parametrize("build", [error_frame, cancel_frame])
def test_a_long_explanation_is_cut_between_characters(build: object) -> None:
    assert callable(build)
    raw = build(7, 1, "é" * 10_000)

    text = raw.rpartition(b"\xc3\xa9")[0]

    assert len(raw) < frames.ERROR_MESSAGE_BYTES_MAX + 100
    assert text
    raw[-frames.ERROR_MESSAGE_BYTES_MAX :].decode()
