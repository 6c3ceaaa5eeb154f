"""`ringpop_py.base.address`: parsed and printed without loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.address import HOST_CHARACTERS_MAX, Address
from ringpop_py.base.errors import ConfigError

hosts = st.sampled_from(["127.0.0.1", "localhost", "db-1.example", "a_b", "::1", "fe80::1%eth0"])


@given(hosts, st.integers(0, 65_535))
def test_a_printed_address_is_read_back(host: str, port: int) -> None:
    address = Address(host, port)

    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:3000", ("127.0.0.1", 3000)),
        ("[::1]:3000", ("::1", 3000)),
        (" localhost:0 ", ("localhost", 0)),
        ("a:00080", ("a", 80)),
        ("a:65535", ("a", 65_535)),
    ],
)
def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    assert Address.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not HOST:PORT"),
        ("localhost", "is not HOST:PORT"),
        (":3000", "is not HOST:PORT"),
        ("::1:3000", "is not HOST:PORT"),
        ("[::1:3000", "is not HOST:PORT"),
        ("[localhost]:3000", "is not HOST:PORT"),
        ("a b:3000", "is not HOST:PORT"),
        ("a\nb:3000", "is not HOST:PORT"),
        ("é:3000", "is not HOST:PORT"),
        ("a:", "the port is not a number"),
        ("a:x", "the port is not a number"),
        ("a:-1", "the port is not a number"),
        ("a:65536", "the port is not a number"),
        ("a:000080", "the port is not a number"),
        ("a:٣", "the port is not a number"),
        ("a" * (HOST_CHARACTERS_MAX + 1) + ":1", "at most 253 characters"),
    ],
)
def test_a_malformed_address_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Address.parse(text)


def test_the_message_names_what_the_address_was_for() -> None:
    with pytest.raises(ConfigError, match="--listen 'x' is not HOST:PORT"):
        Address.parse("x", what="--listen")


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        address = Address.parse(text)
    except ConfigError:
        return
    assert Address.parse(str(address)) == address
