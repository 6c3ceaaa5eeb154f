"""The records of a journal and beside it as bytes: a damaged one is never accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import StateDamaged
from ringpop_py.base.values.checksum import HEAD, wrap
from ringpop_py.base.values.packed import INTEGER_MAX, encode_value
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.journal.codec import (
    decode_claim,
    decode_mark,
    decode_record,
    encode_claim,
    encode_mark,
    encode_record,
)
from ringpop_py.state.journal.records import Claim, Entry, Group, Mark, Record, Release, Seal, Slot

KEYSPACE = KeyspaceKeys("prod", "counts", 1)
JOURNAL = KEYSPACE.journal("0123456789abcdef01234567")
SLOT_KEY = JOURNAL.slot(5)
MARK_KEY = JOURNAL.mark(5)
CLAIM_KEY = KEYSPACE.partition(3).claim(2)
BODY = [{"k": b"\xc0"}, ["gone"], {"s": [1]}, {}]

RECORDS: tuple[Record, ...] = (
    Group((Entry(3, 2, BODY),)),
    Group((Entry(0, 1, BODY), Entry(16_383, 7, Release("10.0.0.1:3000")), Entry(4, 1, BODY))),
    Group((Entry(3, 2, Release("")),)),
    Seal("10.0.0.1:3000"),
)
CLAIMS = (
    Claim("10.0.0.1:3000", "0123456789abcdef01234567", 1),
    Claim("é", "j", INTEGER_MAX, Slot(0, 0)),
    Claim("a", "j" * 200, 7, Slot(3, 41)),
)
MARKS = (Mark({}), Mark({3: Slot(1, 4)}), Mark({0: Slot(0, 0), 16_383: Slot(7, INTEGER_MAX)}))

Decode = Any
SAMPLES: tuple[tuple[bytes, Decode, str, object], ...] = (
    *((encode_record(record, SLOT_KEY), decode_record, SLOT_KEY, record) for record in RECORDS),
    *((encode_claim(claim, CLAIM_KEY), decode_claim, CLAIM_KEY, claim) for claim in CLAIMS),
    *((encode_mark(mark, MARK_KEY), decode_mark, MARK_KEY, mark) for mark in MARKS),
)


@pytest.mark.parametrize(("value", "decode", "key", "sample"), SAMPLES)
def test_every_flipped_bit_of_every_byte_is_noticed(
    value: bytes, decode: Decode, key: str, sample: object
) -> None:
    for place in range(len(value)):
        for bit in range(8):
            flipped = bytearray(value)
            flipped[place] ^= 1 << bit
            with pytest.raises(StateDamaged, match=key):
                decode(bytes(flipped), key)
    assert decode(value, key) == sample


@pytest.mark.parametrize(("value", "decode", "key", "sample"), SAMPLES)
def test_a_torn_or_extended_record_is_noticed(
    value: bytes, decode: Decode, key: str, sample: object
) -> None:
    for size in range(len(value)):
        with pytest.raises(StateDamaged, match=key):
            decode(value[:size], key)
    with pytest.raises(StateDamaged):
        decode(value + b"\0", key)
    assert decode(value, key) == sample


@pytest.mark.parametrize(
    ("value", "decode", "other"),
    [
        (encode_record(RECORDS[0], SLOT_KEY), decode_record, JOURNAL.slot(6)),
        (encode_record(RECORDS[0], SLOT_KEY), decode_record, KEYSPACE.journal("other").slot(5)),
        (
            encode_record(RECORDS[0], SLOT_KEY),
            decode_record,
            KeyspaceKeys("prod", "counts", 2).journal("0123456789abcdef01234567").slot(5),
        ),
        (encode_claim(CLAIMS[0], CLAIM_KEY), decode_claim, KEYSPACE.partition(3).claim(3)),
        (encode_claim(CLAIMS[0], CLAIM_KEY), decode_claim, KEYSPACE.partition(4).claim(2)),
        (encode_mark(MARKS[1], MARK_KEY), decode_mark, JOURNAL.mark(6)),
        (encode_mark(MARKS[1], MARK_KEY), decode_mark, KEYSPACE.journal("other").mark(5)),
    ],
)
def test_a_record_at_the_place_of_another_one_is_noticed(
    value: bytes, decode: Decode, other: str
) -> None:
    with pytest.raises(StateDamaged, match=f"{other}.*under another key"):
        decode(value, other)


def test_a_copy_of_a_store_under_the_name_of_another_cluster_is_read() -> None:
    there = KeyspaceKeys("staging", "counts", 1)
    slot = there.journal("0123456789abcdef01234567").slot(5)
    claim = there.partition(3).claim(2)

    assert decode_record(encode_record(RECORDS[0], SLOT_KEY), slot) == RECORDS[0]
    assert decode_claim(encode_claim(CLAIMS[0], CLAIM_KEY), claim) == CLAIMS[0]


@pytest.mark.parametrize(("value", "decode", "key", "sample"), SAMPLES)
def test_another_version_of_the_format_is_refused_by_name(
    value: bytes, decode: Decode, key: str, sample: object
) -> None:
    newer = b"\xc1\x02" + value[2:]

    with pytest.raises(StateDamaged, match=f"{key}.*format 2 of the store.*reads format 1"):
        decode(newer, key)
    assert decode(value, key) == sample


def test_a_kind_of_record_that_is_not_known_is_of_a_newer_version() -> None:
    value = wrap(encode_value("msgpack", ["future", 1]), SLOT_KEY)

    with pytest.raises(StateDamaged, match=f"{SLOT_KEY}.*'future'; upgrade this node"):
        decode_record(value, SLOT_KEY)


def test_additional_fields_of_a_newer_version_are_ignored() -> None:
    rows = [[3, 2, BODY, "more"], [4, 1, None, "b", "more"]]
    record = encode_value("msgpack", ["group", rows, "more"])
    seal = encode_value("msgpack", ["seal", "b", "more"])
    claim = encode_value("msgpack", ["a", "j", 1, None, "more"])
    mark = encode_value("msgpack", [[[3, 1, 4, "more"]], "more"])

    found = decode_record(wrap(record, SLOT_KEY), SLOT_KEY)

    assert found == Group((Entry(3, 2, BODY), Entry(4, 1, Release("b"))))
    assert decode_record(wrap(seal, SLOT_KEY), SLOT_KEY) == Seal("b")
    assert decode_claim(wrap(claim, CLAIM_KEY), CLAIM_KEY) == Claim("a", "j", 1)
    with pytest.raises(StateDamaged):  # a place has two numbers, and never another one
        decode_mark(wrap(mark, MARK_KEY), MARK_KEY)


@pytest.mark.parametrize(
    "row", [["a", "j", 0, None], ["a", "", 1, None], ["a", "j" * 201, 1, None]]
)
def test_a_claim_beyond_its_limits_is_refused_and_named(row: object) -> None:
    with pytest.raises(StateDamaged, match=CLAIM_KEY):
        decode_claim(wrap(encode_value("msgpack", row), CLAIM_KEY), CLAIM_KEY)


# Any values.

integers = st.integers(0, INTEGER_MAX)
texts = st.text(max_size=40)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | texts | st.binary(),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(texts, some, max_size=4),
    max_leaves=8,
)
bodies = plain_values.filter(lambda body: body is not None) | texts.map(Release)
groups = st.lists(st.builds(Entry, integers, integers, bodies), max_size=5).map(
    lambda entries: Group(tuple(entries))
)
places = st.builds(Slot, integers, integers)


@given(groups | st.builds(Seal, texts))
def test_any_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record, SLOT_KEY), SLOT_KEY) == record


@given(
    st.builds(
        Claim,
        texts,
        st.text(min_size=1, max_size=200),
        st.integers(1, INTEGER_MAX),
        st.none() | places,
    )
)
def test_any_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert decode_claim(encode_claim(claim, CLAIM_KEY), CLAIM_KEY) == claim


@given(st.dictionaries(integers, places, max_size=6))
def test_any_mark_is_read_as_it_was_written(covered: dict[int, Slot]) -> None:
    found = decode_mark(encode_mark(Mark(covered), MARK_KEY), MARK_KEY)

    assert found == Mark(covered)
    assert list(found.covered) == sorted(covered)


@given(plain_values)
def test_any_value_that_is_no_record_is_damage_and_nothing_else(value: object) -> None:
    body = wrap(encode_value("msgpack", value), SLOT_KEY)

    for decode in (decode_record, decode_claim, decode_mark):
        try:
            found: object = decode(body, SLOT_KEY)
        except StateDamaged as error:
            assert SLOT_KEY in str(error)  # noqa: PT017 - of each decoder
        else:
            assert isinstance(found, Group | Seal | Claim | Mark)


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_any_bytes_are_damage_and_nothing_else(head: bytes, tail: bytes) -> None:
    for value in (head, HEAD + head + tail):
        for decode in (decode_record, decode_claim, decode_mark):
            with pytest.raises(StateDamaged, match=SLOT_KEY):
                decode(value, SLOT_KEY)
