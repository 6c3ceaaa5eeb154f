"""`ringpop_py.base.dialect`: what the two dialects hash, and how."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect, dialect_named
from ringpop_py.base.errors import ConfigError

BOTH = pytest.mark.parametrize("dialect", [NATIVE, RINGPOP], ids=lambda d: d.name)
THREE = ["127.0.0.1:3000", "127.0.0.1:3001", "127.0.0.1:3002"]


@BOTH
def test_dialects_are_found_by_their_names(dialect: Dialect) -> None:
    assert dialect_named(dialect.name) is dialect


def test_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'native' or 'ringpop', not 'klingon'"):
        dialect_named("klingon")


@pytest.mark.parametrize(
    ("key", "position"),
    [("", 3696677242), ("abc", 795041479), ("user-1", 581942988), ("Hello World", 253619754)],
)
def test_ringpop_keys_stand_where_the_go_implementation_puts_them(key: str, position: int) -> None:
    assert RINGPOP.hash_key(key) == position


@pytest.mark.parametrize(
    ("key", "position"), [("", -7444071767201028348), ("Spark", -4294468057691064905)]
)
def test_native_keys_stand_where_sparks_xxhash64_puts_them(key: str, position: int) -> None:
    assert NATIVE.hash_key(key) == position % 2**64 == xxhash.xxh64_intdigest(key.encode(), 42)


@BOTH
@given(key=st.text())
def test_every_key_has_a_place_below_the_width(dialect: Dialect, key: str) -> None:
    assert 0 <= dialect.hash_key(key) < 2**dialect.hash_bits


@BOTH
def test_a_lone_surrogate_has_a_place(dialect: Dialect) -> None:
    assert dialect.hash_key("\ud800") == dialect.hash_bytes(b"\xed\xa0\x80")


def test_ringpop_points_follow_an_address_at_once_and_a_name_after_a_mark() -> None:
    assert RINGPOP.point_name("127.0.0.1:3000", 7, is_address=True) == "127.0.0.1:30007"
    assert RINGPOP.point_name("identity", 99, is_address=False) == "identity#99"


@pytest.mark.parametrize("is_address", [True, False])
def test_native_points_always_follow_a_mark(is_address: bool) -> None:  # noqa: FBT001 - a parameter
    assert NATIVE.point_name("127.0.0.1:3000", 7, is_address=is_address) == "127.0.0.1:3000#7"


@BOTH
def test_the_ring_checksum_depends_on_names_not_on_order_or_repetition(dialect: Dialect) -> None:
    checksum = dialect.ring_checksum(THREE)

    assert dialect.ring_checksum([*reversed(THREE), THREE[0]]) == checksum
    assert dialect.ring_checksum(THREE[:2]) != checksum
