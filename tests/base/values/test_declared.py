"""Messages as classes: their bytes, and what is said of those that are malformed."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import pytest

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import (
    Checksum,
    Declared,
    Meta,
    Named,
    Natural,
    Text,
    convert,
    decode,
    encode,
)
from ringpop_py.base.values.packed import encode_value


class Share(Declared, frozen=True):
    member: Text
    count: Natural
    digest: Checksum = 0

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("no share counts 13")


class Lease(Declared, frozen=True):
    keyspace: Text
    shares: Annotated[tuple[Share, ...], Meta(max_length=2)]
    until_ms: Natural | None = None
    offsets: dict[str, int] | None = None
    renewed: bool = False


LEASE = Lease("cöunts", (Share("a", 1, (1 << 64) - 1), Share("b", 300)), 1 << 40, {"x": -1})


def test_a_message_is_the_row_of_its_fields_in_msgpack() -> None:
    rows = [["a", 1, (1 << 64) - 1], ["b", 300, 0]]
    assert encode(LEASE) == encode_value("msgpack", ["cöunts", rows, 1 << 40, {"x": -1}, False])
    assert decode(Lease, encode(LEASE)) == LEASE


class Sunk(Named, frozen=True, tag_field="type", tag="log"):
    """A map with a tag."""

    path: str = ""


class Kept(Declared, frozen=True, tag="kept"):
    lease: Lease
    count: Natural


def test_a_message_with_a_tag_begins_with_it() -> None:
    kept = Kept(LEASE, 1)

    assert encode(kept) == encode(["kept", LEASE, 1])
    assert decode(Kept, encode(kept)) == kept
    for said, error in [
        (["other", LEASE, 1], "Kept: kind: Invalid value 'other'"),
        (["kept", ["k", 1], 1], "Kept: lease.shares: Expected `array`, got `int`"),
        (["kept", LEASE, -1], "Kept: count: Expected `int` >= 0"),
    ]:
        with pytest.raises(BodyError) as raised:
            decode(Kept, encode(said))
        assert str(raised.value) == error


def test_a_message_is_made_of_plain_values_too() -> None:
    rows = [["a", 1, (1 << 64) - 1], ["b", 300, 0]]

    assert convert(Lease, ["cöunts", rows, 1 << 40, {"x": -1}, False]) == LEASE
    assert convert(bytes, b"x") == b"x"
    with pytest.raises(BodyError, match=r"Lease: shares\[0\].count: Expected `int`, got `str`"):
        convert(Lease, ["k", [["a", "1"]]])
    with pytest.raises(BodyError, match="bytes: Expected `bytes`, got `str`"):
        convert(bytes, "eA==")


def test_a_field_added_later_has_its_default_and_what_is_still_newer_is_ignored() -> None:
    assert decode(Lease, encode(["k", []])) == Lease("k", ())
    assert decode(Share, encode(["a", 1, 0, "newer", {"and": "newer"}])) == Share("a", 1)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, "Lease: Expected `array`, got `object`"),
        (["k"], "Lease: Expected `array` of at least length 2, got 1"),
        (["k" * 4097, []], "Lease: keyspace: Expected `str` of length <= 4096"),
        (["k", [["a", 1]] * 3], "Lease: shares: Expected `array` of length <= 2"),
        (["k", [["a", 1], ["b", -1]]], "Lease: shares[1].count: Expected `int` >= 0"),
        (["k", [["a"]]], "Lease: shares[0]: Expected `array` of at least length 2, got 1"),
        (["k", [["a", 13]]], "Lease: shares[0]: no share counts 13"),
        (["k", [], 1 << 63], f"Lease: until_ms: Expected `int` <= {(1 << 63) - 1}"),
        (["k", [], 1.0], "Lease: until_ms: Expected `int | null`, got `float`"),
        (["k", [], 1, {"a": "b"}], "Lease: offsets[...]: Expected `int`, got `str`"),
        (["k", [], 1, {1: 2}], "Lease: a key of offsets: Expected `str`, got `int`"),
    ],
)
def test_a_malformed_value_is_refused_with_the_place_of_the_mistake(
    said: object, error: str
) -> None:
    with pytest.raises(BodyError) as raised:
        decode(Lease, encode(said))
    assert str(raised.value) == error


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(BodyError, match="too deep"):
        decode(object, b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": 5}, "Sunk: type: Expected `str`, got `int`"),
        ({"type": "tape"}, "Sunk: type: Invalid value 'tape'"),
        ({"type": "log", "path": 5}, "Sunk: path: Expected `str`, got `int`"),
    ],
)
def test_a_mistake_in_the_tag_of_a_map_is_refused_with_its_place(value: object, text: str) -> None:
    with pytest.raises(BodyError) as caught:
        convert(Sunk, value)

    assert str(caught.value) == text


def test_messages_are_used_for_the_first_time_in_many_threads_at_once() -> None:
    # msgspec 0.22 alone reads from null then: the process of a node ended by a signal.
    done = subprocess.run(
        [sys.executable, "-m", "tests.base.values.first_use"], timeout=60, check=False
    )

    assert done.returncode == 0
