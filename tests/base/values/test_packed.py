"""`wire.values`: bytes become plain values or `BodyError`, and shapes are checked."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.packed import (
    TEXT_CHARACTERS_MAX,
    a_list,
    a_map,
    a_row,
    a_text,
    decode_value,
    encode_value,
    make_packer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMES = pytest.mark.parametrize("scheme", ["json", "msgpack"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), children, max_size=4)
    ),
    max_leaves=12,
)


@SCHEMES
@given(value=values)
def test_plain_values_come_back(scheme: str, value: object) -> None:
    assert decode_value(scheme, encode_value(scheme, value)) == value


@given(sequence=st.lists(values | st.just(1 << 64) | st.just(object), max_size=4))
def test_a_packer_says_what_msgpack_says_also_after_what_cannot_be_said(
    sequence: list[object],
) -> None:
    pack = make_packer()

    for value in sequence:
        try:
            expected = encode_value("msgpack", value)
        except (TypeError, OverflowError) as refused:
            with pytest.raises(type(refused)):
                pack(value)
        else:
            assert pack(value) == expected


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b'{"a": [1e309]}'])
def test_a_number_of_json_that_would_become_infinite_is_refused(text: bytes) -> None:
    with pytest.raises(BodyError, match="is too large"):
        decode_value("json", text)


def test_msgpack_says_infinity_by_itself() -> None:
    assert decode_value("msgpack", msgpack.packb(float("-inf"))) == float("-inf")


@SCHEMES
@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_body_error(scheme: str, data: bytes) -> None:
    with contextlib.suppress(BodyError):
        decode_value(scheme, data)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nope",
        b"1 2",
        b"NaN",
        b"-Infinity",
        b'{"a":1,"a":2}',
        b"\xff",
        b'"\\ud800"',
        b'"\\uDFFF"',
        b'{"\\udbff":1}',
        b'"\xed\xa0\x80"',
        '"text"'.encode("utf-16"),
        b"1" * 5000,
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:14]),
)
def test_bytes_that_are_not_json_are_refused(data: bytes) -> None:
    with pytest.raises(BodyError, match="not a json value"):
        decode_value("json", data)


def test_a_whole_pair_of_surrogates_is_one_character() -> None:
    assert decode_value("json", json.dumps("\N{CRAB}").encode()) == "\N{CRAB}"


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x92\x01",
        b"\x01\x02",
        b"\xa1\xff",
        b"\xa3\xed\xa0\x80",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\xde\x00\x02\xa1a\x01\xa1a\x02",
        b"\xdf\x00\x00\x00\x02\xa1a\x01\xa1a\x02",
        b"\x91\x82\xa1a\x01\xa1a\x02",
        b"\xdc\x00\x01\x82\xa1a\x01\xa1a\x02",
        b"\xdd\x00\x00\x00\x01\x82\xa1a\x01\xa1a\x02",
        b"\x81\x01\x02",
        b"\x81\xc4\x01a\x02",
        b"\x81\x91\x01\x02",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
    ],
    ids=lambda data: data[:6].hex(),
)
def test_bytes_that_are_not_msgpack_are_refused(data: bytes) -> None:
    with pytest.raises(BodyError, match="not a msgpack value"):
        decode_value("msgpack", data)


def test_extensions_of_msgpack_are_not_taken_for_rows_or_maps() -> None:
    value = decode_value("msgpack", msgpack.packb(msgpack.ExtType(5, b"abc")))

    with pytest.raises(BodyError):
        a_row(value, 2, "row")


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (a_map, [], "it is not a map"),
        (a_list, {}, "it is not a list"),
        (a_list, "ab", "it is not a list"),
        (a_text, 1, "it is not text of at most 4096 characters"),
        (a_text, b"a", "it is not text"),
        (a_text, "x" * (TEXT_CHARACTERS_MAX + 1), "it is not text"),
    ],
)
def test_a_value_of_another_shape_is_refused_by_its_name(
    check: Callable[[Any, str], object], value: object, message: str
) -> None:
    with pytest.raises(BodyError, match=message):
        check(value, "it")


def test_a_row_may_be_longer_than_we_know() -> None:
    assert a_row([1, 2, 3], 2, "it") == [1, 2, 3]
    with pytest.raises(BodyError, match="it is not a row of 2"):
        a_row([1], 2, "it")
