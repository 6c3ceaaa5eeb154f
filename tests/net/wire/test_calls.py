"""Arguments survive being cut into frames of every size, and a limit ends only its message."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import WireError
from ringpop_py.net.wire.calls import (
    KNOWN_HEAD_BYTES_MAX,
    KNOWN_HEADS_MAX,
    KNOWN_LENGTHS_MAX,
    KnownHeads,
    text1,
    ttl_ms,
)
from ringpop_py.net.wire.fragments import (
    Assembly,
    Budget,
    ChecksumMismatch,
    TooLarge,
    cut,
    pack_pieces,
)
from ringpop_py.net.wire.frames import TTL_MS_MAX, Cursor, u16

arguments = st.tuples(*[st.binary(max_size=40)] * 3)


def add(assembly: Assembly, raw: bytes) -> None:
    """Give *assembly* a frame's rest, which begins with the checksum type."""
    cursor = Cursor(raw, 0, len(raw))
    assert cursor.u8() == assembly.checksum_type
    assembly.add(cursor)


@given(arguments, st.integers(0, 50), st.integers(4, 50), st.sampled_from([0, 1, 2, 3]))
def test_arguments_survive_fragments_of_every_size(
    sent: tuple[bytes, ...], room_first: int, room: int, checksum_type: int
) -> None:
    budget = Budget(1_000)
    assembly = Assembly(checksum_type, 1_000, budget)

    value = 0
    for index, pieces in enumerate(cut(sent, room_first, room)):
        assert sum(2 + len(piece) for piece in pieces) <= (room if index else room_first)
        parts, value = pack_pieces(pieces, checksum_type, value)
        add(assembly, b"".join(parts))

    assert assembly.finish() == sent
    assert budget.used_bytes == sum(map(len, sent))
    assembly.release()
    assert budget.used_bytes == 0


def test_an_argument_that_ends_with_its_frame_ends_with_nothing_in_the_next() -> None:
    assert list(cut((b"ab", b"", b"cd"), 4, 10)) == [[b"ab"], [b"", b"", b"cd"]]


def test_equal_arguments_are_told_apart_by_their_place() -> None:
    assert list(cut((b"", b"", b""), 4, 10)) == [[b"", b""], [b"", b""]]


def test_a_message_of_fewer_arguments_breaks_the_protocol() -> None:
    assembly = Assembly(0, 100, Budget(100))
    add(assembly, b"\0" + u16(1) + b"a")

    with pytest.raises(WireError, match="3 arguments, not 1"):
        assembly.finish()


def test_a_message_of_more_arguments_breaks_the_protocol() -> None:
    assembly = Assembly(0, 100, Budget(100))

    with pytest.raises(WireError, match="has more"):
        add(assembly, b"\0" + u16(0) * 5)


def test_a_message_may_not_outgrow_its_limit() -> None:
    assembly = Assembly(0, 3, Budget(100))

    with pytest.raises(TooLarge, match="more than 3 bytes"):
        add(assembly, b"\0" + u16(4) + b"abcd")


def test_a_message_may_not_outgrow_what_all_may_hold() -> None:
    budget = Budget(3)
    assert budget.take(2)

    with pytest.raises(TooLarge, match="hold 3 bytes already"):
        add(Assembly(0, 100, budget), b"\0" + u16(4) + b"abcd")


def test_other_bytes_than_were_sent_are_noticed() -> None:
    parts, _ = pack_pieces((b"abc",), 1, 0)
    raw = b"".join(parts)

    with pytest.raises(ChecksumMismatch):
        add(Assembly(1, 100, Budget(100)), raw.replace(b"abc", b"abd"))


def test_a_known_head_is_found_by_its_bytes() -> None:
    known: KnownHeads[str] = KnownHeads()
    known.add(b"head", "parsed")

    arguments = b"\0\2ab\0\3cde"
    assert known.find(b"..head" + arguments, 2, 15) == ("parsed", b"ab", b"cde")
    assert known.find(b"..hand" + arguments, 2, 15) is None


@pytest.mark.parametrize("arguments", [b"", b"\0", b"\0\2a", b"\0\2ab\0", b"\0\2ab\0\3cdef"])
def test_a_frame_that_ends_elsewhere_is_not_found_by_its_head(arguments: bytes) -> None:
    known: KnownHeads[str] = KnownHeads()
    known.add(b"head", "parsed")
    data = b"head" + arguments

    # What follows belongs to the next frame.
    assert known.find(data + b"\0\0\0\0\0", 0, len(data)) is None


def test_known_heads_are_bounded_in_number_and_in_size() -> None:
    known: KnownHeads[int] = KnownHeads()

    known.add(bytes(KNOWN_HEAD_BYTES_MAX + 1), 0)
    assert not known._heads
    for number in range(10 * KNOWN_HEADS_MAX):
        known.add(b"%08d" % number, number)
        assert known.find(b"%08d\0\0\0\0" % number, 0, 12) == (number, b"", b"")
    assert len(known._heads) <= KNOWN_HEADS_MAX
    for length in range(100):
        known.add(bytes(length), length)
        assert len(known._lengths) <= KNOWN_LENGTHS_MAX


@pytest.mark.parametrize(
    ("ttl_s", "expected"),
    [(0.0001, 1), (0, 1), (-5, 1), (1.5, 1500), (math.inf, TTL_MS_MAX), (math.nan, TTL_MS_MAX)],
)
def test_a_ttl_is_never_zero_and_always_fits(ttl_s: float, expected: int) -> None:
    assert ttl_ms(ttl_s) == expected


def test_a_name_must_fit_its_length_byte() -> None:
    with pytest.raises(WireError, match="256 bytes"):
        text1("x" * 256)
