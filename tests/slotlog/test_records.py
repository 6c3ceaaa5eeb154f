"""Records of a log as bytes: what was damaged, or stands in the wrong place, is never taken."""

from __future__ import annotations

import pytest

from ringpop_py.errors import StateDamaged
from ringpop_py.slotlog.records import decode_record, encode_record
from ringpop_py.slotlog.slots import Claim, Data, Record, Seal, Slot
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.values.packed import encode_value

PARTITION = KeyspaceKeys("prod", "counts", 1).partition(3)
KEY = PARTITION.slot(Slot(2, 5))
RECORDS: tuple[Record, ...] = (
    Claim("10.0.0.1:3000", "0123456789abcdef01234567"),
    Data([[["k", 1_000_000_007]], [["s", 1]], {}], "0123456789abcdef01234567"),
    Seal("", "0123456789abcdef01234567"),
)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record, KEY), KEY) == record


@pytest.mark.parametrize("record", RECORDS)
def test_every_flipped_bit_of_every_byte_is_noticed(record: Record) -> None:
    value = encode_record(record, KEY)

    for place in range(len(value)):
        for bit in range(8):
            flipped = bytearray(value)
            flipped[place] ^= 1 << bit
            with pytest.raises(StateDamaged, match=KEY):
                decode_record(bytes(flipped), KEY)


def test_a_record_that_was_torn_off_or_added_to_is_noticed() -> None:
    value = encode_record(RECORDS[1], KEY)

    for size in range(len(value)):
        with pytest.raises(StateDamaged, match=KEY):
            decode_record(value[:size], KEY)
    with pytest.raises(StateDamaged):
        decode_record(value + b"\0", KEY)


@pytest.mark.parametrize(
    "other",
    [
        PARTITION.slot(Slot(2, 6)),
        KeyspaceKeys("prod", "counts", 1).partition(4).slot(Slot(2, 5)),
        KeyspaceKeys("prod", "counts", 2).partition(3).slot(Slot(2, 5)),
        KeyspaceKeys("prod", "others", 1).partition(3).slot(Slot(2, 5)),
    ],
)
def test_a_record_at_the_place_of_another_one_is_noticed(other: str) -> None:
    with pytest.raises(StateDamaged, match=other):
        decode_record(encode_record(RECORDS[1], KEY), other)


def test_a_copy_of_a_store_under_the_name_of_another_cluster_is_read() -> None:
    key = KeyspaceKeys("staging", "counts", 1).partition(3).slot(Slot(2, 5))

    assert decode_record(encode_record(RECORDS[1], KEY), key) == RECORDS[1]


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (RECORDS[0], ["claim", "0123456789abcdef01234567", "10.0.0.1:3000"]),
        (RECORDS[1], ["data", "0123456789abcdef01234567", RECORDS[1].body]),  # type: ignore[union-attr]
        (RECORDS[2], ["seal", "0123456789abcdef01234567", ""]),
    ],
)
def test_a_record_of_the_first_version_which_had_no_checksum_is_read(
    record: Record, row: list[object]
) -> None:
    assert decode_record(encode_value("msgpack", row), KEY) == record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0" * 64,
        b"\xc1\x03" + encode_record(RECORDS[1], KEY)[2:],
        encode_value("msgpack", ["else", "nonce", None]),
        encode_value("msgpack", ["data", 7, None]),
        encode_value("msgpack", ["data", "nonce"]),
        encode_value("msgpack", ["data", "nonce", None, None]),
        encode_value("msgpack", {}),
    ],
)
def test_what_is_not_a_record_is_refused_and_named(value: bytes) -> None:
    with pytest.raises(StateDamaged, match=KEY):
        decode_record(value, KEY)
